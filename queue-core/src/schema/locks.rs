//! Handling of locks that a migration cannot acquire because other sessions hold them.

use std::time::Duration;

use sqlx::PgConnection;

use super::store::Store;
use crate::error::Error;

/// Statement that limits lock waits. The limit is short because concurrent enqueues queue up behind a waiting lock request.
pub(super) const LOCK_TIMEOUT: &str = "set local lock_timeout = '50ms'";

/// Delay between two attempts to acquire a lock. During the delay, sessions that queued up behind the first attempt can proceed.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(250);

pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Returns an error with the process ids of sessions that hold locks on the store's tables. Only sessions whose transaction has been open
/// for longer than `open_for` are included.
pub(super) async fn lock_holders_error(connection: &mut PgConnection, store: Store, open_for: Duration) -> sqlx::Result<Error> {
    let pids: Vec<i32> = sqlx::query_scalar(LOCK_HOLDERS).bind(store.schema()).bind(open_for.as_secs_f64()).fetch_all(connection).await?;
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let holders = if pids.is_empty() { "other sessions".to_owned() } else { format!("server processes {}", pids.join(", ")) };
    Ok(Error::SchemaInUse { schema: store.schema().to_owned(), holders })
}

const LOCK_HOLDERS: &str = "
select distinct a.pid
from pg_catalog.pg_stat_activity a
join pg_catalog.pg_locks l on l.pid operator(pg_catalog.=) a.pid
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where n.nspname operator(pg_catalog.=) $1::name
  and l.granted
  and a.xact_start operator(pg_catalog.<) (pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(secs => $2))
order by 1";

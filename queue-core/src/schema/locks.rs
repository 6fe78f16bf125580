//! Locks that a migration does not get, because somebody else has them.

use std::time::Duration;

use sqlx::PgConnection;

use super::store::Store;
use crate::error::Error;

/// No statement waits longer for a lock: enqueues that come meanwhile wait behind it.
pub(super) const LOCK_TIMEOUT: &str = "set local lock_timeout = '50ms'";

/// Between two tries, so that whoever waited behind the first has passed.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Who holds locks on the store's tables in a transaction that has been open for so long.
pub(super) async fn in_the_way(connection: &mut PgConnection, store: Store, open_for: Duration) -> sqlx::Result<Error> {
    let pids: Vec<i32> = sqlx::query_scalar(HOLDERS).bind(store.schema()).bind(open_for.as_secs_f64()).fetch_all(connection).await?;
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let holders = if pids.is_empty() { "others".to_owned() } else { format!("server processes {}", pids.join(", ")) };
    Ok(Error::SchemaInUse { schema: store.schema().to_owned(), holders })
}

const HOLDERS: &str = "
select distinct a.pid
from pg_catalog.pg_stat_activity a
join pg_catalog.pg_locks l on l.pid operator(pg_catalog.=) a.pid
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where n.nspname operator(pg_catalog.=) $1::name
  and l.granted
  and a.xact_start operator(pg_catalog.<) (pg_catalog.now() operator(pg_catalog.-) pg_catalog.make_interval(secs => $2))
order by 1";

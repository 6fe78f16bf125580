//! Making a connection with our settings, or without them where a pooler refuses those.

use std::{
    pin::pin,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use queue_core::runner::is_refused_setting;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Row as _, postgres::PgConnectOptions};
use tokio::time::timeout;
use uuid::Uuid;

use super::session::SETTINGS;
use crate::error::complain;

/// Little depends on the settings but speed, and nothing on notifications. Policies on tables of a store are found when a worker starts; here no statement
/// fails of one that is made later.
pub(super) const POOLER: &str = "a pooler is in front of the database: without settings of our own plans may be slow, and jobs are found by polling; \
    give the worker a direct connection";

/// While a connection is being made, it is looked this often whether it is to lead elsewhere by now.
const ELSEWHERE: Duration = Duration::from_millis(200);

/// What a session of this process is known by.
static MARK: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// To wherever the pool leads when it is made: one to a host that is gone may never be. Also where that is. It keeps so many statements prepared.
pub(super) async fn connect_along(
    pool: &PgPool,
    (purpose, statements): (&str, Option<usize>),
    settings: &[(&'static str, &'static str)],
) -> sqlx::Result<(Arc<PgConnectOptions>, PgConnection)> {
    loop {
        let to = pool.connect_options();
        let options = statements.map_or_else(|| (*to).clone(), |statements| (*to).clone().statement_cache_capacity(statements));
        let mut making = pin!(connect(&options, purpose, settings));
        let made = loop {
            if let Ok(made) = timeout(ELSEWHERE, &mut making).await {
                break Some(made);
            }
            if !is_same_place(&pool.connect_options(), &to) {
                break None;
            }
        };
        if let Some(made) = made {
            return made.map(|connection| (to, connection));
        }
    }
}

/// A setting by which a session is known again.
pub(super) fn mark() -> (&'static str, &'static str) {
    ("queue.session", &MARK)
}

/// Whether this is a session that began with the mark, and so nobody else's: a pooler refuses the mark, or leaves it out.
pub(super) async fn is_marked(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let asked = format!("select pg_catalog.current_setting('queue.session', true) is not distinct from '{}'", *MARK);
    sqlx::raw_sql(AssertSqlSafe(asked)).fetch_one(connection).await?.try_get(0)
}

async fn connect(to: &PgConnectOptions, purpose: &str, settings: &[(&'static str, &'static str)]) -> sqlx::Result<PgConnection> {
    let plain = to.clone().application_name(&format!("queue-worker {purpose}")).disable_statement_logging();
    let connected = plain.clone().options(SETTINGS).options(settings.iter().copied()).connect().await;
    if let Err(error) = &connected
        && is_refused_setting(error)
    {
        warn_of_pooler(error);
        // Without our settings, for a pooler that refuses them.
        return plain.extra_float_digits(None).connect().await;
    }
    connected
}

/// Whether our settings are in force: a pooler that does not refuse them may leave them out.
pub(super) async fn has_settings(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let mode = "select pg_catalog.current_setting('plan_cache_mode') = 'force_generic_plan'";
    sqlx::raw_sql(mode).fetch_one(connection).await?.try_get(0)
}

/// Every connection is refused so, and more come as they are needed: said once a minute.
fn warn_of_pooler(error: &sqlx::Error) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= Duration::from_mins(1)) {
        *last = Some(Instant::now());
        complain(error, POOLER);
    }
}

/// Whether both lead to one host.
pub(super) fn is_same_place(one: &PgConnectOptions, other: &PgConnectOptions) -> bool {
    (one.get_host(), one.get_port(), one.get_socket()) == (other.get_host(), other.get_port(), other.get_socket())
}

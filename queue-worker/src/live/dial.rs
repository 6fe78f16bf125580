//! Opens connections with the worker's session settings. A connection through a pooler that rejects the settings is opened without them.

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
use crate::error::warn_throttled;

/// Warning that a pooler keeps the worker's session settings from taking effect. Without these settings, statements are slower, and row
/// security policies created after the worker started go undetected.
pub(super) const POOLER: &str = "a pooler is in front of the database: the worker's settings have no effect, so plans may be slow and jobs are found by polling; \
    give the worker a direct connection";

/// Interval at which a pending connection attempt checks whether the pool was redirected to another host.
const ELSEWHERE: Duration = Duration::from_millis(200);

/// Value that marks the sessions of this process.
static MARK: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// Connects to the pool's current host. Returns the pool's connection options and the connection. If the pool is redirected during the
/// attempt, the attempt is restarted, because a connection attempt to a lost host may never end. `statements` is the capacity of the
/// prepared-statement cache. `None` keeps the pool's capacity.
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

/// Returns the setting that marks the sessions of this process.
pub(super) fn mark() -> (&'static str, &'static str) {
    ("queue.session", &MARK)
}

/// Returns whether the session started with this process's mark. Such a session is not shared with other clients, because a pooler would
/// have rejected or dropped the mark.
pub(super) async fn is_marked(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let query = format!("select pg_catalog.current_setting('queue.session', true) is not distinct from '{}'", *MARK);
    sqlx::raw_sql(AssertSqlSafe(query)).fetch_one(connection).await?.try_get(0)
}

async fn connect(to: &PgConnectOptions, purpose: &str, settings: &[(&'static str, &'static str)]) -> sqlx::Result<PgConnection> {
    let plain = to.clone().application_name(&format!("queue-worker {purpose}")).disable_statement_logging();
    let connected = plain.clone().options(SETTINGS).options(settings.iter().copied()).connect().await;
    if let Err(error) = &connected
        && is_refused_setting(error)
    {
        warn_of_pooler(error);
        // A pooler has rejected the settings, so the connection is retried without them.
        return plain.extra_float_digits(None).connect().await;
    }
    connected
}

/// Returns whether the worker's settings are in effect on the connection. A pooler may drop settings silently.
pub(super) async fn has_settings(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let mode = "select pg_catalog.current_setting('plan_cache_mode') operator(pg_catalog.=) 'force_generic_plan'";
    sqlx::raw_sql(mode).fetch_one(connection).await?.try_get(0)
}

/// Logs a warning that a pooler rejects the worker's settings, at most once a minute. Every connection through the pooler would otherwise
/// repeat the warning.
fn warn_of_pooler(error: &sqlx::Error) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= Duration::from_mins(1)) {
        *last = Some(Instant::now());
        warn_throttled(error, POOLER);
    }
}

/// Returns whether both sets of connection options have the same host, port and socket.
pub(super) fn is_same_place(one: &PgConnectOptions, other: &PgConnectOptions) -> bool {
    (one.get_host(), one.get_port(), one.get_socket()) == (other.get_host(), other.get_port(), other.get_socket())
}

//! Opens connections with the worker's settings, or without them if a pooler rejects them.

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

/// Warning that the worker's settings have no effect. Without the settings, statements are only slower, and notifications do not depend on
/// them. Row security policies on a store's tables are detected when a worker starts. Policies created later do not make statements fail.
pub(super) const POOLER: &str = "a pooler is in front of the database: the worker's settings have no effect, so plans may be slow and jobs are found by polling; \
    give the worker a direct connection";

/// Interval at which a pending connection attempt checks whether the pool has been redirected.
const ELSEWHERE: Duration = Duration::from_millis(200);

/// Value that marks the sessions of this process.
static MARK: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

/// Connects to the pool's current host, and returns the connection with the options used. The attempt starts over if the pool is redirected
/// in the meantime, because an attempt to connect to a lost host may never end. `statements` is the size of the cache for prepared
/// statements.
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

/// Returns the setting that marks our sessions.
pub(super) fn mark() -> (&'static str, &'static str) {
    ("queue.session", &MARK)
}

/// Returns whether the session started with the mark. Such a session is not shared with other clients, because a pooler rejects or drops
/// the mark.
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

/// Returns whether the settings are in effect. A pooler may drop settings silently.
pub(super) async fn has_settings(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let mode = "select pg_catalog.current_setting('plan_cache_mode') = 'force_generic_plan'";
    sqlx::raw_sql(mode).fetch_one(connection).await?.try_get(0)
}

/// Logs that a pooler rejects the settings. Every connection is rejected in the same way, so the warning is logged once a minute.
fn warn_of_pooler(error: &sqlx::Error) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= Duration::from_mins(1)) {
        *last = Some(Instant::now());
        warn_throttled(error, POOLER);
    }
}

/// Returns whether both options lead to the same host.
pub(super) fn is_same_place(one: &PgConnectOptions, other: &PgConnectOptions) -> bool {
    (one.get_host(), one.get_port(), one.get_socket()) == (other.get_host(), other.get_port(), other.get_socket())
}

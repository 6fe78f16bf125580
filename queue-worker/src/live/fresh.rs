//! Detects pool connections that must not be handed out because they were opened before the database moved to another server. A pool
//! keeps a connection for up to half an hour. Writes on an old connection fail if its server has become a standby.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection, Row as _, pool::PoolConnectionMetadata, postgres::PgPoolOptions};
use tokio::time::timeout;

use super::{
    address::{ServerState, TargetSession},
    bounded,
};

/// State that decides which of a pool's connections are recent enough to be handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolFreshness(Arc<FreshnessState>);

#[derive(Debug, Default)]
struct FreshnessState {
    /// Time of the last server change. Connections opened earlier are not handed out.
    moved: Mutex<Option<Instant>>,
    /// Whether the most recently opened connection reached a standby.
    standby: AtomicBool,
    /// Whether every server is accepted, because no server has qualified yet.
    patient: AtomicBool,
}

/// Idle time after which a connection is tested before the pool hands it out. Testing every connection would double the time of a short
/// query. Without tests, handlers would get connections that a restarted server has closed.
const TEST_IDLE_AFTER: Duration = Duration::from_secs(1);

/// Timeout for testing an idle connection. A connection whose server no longer exists would never respond.
const TEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Assumed maximum duration of a connection attempt. A connection opened within this time after a server change is not reused, because
/// its attempt may have reached the old server.
const OPENING_TIME: Duration = Duration::from_secs(1);

/// Maximum age of the connections that a pool hands out while the server is a standby. Opening a new connection reveals whether the host
/// name now resolves to another server.
const STANDBY: Duration = Duration::from_secs(5);

/// Queries the server's state. Uses the simple query protocol, which every pooler accepts.
pub(super) async fn query_server_state(connection: &mut PgConnection) -> sqlx::Result<ServerState> {
    let row = bounded(sqlx::raw_sql(include_str!("../../sql/server.sql")).fetch_one(connection)).await?;
    Ok(ServerState { standby: row.try_get(0)?, read_only: row.try_get(1)? })
}

impl PoolFreshness {
    /// Makes the pool accept every server until a server qualifies.
    pub(super) fn patient(self) -> Self {
        self.0.patient.store(true, Relaxed);
        self
    }

    /// Invalidates all existing connections of the pool.
    pub(super) fn renew(&self) {
        *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Configures a pool to hand out only connections that have not been invalidated. A connection that was idle for longer than
    /// [`TEST_IDLE_AFTER`] is tested first.
    pub(super) fn lend_tested(&self, pool: PgPoolOptions) -> PgPoolOptions {
        let lending = self.clone();
        pool.test_before_acquire(false).before_acquire(move |connection, lent| {
            let is_fresh = lending.is_fresh(&lent);
            Box::pin(async move {
                if is_fresh && lent.idle_for > TEST_IDLE_AFTER {
                    return Ok(timeout(TEST_TIMEOUT, connection.ping()).await.is_ok_and(|alive| alive.is_ok()));
                }
                Ok(is_fresh)
            })
        })
    }

    /// Configures a pool like [`PoolFreshness::lend_tested`]. The pool also rejects new connections to servers that do not qualify for
    /// `target`.
    pub(super) fn watch(&self, pool: PgPoolOptions, target: TargetSession) -> PgPoolOptions {
        let making = self.clone();
        self.lend_tested(pool).after_connect(move |connection, _| {
            let making = making.clone();
            Box::pin(async move { making.made(query_server_state(connection).await?, target) })
        })
    }

    fn is_fresh(&self, lent: &PoolConnectionMetadata) -> bool {
        let moved = *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |moved: Instant| lent.age + OPENING_TIME < moved.elapsed();
        moved.is_none_or(is_new) && !(self.0.standby.load(Relaxed) && lent.age > STANDBY)
    }

    fn made(&self, state: ServerState, target: TargetSession) -> sqlx::Result<()> {
        if self.0.standby.swap(state.standby, Relaxed) && !state.standby {
            self.renew();
        }
        if target.takes(state) {
            self.0.patient.store(false, Relaxed);
        }
        if target.takes(state) || self.0.patient.load(Relaxed) {
            Ok(())
        } else {
            Err(sqlx::Error::Configuration("this server is not the one that is wanted".into()))
        }
    }
}

//! Detects pool connections that are older than the last server change and must not be lent. A pool keeps a connection for half an hour. A
//! connection to a former standby or to a former primary would reject every write.

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

/// Freshness of a pool's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolFreshness(Arc<FreshnessState>);

#[derive(Debug, Default)]
struct FreshnessState {
    /// Time of the last server change. Connections opened earlier are not lent.
    moved: Mutex<Option<Instant>>,
    /// Whether the most recent connection leads to a standby.
    standby: AtomicBool,
    /// Whether any server is accepted until the first server that qualifies.
    patient: AtomicBool,
}

/// Idle time after which a connection is tested before it is lent. Testing every connection would double the time of a short query. Without
/// tests, handlers would get connections that a restarted server has closed.
const TEST_IDLE_AFTER: Duration = Duration::from_secs(1);

/// Timeout of the test. A connection whose peer no longer exists would never respond.
const TEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Time that opening a connection may take. A connection that was being opened during a server change may lead to the old server.
const OPENING_TIME: Duration = Duration::from_secs(1);

/// Interval between checks whether a host name that leads to a standby still does.
const STANDBY: Duration = Duration::from_secs(5);

/// Queries the state of a server. The simple protocol is used, because every pooler accepts it.
pub(super) async fn query_server_state(connection: &mut PgConnection) -> sqlx::Result<ServerState> {
    let row = bounded(sqlx::raw_sql(include_str!("../../sql/server.sql")).fetch_one(connection)).await?;
    Ok(ServerState { standby: row.try_get(0)?, read_only: row.try_get(1)? })
}

impl PoolFreshness {
    /// Makes the pool accept any server until the first server that qualifies.
    pub(super) fn patient(self) -> Self {
        self.0.patient.store(true, Relaxed);
        self
    }

    /// Invalidates all existing connections.
    pub(super) fn renew(&self) {
        *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Configures a pool so that it lends neither invalidated connections nor connections to a lost server.
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

    /// Configures a pool so that it lends no connection to a server that does not qualify.
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

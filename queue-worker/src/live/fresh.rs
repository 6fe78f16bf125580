//! Detects connections of a pool that are older than the last server change and must not be lent. A pool keeps connections for half an hour; one to a
//! former standby, or to a server that is no longer primary, would reject every write.

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
    address::{Said, Wanted},
    bounded,
};

/// What is known about a pool's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Connections opened before this are not lent.
    moved: Mutex<Option<Instant>>,
    /// Whether the last connection leads to a standby.
    standby: AtomicBool,
    /// Whether any server is accepted until the first one that qualifies.
    patient: AtomicBool,
}

/// A connection idle for longer than this is tested before it is lent. Testing every one doubles the time of a short query; testing none hands
/// handlers connections that a restarted server has closed.
const TRIED_AFTER: Duration = Duration::from_secs(1);

/// Timeout of the test. A connection whose other end is gone would never answer.
const TRIED_FOR: Duration = Duration::from_secs(2);

/// A connection being opened during a server change may lead to the old server.
const BEING_MADE: Duration = Duration::from_secs(1);

/// Interval between checks whether a name that leads to a standby still does.
const STANDBY: Duration = Duration::from_secs(5);

/// Queries the state of a server. Uses the simple protocol, which every pooler accepts.
pub(super) async fn ask(connection: &mut PgConnection) -> sqlx::Result<Said> {
    let row = bounded(sqlx::raw_sql(include_str!("../../sql/server.sql")).fetch_one(connection)).await?;
    Ok(Said { standby: row.try_get(0)?, read_only: row.try_get(1)? })
}

impl Fresh {
    /// Accepts any server until the first one that qualifies.
    pub(super) fn patient(self) -> Self {
        self.0.patient.store(true, Relaxed);
        self
    }

    /// Invalidates all existing connections.
    pub(super) fn renew(&self) {
        *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Configures the pool so that it lends no invalidated connection, and none to a lost server.
    pub(super) fn lend_tried(&self, pool: PgPoolOptions) -> PgPoolOptions {
        let lending = self.clone();
        pool.test_before_acquire(false).before_acquire(move |connection, lent| {
            let is_fresh = lending.is_fresh(&lent);
            Box::pin(async move {
                if is_fresh && lent.idle_for > TRIED_AFTER {
                    return Ok(timeout(TRIED_FOR, connection.ping()).await.is_ok_and(|alive| alive.is_ok()));
                }
                Ok(is_fresh)
            })
        })
    }

    /// Configures the pool so that it lends no connection to a server that does not qualify.
    pub(super) fn watch(&self, pool: PgPoolOptions, wanted: Wanted) -> PgPoolOptions {
        let making = self.clone();
        self.lend_tried(pool).after_connect(move |connection, _| {
            let making = making.clone();
            Box::pin(async move { making.made(ask(connection).await?, wanted) })
        })
    }

    fn is_fresh(&self, lent: &PoolConnectionMetadata) -> bool {
        let moved = *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |moved: Instant| lent.age + BEING_MADE < moved.elapsed();
        moved.is_none_or(is_new) && !(self.0.standby.load(Relaxed) && lent.age > STANDBY)
    }

    fn made(&self, said: Said, wanted: Wanted) -> sqlx::Result<()> {
        if self.0.standby.swap(said.standby, Relaxed) && !said.standby {
            self.renew();
        }
        if wanted.takes(said) {
            self.0.patient.store(false, Relaxed);
        }
        if wanted.takes(said) || self.0.patient.load(Relaxed) {
            Ok(())
        } else {
            Err(sqlx::Error::Configuration("this server is not the one that is wanted".into()))
        }
    }
}

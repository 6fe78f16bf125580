//! Which connections of a pool are as old as the server's last change: those are not lent again. A pool keeps connections for half an hour, and one to a
//! server that was a standby by then, or that is not the primary any more, would refuse every write of whoever is given it.

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

/// What is known of a pool's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Those made before this are not lent any more.
    moved: Mutex<Option<Instant>>,
    /// The last one that was made leads to a standby.
    standby: AtomicBool,
    /// Any server is better than none until the first that is wanted.
    patient: AtomicBool,
}

/// A connection that lay idle for longer is tried before it is lent. Trying each doubles a short query's time; trying none gives a handler
/// the connections that a restarted server has closed.
const TRIED_AFTER: Duration = Duration::from_secs(1);

/// One whose other end is gone without a word would never answer.
const TRIED_FOR: Duration = Duration::from_secs(2);

/// One that was being made when the server changed may lead to the last one.
const BEING_MADE: Duration = Duration::from_secs(1);

/// While a name leads to a standby, it is looked this often whether it still does.
const STANDBY: Duration = Duration::from_secs(5);

/// What a server says of itself. By the simple protocol, which every pooler takes.
pub(super) async fn ask(connection: &mut PgConnection) -> sqlx::Result<Said> {
    let row = bounded(sqlx::raw_sql(include_str!("../../sql/server.sql")).fetch_one(connection)).await?;
    Ok(Said { standby: row.try_get(0)?, read_only: row.try_get(1)? })
}

impl Fresh {
    /// Of a pool that is to lead anywhere until the first server that is wanted.
    pub(super) fn patient(self) -> Self {
        self.0.patient.store(true, Relaxed);
        self
    }

    /// From now on the connections that there are lead to the wrong server.
    pub(super) fn renew(&self) {
        *self.0.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Sees to it that no connection is lent that was made before, or whose server is gone.
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

    /// Sees to it that no connection is lent that leads to the wrong server, or to none.
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

//! One job looked at again and again, on whatever there is to wait on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::PgPool;

use super::{
    error::WaitError,
    look::{JobSnapshot, PATIENCE, look, may_pass},
    waiter::{Follow, Waiter},
};
use crate::{connect::JobRef, enqueue::explain};

/// On what to wait: a pool, or a [`Waiter`].
#[derive(Clone, Debug)]
pub struct WaitOn(pub(super) On);

#[derive(Clone, Debug)]
pub(super) enum On {
    Pool(PgPool),
    Waiter(Waiter),
}

impl WaitOn {
    pub(super) fn pool(self) -> PgPool {
        match self.0 {
            On::Pool(pool) => pool,
            On::Waiter(waiter) => waiter.pool(),
        }
    }
}

impl From<&PgPool> for WaitOn {
    fn from(pool: &PgPool) -> Self {
        Self(On::Pool(pool.clone()))
    }
}

impl From<&Waiter> for WaitOn {
    fn from(waiter: &Waiter) -> Self {
        Self(On::Waiter(waiter.clone()))
    }
}

/// The first pause between two looks over a pool, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// The first pause while progress is watched: people look at it.
const WATCHING: Duration = Duration::from_millis(100);

/// Sees one job again and again.
pub(crate) enum JobWatcher {
    Pool(Box<PoolWatcher>),
    Waiter(Follow),
}

/// The looks at one job over a pool.
pub(crate) struct PoolWatcher {
    job: JobRef,
    pool: PgPool,
    began: Option<Instant>,
    shortest: Duration,
}

impl JobWatcher {
    pub(super) fn open(job: JobRef, on: On, watching: bool) -> Result<Self, WaitError> {
        match on {
            On::Pool(pool) => {
                let shortest = if watching { WATCHING } else { PAUSES.0 };
                Ok(Self::Pool(Box::new(PoolWatcher { job, pool, began: None, shortest })))
            }
            On::Waiter(waiter) => Ok(Self::Waiter(waiter.follow(job, watching)?)),
        }
    }

    /// The next snapshot of the job, not before it is time for it.
    pub(crate) async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        match self {
            Self::Pool(watcher) => watcher.next().await,
            Self::Waiter(follow) => follow.next().await.map_err(WaitError::Store),
        }
    }
}

impl PoolWatcher {
    async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        let mut failing: Option<Instant> = None;
        loop {
            if let Some(began) = self.began {
                // An eighth of the time waited: late by no more than that, and an hour's wait costs what a second's does.
                tokio::time::sleep((began.elapsed() / 8).clamp(self.shortest, PAUSES.1)).await;
            }
            let began = Instant::now();
            self.began.get_or_insert(began);
            match look(&self.pool, self.job.store(), &[self.job.id()]).await {
                Ok(found) => return Ok(Arc::new(found.into_iter().next().map_or_else(JobSnapshot::not_found, |(_, snapshot)| snapshot))),
                Err(error) if may_pass(&error) && failing.get_or_insert(began).elapsed() < PATIENCE => {}
                Err(error) => return Err(WaitError::store(explain(error, self.job.store()))),
            }
        }
    }
}

//! Polling of a single job, over a pool or a `Waiter`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::PgPool;

use super::{
    error::WaitError,
    poll::{JobSnapshot, MAX_OUTAGE, is_temporary, poll_jobs},
    waiter::{JobSubscription, Waiter},
};
use crate::{connect::JobRef, enqueue::store_error};

/// Pool or [`Waiter`] over which a job is polled.
///
/// ```no_run
/// use queue_core::{JobRef, WaitError, WaitOn, Waiter};
///
/// async fn print_progress(job: JobRef, on: impl Into<WaitOn>) -> Result<(), WaitError> {
///     println!("{:?}", job.progress(on).await?.fraction);
///     Ok(())
/// }
///
/// # async fn example(pool: &sqlx::PgPool, job: JobRef) -> Result<(), WaitError> {
/// print_progress(job, pool).await?;
/// print_progress(job, &Waiter::start(pool)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WaitOn(pub(super) PollSource);

#[derive(Clone, Debug)]
pub(super) enum PollSource {
    Pool(PgPool),
    Waiter(Waiter),
}

impl WaitOn {
    pub(super) fn pool(self) -> PgPool {
        match self.0 {
            PollSource::Pool(pool) => pool,
            PollSource::Waiter(waiter) => waiter.pool(),
        }
    }
}

impl From<&PgPool> for WaitOn {
    fn from(pool: &PgPool) -> Self {
        Self(PollSource::Pool(pool.clone()))
    }
}

impl From<&Waiter> for WaitOn {
    fn from(waiter: &Waiter) -> Self {
        Self(PollSource::Waiter(waiter.clone()))
    }
}

/// Minimum and maximum interval between two polls over a pool.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// Minimum poll interval while progress is watched. People who watch progress do not need faster updates.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Watcher that returns successive snapshots of one job.
pub(crate) enum JobWatcher {
    Pool(Box<PoolWatcher>),
    Waiter(JobSubscription),
}

/// Watcher that polls one job over a pool.
pub(crate) struct PoolWatcher {
    job: JobRef,
    pool: PgPool,
    began: Option<Instant>,
    shortest: Duration,
}

impl JobWatcher {
    pub(super) fn open(job: JobRef, on: PollSource, watching: bool) -> Result<Self, WaitError> {
        match on {
            PollSource::Pool(pool) => {
                let shortest = if watching { WATCH_INTERVAL } else { POLL_INTERVALS.0 };
                Ok(Self::Pool(Box::new(PoolWatcher { job, pool, began: None, shortest })))
            }
            PollSource::Waiter(waiter) => Ok(Self::Waiter(waiter.subscribe(job, watching)?)),
        }
    }

    /// Waits for the next snapshot of the job.
    pub(crate) async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        match self {
            Self::Pool(watcher) => watcher.next().await,
            Self::Waiter(subscription) => subscription.next().await.map_err(WaitError::Store),
        }
    }
}

impl PoolWatcher {
    async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        let mut failing: Option<Instant> = None;
        loop {
            if let Some(began) = self.began {
                // The interval is an eighth of the time waited so far. A result is delayed in proportion to the wait, and a long wait
                // costs few polls.
                tokio::time::sleep((began.elapsed() / 8).clamp(self.shortest, POLL_INTERVALS.1)).await;
            }
            let began = Instant::now();
            self.began.get_or_insert(began);
            match poll_jobs(&self.pool, self.job.store(), &[self.job.id()]).await {
                Ok(found) => return Ok(Arc::new(found.into_iter().next().map_or_else(JobSnapshot::not_found, |(_, snapshot)| snapshot))),
                Err(error) if is_temporary(&error) && failing.get_or_insert(began).elapsed() < MAX_OUTAGE => {}
                Err(error) => return Err(WaitError::store(store_error(error, self.job.store()))),
            }
        }
    }
}

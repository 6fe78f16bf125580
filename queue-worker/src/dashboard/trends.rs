//! Attempt statistics and limits for the overview page. Workers report attempts every ten seconds. A store is therefore queried at most
//! once every ten seconds, and all viewers share the result.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::{
    Error, Queue,
    operate::{AttemptStatistics, HistoryRange, LimitStatus, OnConnection},
};
use tokio::{sync::Mutex, time::Instant};

use super::problem::HandlerResult;

/// Attempt statistics of a store, and the status of its limits.
pub(super) struct Trends {
    /// Statistics of the last hour, in steps of a minute.
    pub(super) hour: Vec<AttemptStatistics>,
    /// Statistics of the last day, in steps of half an hour.
    pub(super) day: Vec<AttemptStatistics>,
    /// Statistics of the last hour, by queue and type.
    pub(super) types: Vec<AttemptStatistics>,
    pub(super) limits: Vec<LimitStatus>,
    /// Database time when the statistics were loaded.
    pub(super) now: DateTime<Utc>,
}

/// Cache of a store's trends. If loading fails, the error is cached.
#[derive(Default)]
pub(super) struct TrendCache(Mutex<Option<(Instant, HandlerResult<Arc<Trends>>)>>);

/// Maximum age of a cached result, whether trends or an error.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Periods of the charts.
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);

impl Trends {
    pub(super) async fn load(queue: &Queue<OnConnection<'_>>) -> Result<Self, Error> {
        let range = |last, step| HistoryRange { last, step: Some(step), ..HistoryRange::default() };
        Ok(Self {
            hour: queue.history(&range(HOUR, Duration::from_mins(1))).await?,
            day: queue.history(&range(DAY, Duration::from_mins(30))).await?,
            types: queue.history(&HistoryRange { apart: true, ..HistoryRange::default() }).await?,
            limits: queue.limits().await?,
            now: queue.now().await?,
        })
    }
}

impl TrendCache {
    /// Returns the cached trends or error. If the cache is empty or expired, calls `load` once for all concurrent requests.
    pub(super) async fn get(&self, load: impl AsyncFnOnce() -> HandlerResult<Trends>) -> HandlerResult<Arc<Trends>> {
        let mut cached = self.0.lock().await;
        if let Some((at, trends)) = &*cached
            && at.elapsed() < MAX_AGE
        {
            return trends.clone();
        }
        let trends = load().await.map(Arc::new);
        *cached = Some((Instant::now(), trends.clone()));
        trends
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::dashboard::problem::Problem;

    #[tokio::test(start_paused = true)]
    async fn trends_and_errors_are_kept_for_ten_seconds() {
        let (cache, loads) = (TrendCache::default(), Cell::new(0));
        let get = async |result: HandlerResult<Trends>| {
            let load = async || {
                loads.set(loads.get() + 1);
                result
            };
            cache.get(load).await.is_ok()
        };
        let trends = || Trends { hour: Vec::new(), day: Vec::new(), types: Vec::new(), limits: Vec::new(), now: DateTime::default() };
        assert_eq!((get(Err(Problem::unavailable("busy"))).await, loads.get()), (false, 1));
        assert_eq!((get(Ok(trends())).await, loads.get()), (false, 1), "an error is not retried at once");
        tokio::time::advance(MAX_AGE).await;
        assert_eq!((get(Ok(trends())).await, loads.get()), (true, 2));
        assert_eq!((get(Err(Problem::unavailable("busy"))).await, loads.get()), (true, 2));
    }
}

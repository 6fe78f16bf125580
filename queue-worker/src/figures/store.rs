//! Metrics of the store, cached for frequent collection. The store is queried at most every five seconds, on a separate connection. All
//! callers share the result.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    Queue, Store,
    operate::{Busiest, Oldest},
};
use sqlx::{PgConnection, PgPool};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    error::Error,
    live::{LoopHealth, PauseSnapshot, StoreConnection},
};

/// Maximum age of a cached query result.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Timeout for all queries of one collection. Monitoring systems usually wait ten seconds for a response.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of pairs of queue and type whose jobs are counted separately, and maximum number of queues whose oldest ready job is
/// reported. The pairs with the most unfinished jobs and the queues with the longest waits are chosen.
const MAX_SERIES: u16 = 50;

/// Cache of the store's metrics. Queries the store if the cached result is too old.
pub(super) struct StoreMetrics {
    store: Store,
    last: Arc<Mutex<CachedState>>,
}

struct CachedState {
    link: StoreConnection,
    /// Health of the worker's loops, including the current pauses.
    loop_health: LoopHealth,
    /// Time and result of the last query. The result is `None` if the query failed.
    cached: Option<(Instant, Option<Arc<StoreState>>)>,
    /// Error of the last query, or `None` if the query succeeded.
    last_error: Option<String>,
}

/// State of the store, as returned by the metric queries.
pub(super) struct StoreState {
    pub(super) jobs: Busiest,
    /// Oldest ready job of each queue that is not paused. Empty until the worker has loaded the pauses.
    pub(super) oldest: Vec<Oldest>,
    pub(super) days_ahead: i32,
    /// Age of the oldest snapshot that prevents vacuuming, in transactions.
    pub(super) snapshot_age: i64,
    /// Age in seconds of the oldest open transaction that has a snapshot and is visible to this role. `None` if there is no such
    /// transaction.
    pub(super) transaction_age: Option<f64>,
}

impl StoreMetrics {
    pub(super) fn new(pool: &PgPool, store: Store, loop_health: &LoopHealth) -> Self {
        let link = StoreConnection::new(pool, "figures").impatient().hasty();
        Self { store, last: Arc::new(Mutex::new(CachedState { link, loop_health: loop_health.clone(), cached: None, last_error: None })) }
    }

    /// Returns the cached or queried state, or `None` if the store does not respond.
    pub(super) async fn current(&self) -> Option<Arc<StoreState>> {
        let (store, last) = (self.store, Arc::clone(&self.last));
        // The task runs to completion even if the caller is dropped, so no connection is left in the middle of a query.
        tokio::spawn(async move { last.lock().await.query(store).await }).await.ok().flatten()
    }
}

impl CachedState {
    async fn query(&mut self, store: Store) -> Option<Arc<StoreState>> {
        if let Some((_, found)) = self.cached.as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE) {
            return found.clone();
        }
        let result = match timeout(TIMEOUT, async { query_state(self.link.get().await?, store, &self.loop_health).await }).await {
            Ok(result) => result,
            Err(_) => Err(Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
        };
        self.log_change(result.as_ref().err());
        if result.is_err() {
            let fresh = self.link.another();
            std::mem::replace(&mut self.link, fresh).close().await;
        }
        let found = result.ok().map(Arc::new);
        self.cached = Some((Instant::now(), found.clone()));
        found
    }
}

impl CachedState {
    /// Logs when queries begin to fail, fail for a different reason, or succeed again. Repeated failures are not logged, because
    /// monitoring systems collect metrics frequently.
    fn log_change(&mut self, error: Option<&Error>) {
        let error = error.map(ToString::to_string);
        match (&self.last_error, &error) {
            (Some(before), Some(now)) if before == now => {}
            (_, Some(error)) => tracing::warn!(error, "cannot query the store for metrics: `queue_store_reachable` is 0"),
            (Some(_), None) => tracing::info!("the store can be queried for metrics again"),
            (None, None) => {}
        }
        self.last_error = error;
    }
}

async fn query_state(connection: &mut PgConnection, store: Store, loop_health: &LoopHealth) -> Result<StoreState, Error> {
    let jobs = Queue::on(&mut *connection).store(store).busiest(MAX_SERIES).await?;
    // The pause snapshot is dropped before the query, because a newer snapshot is not acknowledged while an older snapshot is in use.
    let paused = loop_health.paused().map_or(0, |paused| paused.whole_queues());
    let most = MAX_SERIES.saturating_add(u16::try_from(paused).unwrap_or(u16::MAX));
    let mut oldest = Queue::on(&mut *connection).store(store).oldest_of(most).await?;
    match loop_health.paused() {
        Some(paused) => keep_unpaused(&mut oldest, &paused),
        None => oldest.clear(),
    }
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/monitor_server.sql"))).bind(store.schema());
    let (days_ahead, snapshot_age, transaction_age) = statement.fetch_one(connection).await?;
    Ok(StoreState { jobs, oldest, days_ahead, snapshot_age, transaction_age })
}

/// Removes queues that are paused as a whole. Jobs in a paused queue wait by design, so their age does not indicate a lack of workers.
fn keep_unpaused(oldest: &mut Vec<Oldest>, paused: &PauseSnapshot) {
    oldest.retain(|oldest| !paused.covers_all_of(&oldest.queue));
    oldest.truncate(usize::from(MAX_SERIES));
}

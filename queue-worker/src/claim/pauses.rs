//! Loads pauses and limits before the first probe under each worker identity, on notification, and periodically. The poller closes paused
//! lanes and releases claimed jobs of these lanes that have not started. It acknowledges a pause once every claimer applies the pause.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::poller::Poller;
use crate::{
    error::warn_throttled,
    live::{LimitRow, PauseRow, bounded},
};

/// Maximum time between two loads of the pauses. Limits the delay after a lost notification.
const PAUSE_REFRESH: Duration = Duration::from_secs(3);

/// Row of `pauses.sql`: the highest pause number that the worker has acknowledged, and a pause or limit if there is any.
#[derive(sqlx::FromRow)]
struct PauseQueryRow {
    seen: i64,
    number: Option<i64>,
    queue: Option<String>,
    job_type: Option<String>,
    limit_id: Option<i64>,
    revision: Option<i64>,
    most: Option<i32>,
    timed: Option<bool>,
    keyed: Option<bool>,
}

impl PauseQueryRow {
    fn row(self) -> Option<PauseRow> {
        let limit = self.limit_id.map(|limit_id| LimitRow {
            limit_id,
            revision: self.revision.unwrap_or_default(),
            most: self.most,
            timed: self.timed.unwrap_or_default(),
            keyed: self.keyed.unwrap_or_default(),
        });
        Some(PauseRow { number: self.number?, queue: self.queue?, job_type: self.job_type?, limit })
    }
}

impl Poller {
    /// Loads pauses, and acknowledges the loaded pauses once every claimer applies them. Must run before each probe. Returns whether the
    /// set of pauses has changed.
    pub(super) async fn apply_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        self.declare_own_limits().await;
        let (is_notified, unread) = (self.context.notifier.take_control_change(), self.context.queues.pauses().now().is_none());
        let changed =
            if is_notified || unread || Instant::now() >= self.pause_watcher.refresh_at { self.load_pauses(worker).await? } else { false };
        if let Some(number) = self.pause_watcher.unacknowledged
            && self.context.queues.pauses().are_acknowledged()
        {
            let statement = sqlx::query(self.context.store.sql(include_str!("../../sql/acknowledge_pauses.sql"))).bind(worker).bind(number);
            let acknowledged = bounded(statement.execute(self.link.get().await?)).await;
            self.link.note(acknowledged)?;
            self.pause_watcher.unacknowledged = None;
        }
        Ok(changed)
    }

    /// Declares the limits of this worker's code. Does nothing after the first successful declaration. A failure delays only jobs under
    /// these limits.
    async fn declare_own_limits(&mut self) {
        if self.declare_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let done = match self.link.get().await {
            Ok(connection) => self.own_limits.declare(connection, self.context.store).await,
            Err(error) => Err(error),
        };
        match self.link.note(done) {
            Ok(()) => (self.declare_at, self.pause_watcher.refresh_at) = (None, Instant::now()),
            Err(error) => {
                warn_throttled(&error, "cannot declare the limits of this worker's code, so jobs under them wait; retrying");
                self.declare_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    async fn load_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        // The refresh becomes due before the query, so that the next poll iteration queries again if this query fails.
        self.pause_watcher.refresh_at = Instant::now();
        let statement = sqlx::query_as(self.context.store.sql(include_str!("../../sql/pauses.sql"))).bind(worker);
        let read: sqlx::Result<Vec<PauseQueryRow>> = bounded(statement.fetch_all(self.link.get().await?)).await;
        let read = self.link.note(read)?;
        let seen = read.first().map_or(0, |row| row.seen);
        let mut rows: Vec<PauseRow> = read.into_iter().filter_map(PauseQueryRow::row).collect();
        let newest = rows.iter().map(|row| row.number).max().unwrap_or(0);
        // Lanes under the worker's own limits stay closed until the limits are declared.
        if self.declare_at.is_some() {
            rows.extend(self.own_limits.scopes().map(|(queue, job_type)| PauseRow { number: 0, queue, job_type, limit: None }));
        }
        let paused = self.context.queues.pauses().read(rows);
        let changed = paused.is_some();
        if let Some(paused) = paused {
            self.context.queues.give_back_paused(&paused).await;
            self.lanes.pause(paused);
            self.claimers.show(&self.context, &self.lanes);
            // Requests a probe, because the change may have opened lanes that hold jobs.
            self.context.notifier.request_probe();
        }
        (self.pause_watcher.unacknowledged, self.pause_watcher.refresh_at) =
            ((seen < newest).then_some(newest), Instant::now() + PAUSE_REFRESH);
        Ok(changed)
    }
}

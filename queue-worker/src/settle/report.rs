//! Writes the progress reports and checkpoints of running jobs. One statement writes the changes of many jobs.
//!
//! Reports are written at intervals of at least 250 ms, or immediately if an attempt waits for a checkpoint or has ended. Reports are
//! collected while a statement is in flight, so jobs that end together share the next statement. A report is refused if the job's lease
//! is lost. Reports do not affect the state of a job.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Store,
    runner::{Report, ReportEntry, WriteResult},
};
use tokio::{
    sync::{Mutex, mpsc::UnboundedReceiver},
    time::timeout_at,
};
use uuid::Uuid;

use super::locked::load_lock_holder_pids;
use crate::{
    error::{is_locked, warn_throttled},
    live::{StoreConnection, bounded, jittered},
};

/// Minimum interval between statements while no report is urgent.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of jobs per statement.
const MAX_JOBS: usize = 500;

/// Maximum total checkpoint size in bytes per statement. A single larger checkpoint is sent alone.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Maximum number of times that a statement is sent while the database does not respond. Afterwards, checkpoints fail, and other reports
/// are sent again with their next change.
const MAX_TRIES: usize = 3;

/// Minimum delay before a statement is sent again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Retention of a finished job's progress, for clients that watch the job.
const RETENTION: Duration = Duration::from_mins(1);

/// Delay between the expiry of the oldest progress and its deletion, so that one statement deletes the progress of many jobs.
const DELETION_DELAY: Duration = Duration::from_secs(10);

/// Maximum number of finished jobs whose progress is kept.
const MAX_FINISHED: usize = 20_000;

/// Writes incoming reports until all senders are dropped.
pub(crate) async fn write_reports(incoming: Arc<Mutex<UnboundedReceiver<Arc<Report>>>>, mut connection: StoreConnection, store: Store) {
    let mut incoming = incoming.lock().await;
    let mut last_write: Option<Instant> = None;
    let mut finished = FinishedReports::default();
    let mut changed = Vec::new();
    loop {
        let received = match finished.next_deletion() {
            Some(due) => timeout_at(due.into(), incoming.recv()).await.ok(),
            None => Some(incoming.recv().await),
        };
        let Some(received) = received else {
            finished.clear_expired(&mut connection, store).await;
            continue;
        };
        let Some(first) = received else { break };
        let deadline = last_write.map_or_else(Instant::now, |last| last + WRITE_INTERVAL);
        changed.push(first);
        collect(&mut incoming, &mut changed, deadline).await;
        finished.add(&changed);
        if write(&mut connection, store, std::mem::take(&mut changed)).await {
            last_write = Some(Instant::now());
        }
        finished.clear_expired(&mut connection, store).await;
    }
    connection.close().await;
}

/// Collects reports until `deadline`, or until a collected report is urgent.
async fn collect(incoming: &mut UnboundedReceiver<Arc<Report>>, changed: &mut Vec<Arc<Report>>, deadline: Instant) {
    let mut checked = 0;
    loop {
        while let Ok(report) = incoming.try_recv() {
            changed.push(report);
        }
        if changed[checked..].iter().any(|report| report.is_urgent()) {
            return;
        }
        checked = changed.len();
        match timeout_at(deadline.into(), incoming.recv()).await {
            Ok(Some(report)) => changed.push(report),
            _ => return,
        }
    }
}

/// Writes the changes in the reports. Returns whether any report contained changes.
async fn write(connection: &mut StoreConnection, store: Store, reports: Vec<Arc<Report>>) -> bool {
    let mut entries: Vec<(Arc<Report>, ReportEntry)> =
        reports.into_iter().filter_map(|report| report.take().map(|entry| (report, entry))).collect();
    let has_changes = !entries.is_empty();
    while !entries.is_empty() {
        let mut bytes = 0;
        let fitting = entries.iter().take(MAX_JOBS).take_while(|(_, entry)| {
            bytes += entry.checkpoint.as_ref().map_or(0, String::len);
            bytes <= MAX_BYTES
        });
        let count = fitting.count().max(1);
        let rest = entries.split_off(count.min(entries.len()));
        write_batch(connection, store, std::mem::replace(&mut entries, rest)).await;
    }
    has_changes
}

/// Writes one batch. The statement is idempotent, so it is retried if the database does not respond.
async fn write_batch(connection: &mut StoreConnection, store: Store, mut entries: Vec<(Arc<Report>, ReportEntry)>) {
    let mut tries = 1;
    let accepted = loop {
        match send_reports(connection, store, &entries).await {
            Err(error) if is_locked(&error) && fail_locked(connection, store, &mut entries).await => {
                if entries.is_empty() {
                    return;
                }
            }
            Err(error) if tries < MAX_TRIES && error.as_database_error().is_none() => {
                tries += 1;
                tokio::time::sleep(jittered(RETRY_DELAY)).await;
            }
            Err(error) => {
                warn_throttled(&error, "writing reports of jobs failed; checkpoints fail, progress is written with the next report");
                break Err(queue_core::message(&error));
            }
            Ok(accepted) => break Ok(accepted),
        }
    };
    for (report, entry) in entries {
        let written = match &accepted {
            Ok(accepted) if accepted.contains(&(entry.fence.token, entry.fence.id)) => WriteResult::Yes,
            Ok(_) => WriteResult::Refused,
            Err(message) => WriteResult::Failed(message.clone()),
        };
        report.complete_write(entry, &written);
    }
}

/// Fails the reports whose leases are locked by an open transaction, and removes these reports from `entries`. Returns whether a lease is
/// locked.
async fn fail_locked(connection: &mut StoreConnection, store: Store, entries: &mut Vec<(Arc<Report>, ReportEntry)>) -> bool {
    let tokens = entries.iter().map(|(_, entry)| entry.fence.token).collect();
    let Ok(holders) = load_lock_holder_pids(connection, store, tokens).await else { return false };
    for (report, entry) in entries.extract_if(.., |(_, entry)| holders.contains_key(&entry.fence.token)) {
        let pid = &holders[&entry.fence.token];
        report.complete_write(entry, &WriteResult::Failed(format!("the open transaction of session {pid} has locked the job's lease")));
    }
    !holders.is_empty()
}

/// Sends one statement and returns the accepted reports.
async fn send_reports(
    connection: &mut StoreConnection,
    store: Store,
    entries: &[(Arc<Report>, ReportEntry)],
) -> sqlx::Result<HashSet<(Uuid, JobId)>> {
    let rows = || entries.iter().map(|(_, entry)| entry);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/record_progress.sql")))
        .bind(rows().map(|entry| entry.fence.token).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.fence.id).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.fence.attempt).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.fraction).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.stage.as_deref()).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.counts.as_str()).collect::<Vec<_>>())
        .bind(rows().map(|entry| entry.checkpoint.as_deref()).collect::<Vec<_>>());
    let accepted = bounded(statement.fetch_all(connection.get().await?)).await;
    Ok(connection.note(accepted)?.into_iter().collect())
}

/// Jobs whose attempt has ended and whose progress is stored, each with the end time of the attempt.
#[derive(Default)]
struct FinishedReports(VecDeque<(Instant, JobId)>);

impl FinishedReports {
    /// Adds the jobs whose attempt has ended according to `reports`.
    fn add(&mut self, reports: &[Arc<Report>]) {
        let now = Instant::now();
        self.0.extend(reports.iter().filter_map(|report| report.stale_row()).map(|id| (now, id)));
    }

    /// Returns the time of the next deletion, or `None` if no progress is stored.
    fn next_deletion(&self) -> Option<Instant> {
        self.0.front().map(|(ended_at, _)| *ended_at + RETENTION + DELETION_DELAY)
    }

    /// Removes and returns up to [`MAX_JOBS`] jobs whose progress has expired at `now`, or the oldest jobs beyond [`MAX_FINISHED`].
    fn take_expired(&mut self, now: Instant) -> Vec<JobId> {
        let expired = self.0.partition_point(|(ended_at, _)| *ended_at + RETENTION <= now);
        let count = expired.max(self.0.len().saturating_sub(MAX_FINISHED)).min(MAX_JOBS);
        self.0.drain(..count).map(|(_, id)| id).collect()
    }

    /// Deletes expired progress of finished jobs, and the oldest progress beyond [`MAX_FINISHED`] jobs. The row of an unfinished job is
    /// kept until a later attempt clears it. Rows that cannot be deleted are left to pruning.
    async fn clear_expired(&mut self, connection: &mut StoreConnection, store: Store) {
        let now = Instant::now();
        if self.0.len() <= MAX_FINISHED + MAX_JOBS && self.next_deletion().is_none_or(|due| now < due) {
            return;
        }
        loop {
            let ids = self.take_expired(now);
            if ids.is_empty() {
                return;
            }
            if let Err(error) = clear_progress(connection, store, &ids).await {
                warn_throttled(&error, "deleting progress of finished jobs failed; pruning will delete it");
            }
        }
    }
}

async fn clear_progress(connection: &mut StoreConnection, store: Store, ids: &[JobId]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/clear_progress.sql"))).bind(ids);
    let cleared = bounded(statement.execute(connection.get().await?)).await;
    connection.note(cleared).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_expired_and_surplus_progress_is_deleted() {
        let ended_at = Instant::now();
        let (later, now) = (ended_at + RETENTION / 2, ended_at + RETENTION);
        let finished = |expired: i64, recent: i64| {
            let expired = (0..expired).map(|id| (ended_at, JobId(id)));
            FinishedReports(expired.chain((0..recent).map(|id| (later, JobId(1_000_000 + id)))).collect())
        };
        for (name, expired, recent, taken) in [
            ("one of two has expired", 1, 1, 1),
            ("none has expired", 0, 3, 0),
            ("more than one statement deletes", 600, 3, 500),
            ("too many are kept", 0, 20_007, 7),
            ("too many, and more of them have expired", 30, 20_000, 30),
        ] {
            assert_eq!(finished(expired, recent).take_expired(now).len(), taken, "{name}");
        }
        assert_eq!(finished(1, 1).take_expired(now), [JobId(0)], "the oldest");
    }
}

//! Writes the outcome counts of this process's attempts in numbered batches, one every ten seconds. A process without attempts writes
//! nothing.
//!
//! A batch whose write failed is retried under the same number. The batch is therefore counted only once, even if the failed write was
//! committed. No job waits for a flush, and a failed flush affects no job.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use queue_core::{JobId, Store, registry::Registry};
use sqlx::{postgres::PgArguments, query::QueryScalar};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    buffer::MetricsBuffer,
    counts::{ALL_OTHERS, CounterRow, OutcomeCounters},
    fold::fold,
    roll_up::roll_up,
};
use crate::{
    error::warn_throttled,
    live::{StoreConnection, bounded},
};

/// Default interval between two flushes.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of separate batches while writing fails. Later counts are collected in one batch.
const MAX_PENDING: usize = 6;

/// Maximum age of a batch. Older batches are dropped, because the server may have deleted its record of an earlier write and would count
/// the batch twice.
const MAX_AGE: Duration = Duration::from_hours(12);

/// Numbered batch with the counts of one interval.
struct FlushBatch {
    number: i64,
    /// Middle of the interval in which the attempts were counted.
    at: Instant,
    rows: Vec<CounterRow>,
}

struct MetricsFlusher {
    metrics: MetricsBuffer,
    link: StoreConnection,
    store: Store,
    /// Id of this flusher, which makes its batch numbers unique.
    source: Uuid,
    number: i64,
    /// Start of the interval whose counts are still being recorded.
    since: Instant,
    pending: VecDeque<FlushBatch>,
    /// Registry that maps stored type names to current names.
    registry: Registry,
}

/// Writes the counts every `interval` until `closing` is cancelled, and then writes the remaining counts.
pub(crate) async fn flush_metrics(
    metrics: MetricsBuffer,
    link: StoreConnection,
    store: Store,
    registry: Registry,
    interval: Duration,
    closing: CancellationToken,
) {
    let (source, since, pending) = (Uuid::new_v4(), Instant::now(), VecDeque::new());
    let mut flusher = MetricsFlusher { metrics, link, store, source, number: 0, since, pending, registry };
    // The random pause distributes the writes of processes that started together.
    let mut pause = interval.mul_f64(0.5 + 0.5 * fastrand::f64());
    while tokio::time::timeout(pause, closing.cancelled()).await.is_err() {
        pause = interval;
        if flusher.flush().await {
            flusher.add_up_counts().await;
        }
    }
    flusher.flush().await;
    flusher.link.close().await;
}

impl MetricsFlusher {
    /// Writes all pending batches. Returns `true` if a batch was pending and no batch is left.
    async fn flush(&mut self) -> bool {
        if self.pending.len() < MAX_PENDING {
            self.make_batch().await;
        }
        let mut any = false;
        while let Some(batch) = self.pending.front() {
            if batch.at.elapsed() > MAX_AGE {
                tracing::error!(rows = batch.rows.len(), "dropped counts of attempts that could not be written for half a day");
            } else if let Err(error) = self.send().await {
                if !is_data_error(&error) {
                    warn_throttled(&error, "cannot write the counts of attempts for `history`; keeping them and retrying");
                    return false;
                }
                tracing::error!(error = queue_core::message(&error), "dropped counts of attempts: the server refuses them");
            }
            any = true;
            self.pending.pop_front();
        }
        any
    }

    /// Creates a batch from the counts recorded since the last call.
    async fn make_batch(&mut self) {
        let (mut snapshot, now) = (self.metrics.take(), Instant::now());
        let at = self.since + now.saturating_duration_since(self.since) / 2;
        self.since = now;
        if !snapshot.expired.is_empty() {
            let rows = self.load_types(&snapshot.expired).await;
            self.metrics.add_late(&rows);
            snapshot.rows.extend(rows);
        }
        if !snapshot.rows.is_empty() {
            self.number += 1;
            self.pending.push_back(FlushBatch { number: self.number, at, rows: fold(merge(snapshot.rows)) });
        }
    }

    /// Returns one row per queue and type of the expired jobs. An additional row counts the jobs whose type is unknown.
    async fn load_types(&mut self, expired: &[JobId]) -> Vec<CounterRow> {
        let row = |queue: String, job_type: String, expired| CounterRow {
            queue,
            job_type,
            counts: OutcomeCounters { expired, ..OutcomeCounters::default() },
        };
        let found = match self.link.get().await {
            Ok(connection) => {
                let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/types_of.sql"))).bind(expired);
                bounded(statement.fetch_all(connection)).await
            }
            Err(error) => Err(error),
        };
        let found: Vec<(String, String, i64)> = self.link.note(found).unwrap_or_else(|error| {
            warn_throttled(&error, "cannot load the types of expired jobs for `history`; counting them under `*`");
            Vec::new()
        });
        let present = |stored: String| self.registry.get(&stored).map_or(stored, |known| known.options().name.to_owned());
        let known: i64 = found.iter().map(|(.., jobs)| jobs).sum();
        let unknown = expired.len() as i64 - known;
        let rest = (unknown > 0).then(|| row(ALL_OTHERS.to_owned(), ALL_OTHERS.to_owned(), unknown));
        found.into_iter().map(|(queue, job_type, jobs)| row(queue, present(job_type), jobs)).chain(rest).collect()
    }

    /// Writes the oldest pending batch.
    async fn send(&mut self) -> sqlx::Result<()> {
        let Some(batch) = self.pending.front() else { return Ok(()) };
        let statement = bind(self.store.sql(include_str!("../../sql/tally.sql")), self.source, batch);
        let written = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        self.link.note(written).map(drop)
    }

    async fn add_up_counts(&mut self) {
        let added = match self.link.get().await {
            Ok(connection) => roll_up(connection, self.store).await,
            Err(error) => Err(error),
        };
        if let Err(error) = self.link.note(added) {
            warn_throttled(&error, "cannot add up the counts of attempts; retrying");
        }
    }
}

/// Returns whether the error means that the server rejects the data, so that a retry would also fail.
fn is_data_error(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

/// Merges rows with the same queue and type.
fn merge(rows: Vec<CounterRow>) -> Vec<CounterRow> {
    let mut merged: HashMap<(String, String), OutcomeCounters> = HashMap::with_capacity(rows.len());
    for CounterRow { queue, job_type, counts } in rows {
        merged.entry((queue, job_type)).or_default().add_all(&counts);
    }
    merged.into_iter().map(|((queue, job_type), counts)| CounterRow { queue, job_type, counts }).collect()
}

fn bind(statement: &'static str, source: Uuid, batch: &FlushBatch) -> QueryScalar<'static, sqlx::Postgres, i64, PgArguments> {
    let each = |count: fn(&OutcomeCounters) -> i64| batch.rows.iter().map(|row| count(&row.counts)).collect::<Vec<_>>();
    sqlx::query_scalar(statement)
        .bind(source)
        .bind(batch.number)
        .bind(batch.at.elapsed().as_secs_f64() * 1000.0)
        .bind(batch.rows.iter().map(|row| row.queue.clone()).collect::<Vec<_>>())
        .bind(batch.rows.iter().map(|row| row.job_type.clone()).collect::<Vec<_>>())
        .bind(each(|counts| counts.completed))
        .bind(each(|counts| counts.retried))
        .bind(each(|counts| counts.dead))
        .bind(each(|counts| counts.cancelled))
        .bind(each(|counts| counts.snoozed))
        .bind(each(|counts| counts.released))
        .bind(each(|counts| counts.expired))
        .bind(each(|counts| counts.lease_lost))
        .bind(each(|counts| counts.timed_out))
        .bind(each(|counts| counts.panicked))
        .bind(each(|counts| counts.crashed))
        .bind(batch.rows.iter().map(|row| row.counts.run.lengths.packed()).collect::<Vec<_>>())
        .bind(batch.rows.iter().map(|row| row.counts.start.lengths.packed()).collect::<Vec<_>>())
}

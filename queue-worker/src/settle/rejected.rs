//! Verdicts that the server rejects. Each rejected verdict is retried separately a few times. If all retries fail, its job becomes a dead
//! letter. Other verdicts do not wait.
//!
//! If the job already has another entry in the store, the job only leaves its lease and does not become a dead letter. The module
//! `verdicts` decides which verdicts count as rejected.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::HistoryOutcome};
use tokio::time::sleep_until;

use super::{
    send::{SettleNotifications, has_error_class, is_rejection, send_verdicts},
    settlement::Settlement,
};
use crate::{
    error::warn_throttled,
    live::{LoopHealth, Notifier, StoreConnection, bounded},
    tally::MetricsBuffer,
};

/// Number of rejected retries after which the job becomes a dead letter, if its verdict counts as the cause of the rejections. The retries
/// take about seven seconds. An operator may fix the cause during this time.
const MAX_RETRIES: u32 = 3;

/// Delay before the first retry. Each rejection doubles the delay, up to [`MAX_RETRY_DELAY`].
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Number of rejected verdicts at which the settle loop stops accepting verdicts. The jobs are then probably not the cause of the
/// rejections.
const MAX_REJECTED: usize = 1000;

/// SQLSTATE classes of errors that values of a verdict do not usually cause, such as a missing permission or a broken trigger. Such an
/// error is attributed to a verdict only if a later statement succeeds, because the database then works for other verdicts.
const STATEMENT_ERRORS: [&str; 1] = ["42"];

/// Rejected verdicts in order of rejection, with the state for their retries.
pub(super) struct RejectedVerdicts {
    rejected: VecDeque<RejectedVerdict>,
    /// Number of statements that the server has accepted so far.
    accepted: u64,
    /// Buffer in which attempts are counted once their verdicts are written.
    metrics: MetricsBuffer,
    health: LoopHealth,
    lease_ttl: Duration,
}

struct RejectedVerdict {
    settlement: Settlement,
    reason: String,
    retries: u32,
    next_retry: Instant,
    /// Value of `accepted` when a statement error occurred. The verdict counts as the cause only if `accepted` has grown since then.
    /// `None` if the error was not a statement error.
    accepted_before: Option<u64>,
}

#[derive(Clone, Copy)]
enum ParkResult {
    DeadLetter,
    /// The job already had another entry in the store, so no dead letter was written.
    Dropped,
    /// The lease no longer lists the job.
    LeaseLost,
}

impl RejectedVerdicts {
    pub(super) fn new(metrics: MetricsBuffer, health: LoopHealth, lease_ttl: Duration) -> Self {
        Self { rejected: VecDeque::new(), accepted: 0, metrics, health, lease_ttl }
    }

    /// Counts an accepted statement, and records the attempts of its verdicts. `is_lost` returns whether a verdict's lease is lost.
    pub(super) fn record_accepted<'a>(&mut self, verdicts: impl Iterator<Item = &'a Settlement>, is_lost: impl Fn(&Settlement) -> bool) {
        self.accepted += 1;
        self.metrics.record(verdicts.filter_map(|settlement| settlement.counted(is_lost(settlement))));
    }

    pub(super) fn health(&self) -> &LoopHealth {
        &self.health
    }

    pub(super) fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    pub(super) fn metrics(&self) -> &MetricsBuffer {
        &self.metrics
    }

    /// Adds a rejected verdict and schedules the first retry.
    pub(super) fn push(&mut self, settlement: Settlement, error: &sqlx::Error) {
        let reason = queue_core::message(error);
        let (job, verdict) = (settlement.id, settlement.ending.verdict_name());
        tracing::warn!(%job, verdict, error = reason, "verdict rejected by the server; retrying it, other verdicts are not affected");
        let accepted_before = has_error_class(error, &STATEMENT_ERRORS).then_some(self.accepted);
        let next_retry = Instant::now() + FIRST_RETRY_DELAY;
        self.rejected.push_back(RejectedVerdict { settlement, reason, retries: 0, next_retry, accepted_before });
    }

    /// Returns the time of the next retry, or `None` if there are no rejected verdicts.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.rejected.iter().map(|rejected| rejected.next_retry).min()
    }

    pub(super) fn is_full(&self) -> bool {
        self.rejected.len() >= MAX_REJECTED
    }

    pub(super) async fn wait_for_retry(&self) {
        if let Some(due) = self.next_retry() {
            sleep_until(due.into()).await;
        }
    }

    /// Retries the verdicts that are due. After [`MAX_RETRIES`] rejected retries, the job becomes a dead letter if its verdict counts as
    /// the cause of the rejections.
    pub(super) async fn retry_due(&mut self, connection: &mut StoreConnection, store: Store, notifier: &Notifier) {
        let now = Instant::now();
        for _ in 0..self.rejected.len() {
            let Some(rejected) = self.rejected.pop_front() else { break };
            if rejected.next_retry > now {
                self.rejected.push_back(rejected);
            } else if let Some(again) = self.retry_one(connection, store, notifier, rejected, MAX_RETRIES).await {
                self.rejected.push_back(again);
            }
        }
    }

    /// Retries each verdict one last time. If a verdict is rejected again and counts as the cause of the rejection, its job becomes a
    /// dead letter. Other verdicts that cannot be written are dropped, and their jobs are recovered.
    pub(super) async fn retry_finally(&mut self, connection: &mut StoreConnection, store: Store, notifier: &Notifier) {
        while let Some(rejected) = self.rejected.pop_front() {
            self.retry_one(connection, store, notifier, rejected, 0).await;
        }
    }

    /// Retries one verdict. Returns the verdict if another retry is necessary.
    async fn retry_one(
        &mut self,
        connection: &mut StoreConnection,
        store: Store,
        notifier: &Notifier,
        mut rejected: RejectedVerdict,
        max_retries: u32,
    ) -> Option<RejectedVerdict> {
        match send_verdicts(connection, store, &self.metrics, std::slice::from_ref(&rejected.settlement)).await {
            Ok(lost) => {
                self.record_accepted(std::iter::once(&rejected.settlement), |_| !lost.is_empty());
                SettleNotifications::of(std::slice::from_ref(&rejected.settlement), &[]).send(connection, store, notifier).await;
                return None;
            }
            Err(error) if is_rejection(&error) => {
                rejected.retries += 1;
                rejected.reason = queue_core::message(&error);
                let is_to_blame = rejected.accepted_before.is_none_or(|before| self.accepted > before);
                if rejected.retries >= max_retries && is_to_blame {
                    return self.park(connection, store, notifier, rejected).await;
                }
            }
            Err(error) => warn_throttled(&error, "settle failed; retrying"),
        }
        rejected.schedule_retry();
        Some(rejected)
    }

    /// Moves the job of a rejected verdict to the dead letters. If the database is unavailable, returns the verdict for another retry.
    async fn park(
        &mut self,
        connection: &mut StoreConnection,
        store: Store,
        notifier: &Notifier,
        mut rejected: RejectedVerdict,
    ) -> Option<RejectedVerdict> {
        let (job, verdict) = (rejected.settlement.id, rejected.settlement.ending.verdict_name());
        let error = rejected.reason.as_str();
        match write_parked(connection, store, &rejected).await {
            Ok(ParkResult::DeadLetter) => {
                let counted = rejected.settlement.counted(false);
                self.metrics.record(counted.into_iter().map(|(attempt, _, ran)| (attempt, HistoryOutcome::Dead, ran)));
                tracing::error!(%job, verdict, error, "job moved to the dead letters because its verdict cannot be stored; \
                    fix what rejects it, then requeue or discard the job");
            }
            Ok(ParkResult::Dropped) => {
                tracing::error!(%job, verdict, error, "verdict cannot be stored and was dropped; the job already has another entry");
            }
            Ok(ParkResult::LeaseLost) => return None,
            Err(failure) if is_rejection(&failure) => {
                let parking = queue_core::message(&failure);
                tracing::error!(%job, verdict, error, parking, "neither the verdict nor a dead letter can be stored; the job stays in its \
                    lease until this worker ends; fix what rejects them, then restart the worker");
                if let Some(lease) = &rejected.settlement.holding {
                    lease.give_up();
                }
                return None;
            }
            Err(failure) => {
                warn_throttled(&failure, "settle failed; retrying");
                rejected.schedule_retry();
                return Some(rejected);
            }
        }
        notifier.notify_keys();
        notifier.notify_finished();
        None
    }
}

impl RejectedVerdict {
    fn schedule_retry(&mut self) {
        self.next_retry = Instant::now() + FIRST_RETRY_DELAY.saturating_mul(1 << self.retries.min(10)).min(MAX_RETRY_DELAY);
    }
}

async fn write_parked(connection: &mut StoreConnection, store: Store, rejected: &RejectedVerdict) -> sqlx::Result<ParkResult> {
    let RejectedVerdict { settlement, reason, .. } = rejected;
    let verdict = settlement.ending.verdict_name();
    let error = match settlement.ending.error() {
        Some(failure) => format!("its verdict `{verdict}` cannot be stored: {reason}; the attempt failed: {failure}"),
        None => format!("its verdict `{verdict}` cannot be stored: {reason}"),
    };
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/park.sql")))
        .bind(settlement.token)
        .bind(settlement.id)
        .bind(settlement.lane)
        .bind(settlement.ending.attempt())
        .bind(settlement.crashes)
        .bind(error);
    let parked = bounded(statement.fetch_optional(connection.get().await?)).await;
    Ok(match connection.note(parked)? {
        Some(true) => ParkResult::DeadLetter,
        Some(false) => ParkResult::Dropped,
        None => ParkResult::LeaseLost,
    })
}

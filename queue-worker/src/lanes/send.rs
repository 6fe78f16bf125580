//! Sends claims. A claim without limits takes one round trip, and a claim under limits takes two round trips.

use std::time::{Duration, Instant};

use queue_core::Store;
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::{
    claim::{ClaimRequest, ClaimResponse, ClaimRows, ClaimSource},
    fair_progress::FairProgress,
    limit_outcome::{LimitOutcome, LimitRequest},
    limited_claim::{self, PermitClaim},
};
use crate::live::StoreConnection;

/// Result of a claim's first round trip. The result is not durable yet, so the claimed jobs must not start. The next claim can already be
/// sent.
pub(crate) struct ClaimReport {
    pub(crate) outcome: LimitOutcome,
    /// Number of returned jobs.
    pub(crate) count: usize,
    /// Maximum number of jobs that the claim may return.
    pub(crate) most: usize,
    /// Lane of each returned job.
    pub(crate) served: Vec<i64>,
    /// All requested lanes.
    pub(crate) lanes: Vec<i64>,
    /// Whether the claim ignored the floors and started at queue position zero.
    pub(crate) from_zero: bool,
    /// Leases with finished jobs that the claim reported, so that their permits become free.
    pub(crate) freed: Vec<Uuid>,
    /// Duration of the round trip. If it sent the first statement on a connection, [`PLANNING`] is deducted.
    pub(crate) took: Duration,
    pub(crate) progress: FairProgress,
}

impl ClaimReport {
    /// Creates the report of a claim without limits. The caller adds the jobs once the rows are read.
    pub(crate) fn of(request: &ClaimRequest, took: Duration) -> Self {
        Self {
            outcome: LimitOutcome::Open,
            count: 0,
            most: request.most,
            served: Vec::new(),
            lanes: request.shares.iter().map(|share| share.lane).collect(),
            from_zero: request.from == ClaimSource::Lanes { from_zero: true },
            freed: Vec::new(),
            took,
            progress: FairProgress::default(),
        }
    }
}

/// Planning time that is deducted from the duration of a connection's first statement.
const PLANNING: Duration = Duration::from_millis(20);

/// Creates the tracing span of a claim. The span is at level `debug`, because an idle worker sends one claim per poll.
fn claim_span() -> Span {
    tracing::debug_span!(
        target: "queue_worker::claim",
        "claim",
        otel.kind = "client",
        otel.status_description = Empty,
        messaging.system = "postgresql",
        messaging.operation.name = "claim",
        messaging.operation.type = "receive",
        messaging.batch.message_count = Empty,
    )
}

impl ClaimRequest {
    /// Sends the claim and waits for the rows, but does not decode them.
    pub(crate) async fn send(self, link: &mut StoreConnection, store: Store) -> ClaimResponse {
        self.traced(link, store, None::<fn(ClaimReport)>).await
    }

    /// Sends a claim that is subject to limits. Passes the result of the first round trip to `report` before the result is durable.
    pub(crate) async fn send_with_report(
        self,
        link: &mut StoreConnection,
        store: Store,
        report: impl FnOnce(ClaimReport),
    ) -> ClaimResponse {
        self.traced(link, store, Some(report)).await
    }

    async fn traced(self, link: &mut StoreConnection, store: Store, report: Option<impl FnOnce(ClaimReport)>) -> ClaimResponse {
        let span = claim_span();
        let answer = self.exchange(link, store, report).instrument(span.clone()).await;
        match &answer.rows {
            Ok(rows) => span.record("messaging.batch.message_count", rows.jobs.len()),
            Err(error) => span.record("otel.status_description", queue_core::message(error)),
        };
        answer
    }

    async fn exchange(self, link: &mut StoreConnection, store: Store, report: Option<impl FnOnce(ClaimReport)>) -> ClaimResponse {
        let sent = Instant::now();
        let (rows, took) = match link.get_since().await {
            Ok((connection, since, is_fresh)) => {
                let began = Instant::now();
                // The duration of the first statement on a connection includes planning, so it does not show how many index entries were
                // read.
                let took = || began.elapsed().saturating_sub(if is_fresh { PLANNING } else { Duration::ZERO });
                let rows = match &self.limits {
                    Some(limits) => {
                        let taken = limited_claim::take(connection, store, &self, limits, since).await;
                        self.confirm(connection, store, (limits, took()), taken, report).await
                    }
                    None => self.claim(connection, store).await,
                };
                (rows, took())
            }
            Err(error) => (Err(error), Duration::ZERO),
        };
        let rows = link.note(rows);
        ClaimResponse { request: self, rows, sent, took }
    }

    async fn confirm(
        &self,
        connection: &mut sqlx::PgConnection,
        store: Store,
        (limits, took): (&LimitRequest, Duration),
        taken: sqlx::Result<PermitClaim>,
        report: Option<impl FnOnce(ClaimReport)>,
    ) -> sqlx::Result<ClaimRows> {
        let taken = taken?;
        let Some(report) = report else { return taken.confirm(connection, store, self).await };
        report(ClaimReport {
            outcome: taken.outcome,
            count: taken.jobs.len(),
            most: self.most,
            served: taken.jobs.iter().map(|(_, lane, ..)| *lane).collect(),
            lanes: self.shares.iter().map(|share| share.lane).collect(),
            from_zero: self.from == ClaimSource::Limited { from_zero: true },
            freed: limits.freed.clone(),
            took,
            progress: self.progress(&taken.fair_jobs, &taken.reached, taken.jobs.len() < self.most && taken.outcome == LimitOutcome::Open),
        });
        Ok(ClaimRows { is_recorded: true, ..taken.confirm(connection, store, self).await? })
    }
}

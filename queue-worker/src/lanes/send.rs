//! Sending a claim: of lanes without limits in one round trip, under limits in two.

use std::time::{Duration, Instant};

use queue_core::Store;
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::{
    claim::{Answer, From, Request, Rows},
    limited::{self, Taken},
    reach::Reach,
    room::{Asked, Room},
};
use crate::live::Link;

/// What the first round trip of a claim under limits has taken, which is not on the disk yet. So nothing of it begins, but the next claim may be sent.
pub(crate) struct Said {
    pub(crate) room: Room,
    /// How many jobs, and how many were asked for.
    pub(crate) count: usize,
    pub(crate) most: usize,
    /// The lane of each, and those that were asked.
    pub(crate) served: Vec<i64>,
    pub(crate) lanes: Vec<i64>,
    /// Whether it took from anywhere, not from the floors on.
    pub(crate) from_zero: bool,
    /// The leases of which it was to say that jobs have ended.
    pub(crate) asked: Vec<Uuid>,
    /// How long it took, unless it was the first one of its connection.
    pub(crate) took: Duration,
    pub(crate) reach: Reach,
}

impl Said {
    /// The same of a claim without limits, which has not been looked through yet.
    pub(crate) fn of(request: &Request, took: Duration) -> Self {
        Self {
            room: Room::Open,
            count: 0,
            most: request.most,
            served: Vec::new(),
            lanes: request.shares.iter().map(|share| share.lane).collect(),
            from_zero: request.from == From::Lanes { from_zero: true },
            asked: Vec::new(),
            took,
            reach: Reach::default(),
        }
    }
}

/// So long the first statement of a connection may take for that alone.
const PLANNING: Duration = Duration::from_millis(20);

/// The span of one claim. At `debug`: a worker without jobs sends one a poll.
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

impl Request {
    /// Sends it, and waits for its rows, which are not looked at yet.
    pub(crate) async fn send(self, link: &mut Link, store: Store) -> Answer {
        self.traced(link, store, None::<fn(Said)>).await
    }

    /// The same of a claim under limits, which says what it has taken before that is on the disk.
    pub(crate) async fn send_and_say(self, link: &mut Link, store: Store, say: impl FnOnce(Said)) -> Answer {
        self.traced(link, store, Some(say)).await
    }

    async fn traced(self, link: &mut Link, store: Store, say: Option<impl FnOnce(Said)>) -> Answer {
        let span = claim_span();
        let answer = self.exchange(link, store, say).instrument(span.clone()).await;
        match &answer.rows {
            Ok(rows) => span.record("messaging.batch.message_count", rows.jobs.len()),
            Err(error) => span.record("otel.status_description", queue_core::message(error)),
        };
        answer
    }

    async fn exchange(self, link: &mut Link, store: Store, say: Option<impl FnOnce(Said)>) -> Answer {
        let asked = Instant::now();
        let (rows, took) = match link.get_since().await {
            Ok((connection, since, is_fresh)) => {
                let began = Instant::now();
                // The first statement of a connection plans, which says nothing about the tables.
                let took = || began.elapsed().saturating_sub(if is_fresh { PLANNING } else { Duration::ZERO });
                let rows = match &self.limits {
                    Some(limits) => {
                        let taken = limited::take(connection, store, &self, limits, since).await;
                        self.confirm(connection, store, (limits, took()), taken, say).await
                    }
                    None => self.claim(connection, store).await,
                };
                (rows, took())
            }
            Err(error) => (Err(error), Duration::ZERO),
        };
        let rows = link.note(rows);
        Answer { request: self, rows, asked, took }
    }

    async fn confirm(
        &self,
        connection: &mut sqlx::PgConnection,
        store: Store,
        (limits, took): (&Asked, Duration),
        taken: sqlx::Result<Taken>,
        say: Option<impl FnOnce(Said)>,
    ) -> sqlx::Result<Rows> {
        let taken = taken?;
        let Some(say) = say else { return taken.confirm(connection, store, self).await };
        say(Said {
            room: taken.room,
            count: taken.jobs.len(),
            most: self.most,
            served: taken.jobs.iter().map(|(_, lane, ..)| *lane).collect(),
            lanes: self.shares.iter().map(|share| share.lane).collect(),
            from_zero: self.from == From::Limited { from_zero: true },
            asked: limits.freed.clone(),
            took,
            reach: self.reach(&taken.in_lines, &taken.reached, taken.jobs.len() < self.most && taken.room == Room::Open),
        });
        Ok(Rows { is_noted: true, ..taken.confirm(connection, store, self).await? })
    }
}

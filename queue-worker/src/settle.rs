//! Writing verdicts: everything that came in while the last flush was in the air goes into the next.
//!
//! A settle is tried until the database answers. What it refuses is a lost lease, which is never an error of the job.

use std::{sync::Arc, time::Duration};

use queue_core::{JobId, Store, Verdict};
use sqlx::postgres::PgArguments;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    connect::{Link, bounded},
    error::transient,
    wake::Bell,
};

/// What is to be written for one claimed job.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) token: Uuid,
    pub(crate) id: JobId,
    pub(crate) lane: i64,
    pub(crate) attempt: i16,
    pub(crate) crashes: i16,
    pub(crate) verdict: Verdict,
    /// Whether a completed job leaves a record.
    pub(crate) keep: bool,
    pub(crate) ran: Duration,
    /// JSON text.
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
}

/// The most verdicts of one statement.
const MOST: usize = 1000;

/// Between tries while the database is away, with as much again of jitter, so that workers do not return as a herd.
const PAUSE: Duration = Duration::from_millis(250);

/// Settles what comes in until `closing` fires, and then what is in the channel still.
pub(crate) async fn settle_all(mut incoming: Receiver<Settlement>, mut link: Link, store: Store, bell: Arc<Bell>, closing: CancellationToken) {
    let mut batch = Vec::new();
    loop {
        let received = tokio::select! {
            biased;
            received = incoming.recv_many(&mut batch, MOST) => received,
            () = closing.cancelled(), if !incoming.is_closed() => {
                incoming.close();
                continue;
            }
        };
        if received == 0 {
            break;
        }
        settle(&mut link, store, &mut batch).await;
        if let Some(wait) = batch.iter().filter_map(Settlement::wait).min() {
            bell.due_in(wait);
        }
        batch.clear();
    }
    link.close().await;
}

impl Settlement {
    /// How long until this job is to be promoted, if it was put off.
    fn wait(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Retry(wait) | Verdict::Snooze(wait) => Some(wait),
            _ => None,
        }
    }

    /// The verdict's name in `settle.sql`.
    fn name(&self) -> &'static str {
        match self.verdict {
            Verdict::Complete if self.keep => "complete",
            Verdict::Complete => "forget",
            Verdict::Retry(_) => "retry",
            Verdict::Snooze(_) => "snooze",
            Verdict::Release => "release",
            Verdict::Cancel => "cancel",
            // What a newer core may add is at least kept for somebody to look at.
            _ => "dead",
        }
    }

    /// Without the texts that the database would not take.
    fn redact(&mut self) {
        self.output = None;
        self.error = self.error.is_some().then(|| "the text of this error cannot be stored".to_owned());
    }
}

/// Writes a batch, however often it must be sent. Texts that the database cannot take harm only themselves.
async fn settle(link: &mut Link, store: Store, batch: &mut [Settlement]) {
    let mut ambiguous = false;
    loop {
        match send(link, store, batch).await {
            Ok(lost) => return report(&lost, ambiguous),
            Err(error) if transient(&error) => {
                // The commit may have happened: what is refused at the next try may be what we wrote at this one.
                ambiguous = true;
                tracing::warn!(jobs = batch.len(), error = queue_core::message(&error), "cannot settle; trying again");
                tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
            }
            Err(error) if batch.len() > 1 => {
                tracing::warn!(jobs = batch.len(), error = queue_core::message(&error), "cannot settle together; settling one by one");
                for one in batch.chunks_mut(1) {
                    Box::pin(settle(link, store, one)).await;
                }
                return;
            }
            Err(error) => {
                let Some(one) = batch.first_mut() else { return };
                if one.output.is_none() && one.error.as_deref().is_none_or(|text| text.starts_with("the text of this error")) {
                    tracing::error!(job = %one.id, error = queue_core::message(&error), "cannot settle; the job will be recovered");
                    return;
                }
                tracing::warn!(job = %one.id, error = queue_core::message(&error), "cannot settle with its texts; leaving them out");
                one.redact();
            }
        }
    }
}

fn report(lost: &[(Uuid, JobId)], ambiguous: bool) {
    if !lost.is_empty() && !ambiguous {
        tracing::warn!(jobs = lost.len(), first = %lost[0].1, "lease lost: verdicts refused, others have these jobs");
    }
}

/// One statement; returns what was refused.
async fn send(link: &mut Link, store: Store, batch: &[Settlement]) -> sqlx::Result<Vec<(Uuid, JobId)>> {
    let statement = bind(store.sql(include_str!("../sql/settle.sql")), batch);
    let lost = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(lost)
}

type Refused = (Uuid, JobId);

fn bind<'q>(statement: &'static str, batch: &'q [Settlement]) -> sqlx::query::QueryAs<'q, sqlx::Postgres, Refused, PgArguments> {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    sqlx::query_as(statement)
        .bind(batch.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(batch.iter().map(Settlement::name).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.lane).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.attempt).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.crashes).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.wait().map_or(0.0, ms)).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| i32::try_from(s.ran.as_millis()).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.output.as_deref()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.error.as_deref()).collect::<Vec<_>>())
}

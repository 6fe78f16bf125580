//! Enqueues durable jobs, and sends signals to the jobs in transactions that stay open for a random time. Some transactions are rolled
//! back, and the outcome of others is unknown.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use queue_core::{Job as _, JobHandle, JobId, operate::SignalOutcome};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    DurableScale,
    work::{Parent, STRIDE},
};
use crate::chaos::server::{Database, url};

/// Maximum number of open sender transactions.
const SENDERS: u32 = 40;

/// Timeout for acquiring a connection, and for a send. For a send, the time for which its transaction stays open is added. Only a
/// connection whose traffic is dropped exceeds the timeout.
const ANSWER: Duration = Duration::from_secs(10);

/// Signal that a sender tried to send, with the outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSignal {
    pub(super) payload: u64,
    pub(super) outcome: SendOutcome,
}

/// Outcome of a send as known to the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SendOutcome {
    Acked,
    RolledBack,
    /// The receiving job had already finished when the signal was sent.
    Over,
    Unknown,
}

/// Creates the connection pool of the senders, which connects through their proxy.
pub(super) fn pool(port: u16, database: &str) -> Result<PgPool> {
    let options = url(port, database).parse::<sqlx::postgres::PgConnectOptions>()?.application_name("producer");
    Ok(PgPoolOptions::new().max_connections(SENDERS).acquire_timeout(ANSWER).connect_lazy_with(options))
}

/// Enqueues all jobs evenly over the time span, and sends signals to each job at random times.
pub(super) async fn produce(database: Database, pool: PgPool, seed: u64, size: DurableScale) -> Result<Vec<SentSignal>> {
    let mut rng = Rng::with_seed(seed ^ 0x5157);
    let (began, mut senders, mut sent) = (Instant::now(), JoinSet::new(), Vec::new());
    for nr in 1..=size.parents {
        sleep_until(began + size.span.mul_f64(nr as f64 / size.parents as f64)).await;
        let parent = Parent { n: nr * STRIDE, ms: rng.u64(1..15), signals: size.signals, parts: size.parts };
        let job = enqueue(&database, parent).await?;
        for which in 0..=size.signals {
            // The last signal may arrive after the wait for it has timed out. In one of four cases, it is never sent.
            if which == size.signals && rng.u8(0..4) == 0 {
                continue;
            }
            let one = SignalSender {
                job,
                name: if which < size.signals { "go" } else { "late" },
                held: size.held,
                base: (nr * STRIDE + u64::from(which)) * STRIDE,
            };
            senders.spawn(one.send(pool.clone(), rng.fork()));
        }
    }
    while let Some(done) = senders.join_next().await {
        sent.extend(done??);
    }
    Ok(sent)
}

/// Enqueues the job exactly once, even if the server crashes.
async fn enqueue(database: &Database, parent: Parent) -> Result<JobId> {
    let there = format!("select id from queue.job where payload @> '{{\"n\": {}}}'", parent.n);
    let mut parent = Some(parent);
    loop {
        let found: sqlx::Result<Option<i64>> = sqlx::query_scalar(sqlx::AssertSqlSafe(there.clone())).fetch_optional(&database.pool).await;
        match (found, parent.take()) {
            (Ok(Some(id)), _) => return Ok(JobId(id)),
            (Ok(None), Some(job)) => {
                let again = Parent { ..job };
                match job.enqueue(&database.pool).await {
                    Ok(enqueued) => return Ok(enqueued.id()),
                    Err(_) => parent = Some(again),
                }
            }
            (_, job) => parent = job,
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sender of one signal that a job waits for.
struct SignalSender {
    job: JobId,
    name: &'static str,
    held: Duration,
    /// Payload of the first send.
    base: u64,
}

impl SignalSender {
    /// Sends the signal until a send is acknowledged or the job has finished. Each send uses a new payload.
    async fn send(self, pool: PgPool, mut rng: Rng) -> Result<Vec<SentSignal>> {
        let mut sent = Vec::new();
        sleep(Duration::from_millis(rng.u64(0..2000))).await;
        for payload in self.base..self.base + STRIDE {
            let open = match rng.u8(0..50) {
                0 => self.held.mul_f64(rng.f64()),
                1..10 => Duration::from_millis(rng.u64(0..2000)).min(self.held),
                _ => Duration::from_millis(rng.u64(0..200)),
            };
            let rolls_back = rng.u8(0..10) == 0;
            let outcome = match timeout(open + ANSWER, self.once(&pool, payload, open, rolls_back)).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => SendOutcome::Unknown,
            };
            sent.push(SentSignal { payload, outcome });
            match outcome {
                SendOutcome::Acked | SendOutcome::Over => return Ok(sent),
                SendOutcome::RolledBack => {}
                SendOutcome::Unknown => sleep(Duration::from_millis(100)).await,
            }
        }
        ensure!(false, "a signal could not be sent");
        Ok(sent)
    }

    async fn once(&self, pool: &PgPool, payload: u64, open: Duration, rolls_back: bool) -> Result<SendOutcome> {
        let mut tx = pool.begin().await?;
        let outcome = JobHandle::<Parent>::from_id(self.job).signal(&mut tx, self.name, &payload).await?;
        sleep(open).await;
        if rolls_back {
            tx.rollback().await?;
            return Ok(SendOutcome::RolledBack);
        }
        tx.commit().await?;
        Ok(match outcome {
            SignalOutcome::Sent => SendOutcome::Acked,
            _ => SendOutcome::Over,
        })
    }
}

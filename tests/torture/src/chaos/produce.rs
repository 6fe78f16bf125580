//! Producer process of a chaos run. Enqueues one or several jobs per transaction. Some transactions are committed late, and some are
//! rolled back.

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::Result;
use fastrand::Rng;
use queue_core::{IntoConnection, Job};
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::{
    history::{History, Line},
    limited::{key, queue},
    work::{Behaviour, Chaos, ChaosBatch, own_file, setting},
};

/// Size of the range of job numbers reserved for one producer.
pub(super) const RANGE: u64 = 1_000_000_000;

/// Offset in a producer's range at which the numbers of batch jobs begin.
const BATCHED: u64 = 500_000_000;

/// Returns whether the job with number `n` has a batch handler.
pub(super) fn is_batched(n: u64) -> bool {
    n % RANGE >= BATCHED
}

/// Entry point of a producer process.
pub(super) fn main() -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(produce())
}

async fn produce() -> Result<()> {
    let (slot, jobs) = (setting("CHAOS_SLOT", 0_u64), setting("CHAOS_JOBS", 0_u64));
    let ends = Instant::now();
    let span = Duration::from_millis(setting("CHAOS_SPAN_MS", 0));
    let options = env::var("DATABASE_URL")?;
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect_lazy(&options)?;
    let producer = Producer { pool, history: History::open(&own_file("history"))? };
    let mut rng = Rng::with_seed(setting("CHAOS_SEED", 0_u64) ^ (slot + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut next = 0;
    while next < jobs {
        let count = if rng.u8(..) < 150 { 1 } else { rng.u64(2..=10) }.min(jobs - next);
        let batch: Vec<DrawnJob> = (next..next + count).map(|i| draw(&mut rng, (slot + 1) * RANGE + i)).collect();
        let end = TransactionEnd::draw(&mut rng);
        next += count;
        let good = producer.enqueue(batch, end).await;
        // The jobs are spread evenly over the time during which faults are injected.
        let due = span.mul_f64(next as f64 / jobs as f64);
        let pause = due.saturating_sub(ends.elapsed()).max(if good { Duration::ZERO } else { Duration::from_millis(100) });
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// End of a producer's transaction.
#[derive(Clone, Copy, PartialEq)]
enum TransactionEnd {
    Commit,
    /// Commits after this number of milliseconds, so that workers meanwhile claim jobs with higher positions.
    CommitLate(u64),
    RollBack,
}

impl TransactionEnd {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..100) {
            0..3 => Self::RollBack,
            3..10 => Self::CommitLate(rng.u64(100..800)),
            _ => Self::Commit,
        }
    }
}

/// Randomly chosen job, with its optional start deadline.
struct DrawnJob {
    n: u64,
    ms: u64,
    act: Behaviour,
    expires_in: Option<Duration>,
}

impl DrawnJob {
    async fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Result<(), queue_core::Error> {
        let Self { n, ms, act, expires_in } = self;
        let options = (queue(n), key(n), expires_in);
        if is_batched(n) { put(ChaosBatch { n, ms, act }, on, options).await } else { put(Chaos { n, ms, act }, on, options).await }
    }
}

async fn put<'c, J: Job>(
    job: J,
    on: impl IntoConnection<'c>,
    (queue, key, expires_in): (&str, Option<u64>, Option<Duration>),
) -> Result<(), queue_core::Error> {
    let enqueue = job.enqueue(on).queue(queue);
    let enqueue = match key {
        Some(key) => enqueue.fair(key.to_string()),
        None => enqueue,
    };
    match expires_in {
        Some(wait) => enqueue.expires_in(wait).await.map(drop),
        None => enqueue.await.map(drop),
    }
}

fn draw(rng: &mut Rng, n: u64) -> DrawnJob {
    let ms = if rng.u8(0..20) < 3 { rng.u64(100..400) } else { rng.u64(1..40) };
    // Half of the deadlines are so short that they may pass during a claim. The others may pass during a fault.
    let expires_in = (rng.u8(0..8) == 0).then(|| Duration::from_millis(if rng.bool() { rng.u64(5..60) } else { rng.u64(60..3000) }));
    if rng.u8(0..10) < 3 {
        let act = match rng.u8(0..100) {
            0 => Behaviour::Poison,
            1..12 => Behaviour::FailOnce,
            _ => Behaviour::Wait,
        };
        return DrawnJob { n: n + BATCHED, ms, act, expires_in };
    }
    let act = match rng.u8(0..10) {
        0..4 => Behaviour::Wait,
        4..7 => Behaviour::Say,
        7..9 => Behaviour::Enter,
        _ => Behaviour::FailOnce,
    };
    DrawnJob { n, ms, act, expires_in }
}

struct Producer {
    pool: PgPool,
    history: History,
}

impl Producer {
    /// Enqueues the jobs in one transaction. Records the job numbers before the transaction and the outcome afterwards. Returns whether the
    /// outcome is known.
    async fn enqueue(&self, batch: Vec<DrawnJob>, end: TransactionEnd) -> bool {
        let numbers: Vec<u64> = batch.iter().map(|job| job.n).collect();
        for n in &numbers {
            self.history.write(&Line::Attempted(*n));
        }
        let sent = self.send(batch, end).await;
        if sent.is_ok() {
            let line = |n| if end == TransactionEnd::RollBack { Line::RolledBack(n) } else { Line::Acked(n) };
            for n in numbers {
                self.history.write(&line(n));
            }
        }
        sent.is_ok()
    }

    async fn send(&self, mut batch: Vec<DrawnJob>, end: TransactionEnd) -> Result<()> {
        if end == TransactionEnd::Commit
            && batch.len() == 1
            && let Some(job) = batch.pop()
        {
            job.enqueue(&self.pool).await?;
            return Ok(());
        }
        let mut tx = self.pool.begin().await?;
        for job in batch {
            job.enqueue(&mut tx).await?;
        }
        match end {
            TransactionEnd::RollBack => tx.rollback().await?,
            TransactionEnd::Commit => tx.commit().await?,
            TransactionEnd::CommitLate(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                tx.commit().await?;
            }
        }
        Ok(())
    }
}

//! Durable job types of a chaos run: a parent that uses most durable operations, its children, and a job whose code changes while the job
//! sleeps.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, JobResult, durable::Durable, job};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::chaos::{
    history::{DurableAction, History, Line},
    work::{history, setting},
};

/// Distance between the numbers of two consecutive parents. The numbers of a parent's children and parts follow the parent's number.
pub(super) const STRIDE: u64 = 1000;

/// Number of step transactions per job. Each of them writes one entry to the ledger.
pub(super) const EFFECTS: u64 = 2;

/// Returns the ledger entry for effect `which` of job `n`.
pub(super) fn effect(n: u64, which: u64) -> i64 {
    (n * EFFECTS + which).cast_signed()
}

/// Parent job that uses most durable operations: steps, step transactions, a sleep, signals, a child and a map.
#[job(name = "chaos_parent", durable, queue = "durable", max_attempts = 1000, backoff = fixed("100ms"), timeout = "60s")]
#[derive(Serialize, Deserialize)]
pub(in crate::chaos) struct Parent {
    pub(super) n: u64,
    /// Duration of the first step in milliseconds. The second step takes twenty times as long, and the sleep a hundred times as long.
    pub(super) ms: u64,
    pub(super) signals: u32,
    pub(super) parts: u64,
}

impl Handler for Parent {
    async fn run(self, cx: &Durable) -> JobResult {
        let Self { n, ms, signals, parts } = self;
        let log = AttemptHistory::open(n, cx)?;
        cx.step("one", log.work("one", ms)).await?;
        cx.step("two", log.work("two", 20 * ms)).await?;
        cx.step_tx("book", async |tx| enter(tx, n, 0).await).await?;
        cx.sleep("nap", Duration::from_millis(100 * ms)).await;
        for i in 0..signals {
            let come: u64 = cx.receive(("go", i)).await;
            log.record(DurableAction::Heard(format!("go/{i}"), Some(come)));
        }
        let late: Option<u64> = cx.receive("late").timeout(Duration::from_millis(100 * ms)).await;
        log.record(DurableAction::Heard("late".to_owned(), late));
        let child = cx.spawn("child", Leaf { n: n + 1, ms }).await?;
        log.record(DurableAction::Joins("child".to_owned()));
        match child.join().await {
            Ok(number) if number != n + 1 => return Err(Failure::terminal(format!("the child of {n} returned {number}"))),
            // A child whose process was killed three times is expected to become a dead letter.
            Err(failure) if !failure.to_string().contains("the process ended during the attempt") => return Err(failure),
            Ok(_) | Err(_) => log.record(DurableAction::Joined("child".to_owned())),
        }
        let leaves = (2..2 + parts).map(move |nr| Leaf { n: n + nr, ms });
        let parts_ = cx.map("parts", leaves).in_flight(2).await?;
        log.record(DurableAction::Joins("parts".to_owned()));
        let ended = parts_.join().await?;
        log.record(DurableAction::Joined("parts".to_owned()));
        if (ended.total, ended.completed + ended.dead) != (parts, parts) {
            return Err(Failure::terminal(format!("{} parts of {n}, {} completed, {} dead", ended.total, ended.completed, ended.dead)));
        }
        cx.step_tx("close", async |tx| enter(tx, n, 1).await).await?;
        cx.step("three", log.work("three", ms)).await?;
        Ok(())
    }
}

/// Child job, or part of a map. Every fifth job fails on the first attempt.
#[job(name = "chaos_leaf", queue = "durable", max_attempts = 1000, backoff = fixed("100ms"), timeout = "60s", output = u64)]
#[derive(Serialize, Deserialize)]
pub(in crate::chaos) struct Leaf {
    n: u64,
    ms: u64,
}

impl Handler for Leaf {
    async fn run(self, cx: &Context) -> JobResult<u64> {
        history()?.write(&Line::Start(self.n, cx.id().0, cx.attempt()));
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        if self.n.is_multiple_of(5) && cx.attempt() == 1 {
            return Err("intentional failure".into());
        }
        Ok(self.n)
    }
}

/// Job that falls asleep in release 1 and wakes in release 2. Release 2 has the steps in a different order, and it has one more step.
#[job(name = "chaos_sleeper", durable, queue = "durable", max_attempts = 1000, backoff = fixed("100ms"), timeout = "60s")]
#[derive(Serialize, Deserialize)]
pub(in crate::chaos) struct Sleeper {
    n: u64,
    ms: u64,
}

impl Handler for Sleeper {
    async fn run(self, cx: &Durable) -> JobResult {
        let Self { n, ms } = self;
        let log = AttemptHistory::open(n, cx)?;
        let (one, two, three) = (log.work("one", 0), log.work("two", 0), log.work("three", 0));
        if setting("CHAOS_RELEASE", 1) == 1 {
            cx.step("one", one).await?;
            cx.step_tx("book", async |tx| enter(tx, n, 0).await).await?;
            cx.sleep("night", Duration::from_millis(ms)).await;
            cx.step_tx("close", async |tx| enter(tx, n, 1).await).await?;
            cx.step("two", two).await?;
            cx.step("three", three).await?;
        } else {
            let close = cx.step_tx("close", async |tx| enter(tx, n, 1).await);
            tokio::try_join!(cx.step("three", three), close)?;
            cx.step("two", two).await?;
            cx.step_tx("book", async |tx| enter(tx, n, 0).await).await?;
            cx.step("added", log.work("added", 0)).await?;
            cx.sleep("night", Duration::from_millis(ms)).await;
            cx.step("one", one).await?;
        }
        Ok(())
    }
}

/// Writes an effect to the ledger. No other code writes to this table, and it has no unique key. Only the transaction that journals the
/// step prevents duplicates.
async fn enter(on: &mut PgConnection, n: u64, which: u64) -> Result<(), sqlx::Error> {
    sqlx::query("insert into ledger (n) values ($1)").bind(effect(n, which)).execute(on).await.map(drop)
}

/// Recorder that writes the actions of one attempt to the history.
struct AttemptHistory<'a> {
    n: u64,
    cx: &'a Durable,
    history: &'static History,
}

impl<'a> AttemptHistory<'a> {
    fn open(n: u64, cx: &'a Durable) -> JobResult<Self> {
        let history = history()?;
        history.write(&Line::Start(n, cx.id().0, cx.attempt()));
        Ok(Self { n, cx, history })
    }

    fn record(&self, did: DurableAction) {
        self.history.write(&Line::DurableAction(self.n, self.cx.attempt(), did));
    }

    /// Records an external effect in the history, then sleeps. The sleep gives faults time to end the process before the step is
    /// journaled.
    async fn work(&self, step: &'static str, ms: u64) -> JobResult<u64> {
        self.record(DurableAction::Works(step.to_owned(), self.cx.key(step)));
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(self.n)
    }
}

//! W5: draining the first of many. What lies behind them, be it ready, for later or for others, must not cost anything.

use std::time::Duration;

use queue_core::Job as _;

use super::{
    BenchError, Plan, Say,
    drain::{drain, fill_and_drain},
    ground::{Expected, Ground},
    job::{Noop, Unserved},
    process::Shape,
    report::Record,
};

/// W5: the first 20,000 jobs, alone, with 1,000,000 ready behind them, with 1,000,000 scheduled for later, and with 1,000,000 in the same queue
/// that this worker does not serve.
pub(super) async fn run(ground: &Ground, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let (first, behind) = (plan.jobs(20_000), plan.jobs(1_000_000));
    // Before each of them: a machine that is busy for a while must not pass for a queue that is slow.
    let mut alone = by_themselves(ground, plan.runs, first).await?;
    let ready = with_ready_behind(ground, plan.runs, first, behind).await?;
    alone.extend(by_themselves(ground, plan.runs, first).await?);
    let scheduled = with_scheduled(ground, plan.runs, first, behind).await?;
    alone.extend(by_themselves(ground, plan.runs, first).await?);
    let unserved = with_unserved(ground, plan.runs, first, behind).await?;
    say.figure(Record::new("W5", "line, W3 of as many", "jobs/s", alone.clone()))?;
    say.figure(Record::new("W5", "ready behind", "jobs/s", ready).against(&alone))?;
    say.figure(Record::new("W5", "scheduled", "jobs/s", scheduled).against(&alone))?;
    say.figure(Record::new("W5", "unserved", "jobs/s", unserved).against(&alone))
}

async fn by_themselves(ground: &Ground, runs: usize, jobs: u64) -> Result<Vec<f64>, BenchError> {
    let mut rates = Vec::new();
    for _ in 0..runs {
        rates.push(fill_and_drain(ground, "W5", Shape::Defaults, jobs).await?.rate);
    }
    Ok(rates)
}

/// One fill serves all runs: each takes the next ones, and its worker gives back what it had begun beyond them.
async fn with_ready_behind(ground: &Ground, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let from = ground.reset().await?;
    let all = runs as u64 * first + behind;
    ground.fill(all).await?;
    let (mut rates, mut completed) = (Vec::new(), 0);
    for _ in 0..runs {
        let drained = drain(ground, Shape::Defaults, from, completed, first).await?;
        rates.push(drained.rate);
        completed += drained.seen.runs;
        let expected = Expected { completed, ready: all.saturating_sub(completed), ..Expected::default() };
        ground.check("W5", from, expected, None).await?;
        if drained.seen.runs != drained.seen.distinct {
            return Err(ground.wrong("W5", format!("{} jobs ran, in {} runs", drained.seen.distinct, drained.seen.runs)));
        }
    }
    Ok(rates)
}

async fn with_scheduled(ground: &Ground, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let start = ground.reset().await?;
    ground.fill_later(behind, Duration::from_hours(24)).await?;
    let mut rates = Vec::new();
    for run in 1..=runs as u64 {
        let from = ground.next_id().await?;
        ground.fill(first).await?;
        let drained = drain(ground, Shape::Defaults, from, 0, first).await?;
        ground.check("W5", from, Expected { completed: first, ..Expected::default() }, Some(&drained.seen)).await?;
        ground.check("W5", start, Expected { completed: run * first, scheduled: behind, ready: 0 }, None).await?;
        rates.push(drained.rate);
    }
    Ok(rates)
}

async fn with_unserved(ground: &Ground, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let start = ground.reset().await?;
    Unserved::enqueue_all((0..behind).map(|n| Unserved(Noop::numbered(n))), ground.pool()).await?;
    let mut rates = Vec::new();
    for run in 1..=runs as u64 {
        let from = ground.next_id().await?;
        ground.fill(first).await?;
        let drained = drain(ground, Shape::Defaults, from, 0, first).await?;
        ground.check("W5", from, Expected { completed: first, ..Expected::default() }, Some(&drained.seen)).await?;
        ground.check("W5", start, Expected { completed: run * first, ready: behind, scheduled: 0 }, None).await?;
        rates.push(drained.rate);
    }
    Ok(rates)
}

//! W5: drains the first jobs of a large store. The other jobs in the store must not slow down the drain.

use std::time::Duration;

use queue_core::Job as _;

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    drain::{drain, fill_and_drain},
    job::{Noop, Unserved},
    process::Shape,
    report::Record,
};

/// W5: drains 20,000 jobs alone, then with 1,000,000 additional jobs in the store. Three cases are measured: the additional jobs
/// are ready behind the drained jobs, scheduled for later, or in the same queue but of a type that the worker does not serve.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let (first, behind) = (plan.jobs(20_000), plan.jobs(1_000_000));
    // The baseline is measured before each case, so that a temporarily busy machine is not mistaken for a slow queue.
    let mut alone = by_themselves(database, plan.runs, first).await?;
    let ready = with_ready_behind(database, plan.runs, first, behind).await?;
    alone.extend(by_themselves(database, plan.runs, first).await?);
    let scheduled = with_scheduled(database, plan.runs, first, behind).await?;
    alone.extend(by_themselves(database, plan.runs, first).await?);
    let unserved = with_unserved(database, plan.runs, first, behind).await?;
    sink.figure(Record::new("W5", "line, W3 of as many", "jobs/s", alone.clone()))?;
    sink.figure(Record::new("W5", "ready behind", "jobs/s", ready).against(&alone))?;
    sink.figure(Record::new("W5", "scheduled", "jobs/s", scheduled).against(&alone))?;
    sink.figure(Record::new("W5", "unserved", "jobs/s", unserved).against(&alone))
}

async fn by_themselves(database: &BenchDatabase, runs: usize, jobs: u64) -> Result<Vec<f64>, BenchError> {
    let mut rates = Vec::new();
    for _ in 0..runs {
        rates.push(fill_and_drain(database, "W5", Shape::Defaults, jobs).await?.rate);
    }
    Ok(rates)
}

/// Drains at least `first` jobs per run. At least about `behind` other jobs are ready behind them. The store is filled once for all runs.
/// The worker runs further jobs until it is stopped, and then releases the claimed jobs that have not run.
async fn with_ready_behind(database: &BenchDatabase, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let from = database.reset().await?;
    let all = runs as u64 * first + behind;
    database.fill(all).await?;
    let (mut rates, mut completed) = (Vec::new(), 0);
    for _ in 0..runs {
        let drained = drain(database, Shape::Defaults, from, completed, first).await?;
        rates.push(drained.rate);
        completed += drained.seen.runs;
        let expected = Expected { completed, ready: all.saturating_sub(completed), ..Expected::default() };
        database.check("W5", from, expected, None).await?;
        if drained.seen.runs != drained.seen.distinct {
            return Err(database.wrong_result("W5", format!("{} jobs ran, in {} runs", drained.seen.distinct, drained.seen.runs)));
        }
    }
    Ok(rates)
}

async fn with_scheduled(database: &BenchDatabase, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let start = database.reset().await?;
    database.fill_later(behind, Duration::from_hours(24)).await?;
    let mut rates = Vec::new();
    for run in 1..=runs as u64 {
        let from = database.next_id().await?;
        database.fill(first).await?;
        let drained = drain(database, Shape::Defaults, from, 0, first).await?;
        database.check("W5", from, Expected { completed: first, ..Expected::default() }, Some(&drained.seen)).await?;
        database.check("W5", start, Expected { completed: run * first, scheduled: behind, ready: 0 }, None).await?;
        rates.push(drained.rate);
    }
    Ok(rates)
}

async fn with_unserved(database: &BenchDatabase, runs: usize, first: u64, behind: u64) -> Result<Vec<f64>, BenchError> {
    let start = database.reset().await?;
    Unserved::enqueue_all((0..behind).map(|n| Unserved(Noop::numbered(n))), database.pool()).await?;
    let mut rates = Vec::new();
    for run in 1..=runs as u64 {
        let from = database.next_id().await?;
        database.fill(first).await?;
        let drained = drain(database, Shape::Defaults, from, 0, first).await?;
        database.check("W5", from, Expected { completed: first, ..Expected::default() }, Some(&drained.seen)).await?;
        database.check("W5", start, Expected { completed: run * first, ready: behind, scheduled: 0 }, None).await?;
        rates.push(drained.rate);
    }
    Ok(rates)
}

//! W3 drains ready jobs with one worker process. W6 measures the cost of a job in W3.

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    job::unix_ns,
    line::ClaimLoop,
    measure::{Cost, Moment, per_job},
    process::{RunCounts, Shape, WorkerProcess},
    report::Record,
};

/// Result of draining a queue.
pub(crate) struct DrainResult {
    /// Jobs per second, from the first line of the first handler until the last job was durably completed.
    pub(crate) rate: f64,
    /// Resources used while the worker process existed. `client` is the CPU time of the worker.
    pub(crate) cost: Cost,
    /// Counts reported by the worker process.
    pub(crate) seen: RunCounts,
}

/// Starts a worker process, waits until the process has durably completed `jobs` jobs, and stops the process. `before` is the number of
/// jobs with an id of at least `from` that had already completed.
pub(crate) async fn drain(database: &BenchDatabase, shape: Shape, from: i64, before: u64, jobs: u64) -> Result<DrainResult, BenchError> {
    let begin = Moment::now(database).await?;
    let mut worker = WorkerProcess::start(database, shape, jobs)?;
    let first = worker.reached().await?;
    database.until_completed(from, before + jobs).await?;
    let elapsed_ns = unix_ns().saturating_sub(first);
    let cpu = worker.cpu();
    let seen = worker.stop().await?;
    database.until_alone().await?;
    let cost = Cost { client: cpu, ..begin.cost(database).await? };
    Ok(DrainResult { rate: jobs as f64 * 1e9 / elapsed_ns as f64, cost, seen })
}

/// Fills an empty store with `jobs` jobs and drains all of them.
pub(crate) async fn fill_and_drain(
    database: &BenchDatabase,
    workload: &'static str,
    shape: Shape,
    jobs: u64,
) -> Result<DrainResult, BenchError> {
    fill_by_and_drain(database, workload, shape, async || database.fill(jobs).await, (jobs, jobs)).await
}

/// Fills an empty store with `all` jobs by calling `fill`. Then drains `jobs` jobs. The other jobs stay ready.
pub(crate) async fn fill_by_and_drain(
    database: &BenchDatabase,
    workload: &'static str,
    shape: Shape,
    fill: impl AsyncFnOnce() -> Result<(), BenchError>,
    (all, jobs): (u64, u64),
) -> Result<DrainResult, BenchError> {
    let from = database.reset().await?;
    fill().await?;
    let drained = drain(database, shape, from, 0, jobs).await?;
    let completed = if jobs < all { drained.seen.runs } else { all };
    let expected = Expected { completed, ready: all.saturating_sub(completed), ..Expected::default() };
    database.check(workload, from, expected, Some(&drained.seen)).await?;
    Ok(drained)
}

/// Runs W3 and W6.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(200_000);
    let best = ClaimLoop::best(database, jobs / 4).await?;
    let (mut plain, mut rates, mut costs): (Vec<f64>, [Vec<f64>; 2], Vec<Cost>) = Default::default();
    let (mut fills, mut sizes): (Vec<Cost>, Vec<(f64, f64)>) = Default::default();
    for _ in 0..plan.runs {
        plain.push(best.run(database, jobs).await?);
        rates[0].push(fill_and_drain(database, "W3", Shape::Tuned, jobs).await?.rate);

        let from = database.reset().await?;
        let begin = Moment::now(database).await?;
        database.fill(jobs).await?;
        fills.push(begin.cost(database).await?);
        let drained = drain(database, Shape::Defaults, from, 0, jobs).await?;
        database.check("W3", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
        rates[1].push(drained.rate);
        costs.push(drained.cost);
        sizes.push(sizes_of(database).await?);
    }
    sink.figure(Record::new("W3", best.name(), "rows/s", plain.clone()))?;
    for (shape, rates) in [Shape::Tuned, Shape::Defaults].into_iter().zip(rates) {
        sink.figure(Record::new("W3", shape.name(), "jobs/s", rates).against(&plain))?;
    }
    let lives = fills.iter().zip(&costs).map(|(fill, drain)| fill.and(drain)).collect::<Vec<_>>();
    sink.figures(per_job("W6", "enqueued in bulk", "producer us/job", jobs, &fills))?;
    sink.figures(per_job("W6", "drained", "worker us/job", jobs, &costs))?;
    sink.figures(per_job("W6", "whole life", "client us/job", jobs, &lives))?;
    let each = |of: &dyn Fn(usize) -> f64| (0..plan.runs).map(|run| of(run) / jobs as f64).collect::<Vec<f64>>();
    sink.figures([
        Record::new("W6", "drained", "transactions/job", each(&|run| costs[run].transactions)),
        Record::new("W6", "drained", "dead tuples/job", each(&|run| costs[run].dead)),
        Record::new("W6", "kept", "table B/job", each(&|run| sizes[run].0)),
        Record::new("W6", "kept", "index B/job", each(&|run| sizes[run].1)),
    ])
}

/// Returns the sizes in bytes of the store's tables and of their indexes. The sizes include dead rows whose space is not reused yet.
async fn sizes_of(database: &BenchDatabase) -> Result<(f64, f64), BenchError> {
    const SIZES: &str = "
        select sum(pg_table_size(c.oid))::float8, sum(pg_indexes_size(c.oid))::float8
        from pg_class c
        where c.relnamespace = 'queue'::regnamespace and c.relkind = 'r'";
    Ok(sqlx::query_as(SIZES).fetch_one(database.pool()).await?)
}

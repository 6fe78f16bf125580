//! W4: the latency from an enqueue until the job starts on an idle worker.

use std::time::Duration;

use queue_core::Job as _;

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    job::Noop,
    line,
    process::{Shape, WorkerProcess},
    report::{Record, percentile},
};

/// Interval between two enqueues.
const EVERY: Duration = Duration::from_millis(20);

/// W4: enqueues a job every 20 ms for 20 s, with an idle worker. Measures the time from just before the enqueue to the first line of the
/// handler.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        plain.push(line::notify(database, jobs(plan), EVERY).await?);
        database.reset().await?;
        ours.push(waits(database, "W4", plan).await?);
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let each = |runs: &[Vec<u64>]| runs.iter().map(|waits| ms(waits, share)).collect::<Vec<f64>>();
        sink.figure(Record::new("W4", format!("line, {name}"), "ms", each(&plain)))?;
        sink.figure(Record::new("W4", name, "ms", each(&ours)).against(&each(&plain)))?;
    }
    Ok(())
}

fn jobs(plan: Plan) -> u64 {
    (plan.seconds(20.0).as_secs_f64() / EVERY.as_secs_f64()) as u64
}

/// Enqueues and runs the jobs of W4 once, on behalf of `workload`. Returns the sorted latencies of the jobs in nanoseconds.
pub(crate) async fn waits(database: &BenchDatabase, workload: &'static str, plan: Plan) -> Result<Vec<u64>, BenchError> {
    let jobs = jobs(plan);
    let from = database.next_id().await?;
    let mut worker = WorkerProcess::start(database, Shape::Defaults, jobs)?;
    database.until_asleep().await?;
    let mut connection = database.connection().await?;
    let mut clock = tokio::time::interval(EVERY);
    for n in 0..jobs {
        clock.tick().await;
        Noop::sent_now(n).enqueue(&mut *connection).await?;
    }
    worker.reached().await?;
    database.until_completed(from, jobs).await?;
    let seen = worker.stop().await?;
    database.check(workload, from, Expected { completed: jobs, ..Expected::default() }, Some(&seen)).await?;
    Ok(seen.waits)
}

/// Returns the latency in milliseconds that the given share of the jobs did not exceed.
pub(crate) fn ms(waits: &[u64], share: f64) -> f64 {
    percentile(waits, share) as f64 / 1e6
}

//! W8: a producer enqueues at half of the worker's drain rate while the worker runs.

use std::time::{Duration, Instant};

use queue_core::Job as _;

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    drain::fill_and_drain,
    job::{MOST_JOBS, Noop},
    measure::{Cost, Moment, per_job},
    process::{Shape, WorkerProcess},
    report::Record,
    trickle::ms,
};

/// Interval between bulk enqueues.
const EVERY: Duration = Duration::from_millis(20);

/// Sampling interval of latencies, in jobs.
const LATENCY_SAMPLE: u64 = 50;

/// Sampling interval of the backlog, in bulk enqueues.
const BACKLOG_SAMPLE: u64 = 25;

/// W8: runs a producer and a worker for 60 s, divided among the benchmark's runs. Jobs are enqueued in bulk every 20 ms, because single
/// enqueues would use too much of the CPU time that the producer shares with the worker.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let span = plan.seconds(60.0).div_f64(plan.runs as f64).max(Duration::from_secs(1));
    let drained = fill_and_drain(database, "W8", Shape::Defaults, plan.jobs(100_000)).await?;
    let batch = ((drained.rate / 2.0 * EVERY.as_secs_f64()) as u64).clamp(1, MOST_JOBS / 4000);
    let ticks = (span.as_secs_f64() / EVERY.as_secs_f64()) as u64;
    let mut runs = Vec::new();
    for _ in 0..plan.runs {
        runs.push(steady(database, batch, ticks).await?);
    }
    let each = |of: &dyn Fn(&Steady) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
    sink.figure(Record::new("W8", "line, half of W3", "jobs/s", vec![drained.rate / 2.0]))?;
    sink.figure(Record::new("W8", "rate", "jobs/s", each(&|run| run.rate)).against(&[drained.rate / 2.0]))?;
    for (variant, unit, of) in [
        ("p50", "ms", (|run| ms(&run.waits, 0.5)) as fn(&Steady) -> f64),
        ("p99", "ms", |run| ms(&run.waits, 0.99)),
        ("max", "ms", |run| ms(&run.waits, 1.0)),
        ("backlog, most", "jobs", |run| run.backlog as f64),
    ] {
        sink.figure(Record::new("W8", variant, unit, each(&of)))?;
    }
    let costs: Vec<Cost> = runs.iter().map(|run| run.cost).collect();
    sink.figures(per_job("W8", "steady", "worker us/job", batch * ticks, &costs))
}

struct Steady {
    rate: f64,
    waits: Vec<u64>,
    backlog: i64,
    cost: Cost,
}

async fn steady(database: &BenchDatabase, batch: u64, ticks: u64) -> Result<Steady, BenchError> {
    let (from, jobs) = (database.reset().await?, batch * ticks);
    let begin = Moment::now(database).await?;
    let mut worker = WorkerProcess::start(database, Shape::Defaults, jobs)?;
    database.until_asleep().await?;
    let (began, mut backlog) = (Instant::now(), 0);
    let mut clock = tokio::time::interval(EVERY);
    for tick in 0..ticks {
        clock.tick().await;
        let numbers = tick * batch..(tick + 1) * batch;
        let jobs = numbers.map(|n| if n.is_multiple_of(LATENCY_SAMPLE) { Noop::sent_now(n) } else { Noop::numbered(n) });
        Noop::enqueue_all(jobs, database.pool()).await?;
        if tick.is_multiple_of(BACKLOG_SAMPLE) {
            let ready: i64 = sqlx::query_scalar("select count(*) from queue.ready").fetch_one(database.pool()).await?;
            backlog = ready.max(backlog);
        }
    }
    worker.reached().await?;
    database.until_completed(from, jobs).await?;
    let rate = jobs as f64 / began.elapsed().as_secs_f64();
    let cpu = worker.cpu();
    let seen = worker.stop().await?;
    database.until_alone().await?;
    let cost = Cost { client: cpu, ..begin.cost(database).await? };
    database.check("W8", from, Expected { completed: jobs, ..Expected::default() }, Some(&seen)).await?;
    Ok(Steady { rate, waits: seen.waits, backlog, cost })
}

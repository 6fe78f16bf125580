//! W9: measures the drain of jobs in many queues or of many types, and the cost of polling many empty lanes.

use std::time::{Duration, Instant};

use queue_worker::Config;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    drain::drain,
    job::NAMES,
    measure::exact_cpu_of,
    process::{Shape, WorkerProcess},
    report::Record,
};

/// Numbers of queues and types among which the jobs are distributed.
#[derive(Clone, Copy, Debug)]
struct Spread {
    queues: i32,
    types: i32,
}

const SPREADS: [(&str, Spread); 4] = [
    ("1 queue", Spread { queues: 1, types: 1 }),
    ("100 queues", Spread { queues: 100, types: 1 }),
    ("10,000 queues", Spread { queues: 10_000, types: 1 }),
    ("100 types", Spread { queues: 1, types: 100 }),
];

/// W9: measures W3 with 1, 100 and 10,000 queues and with 100 types. After each drain, measures the polls of an idle worker while all
/// lanes of the drain still exist.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(50_000);
    let mut one = Vec::new();
    for (name, spread) in SPREADS {
        let (mut rates, mut polls, mut lines, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.runs {
            let from = database.reset().await?;
            fill(database, jobs, spread).await?;
            let drained = drain(database, Shape::Defaults, from, 0, jobs).await?;
            database.check("W9", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
            rates.push(drained.rate);
            if let Some(idle) = idle(database, plan).await? {
                polls.push(idle.poll);
                lines.push(idle.line);
                all.push(idle.second);
            }
        }
        if one.is_empty() {
            one.clone_from(&rates);
        }
        sink.figure(Record::new("W9", name, "jobs/s", rates).against(&one))?;
        if !polls.is_empty() {
            sink.figure(Record::new("W9", name, "server ms/poll", polls).against(&lines))?;
            sink.figure(Record::new("W9", name, "server ms/idle s", all))?;
        }
    }
    Ok(())
}

/// Enqueues `jobs` jobs, distributed among the queues and types of `spread`. Calls the internal SQL function that inserts one job.
async fn fill(database: &BenchDatabase, jobs: u64, spread: Spread) -> Result<(), BenchError> {
    const FILL: &str = "
        select count(queue.insert_job(($2::text[])[1 + n % $3], jsonb_build_object('n', n, 'sent', 0, 'text', repeat('x', 60)), 'bench' || n % $4))
        from generate_series(0, $1 - 1) n";
    let (jobs, Spread { queues, types }) = (jobs as i64, spread);
    sqlx::query(FILL).bind(jobs).bind(NAMES.as_slice()).bind(types).bind(queues).execute(database.pool()).await?;
    Ok(())
}

/// Server cost of an idle worker, as CPU time in milliseconds.
struct IdleCost {
    /// CPU time of the claiming connection per poll.
    poll: f64,
    /// Baseline: CPU time of another connection per `select 1`, executed at the poll rate.
    line: f64,
    /// CPU time per second of all connections of the worker.
    second: f64,
}

/// Measures an idle worker. Returns `None` if the server's processes are not visible.
async fn idle(database: &BenchDatabase, plan: Plan) -> Result<Option<IdleCost>, BenchError> {
    if database.postmaster.is_none() {
        return Ok(None);
    }
    let worker = WorkerProcess::start(database, Shape::Defaults, u64::MAX)?;
    database.until_asleep().await?;
    // The first polls prepare their statements, so they are not measured.
    tokio::time::sleep(2 * Config::default().poll_interval).await;
    let mut line = database.pool().connect_options().as_ref().clone().application_name("queue-bench line").connect().await?;
    sqlx::query("select 1").execute(&mut line).await?;
    let spent = async || -> Result<[Duration; 3], BenchError> {
        Ok([cpu(database, "queue-worker claim").await?, cpu(database, "queue-bench line").await?, cpu(database, "queue-worker%").await?])
    };
    let (began, before) = (Instant::now(), spent().await?);
    let ends = began + plan.seconds(5.0);
    while Instant::now() < ends {
        tokio::time::sleep(Config::default().poll_interval).await;
        sqlx::query("select 1").execute(&mut line).await?;
    }
    let after = spent().await?;
    let [claims, select, all] = std::array::from_fn(|which| after[which].saturating_sub(before[which]));
    let passed = began.elapsed().as_secs_f64();
    line.close().await?;
    worker.stop().await?;
    let polls = passed / Config::default().poll_interval.as_secs_f64();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Some(IdleCost { poll: ms(claims) / polls, line: ms(select) / polls, second: ms(all) / passed }))
}

/// Returns the CPU time of the server processes whose connections have an application name that matches the LIKE pattern `name`.
async fn cpu(database: &BenchDatabase, name: &str) -> Result<Duration, BenchError> {
    const BACKENDS: &str = "select pid from pg_stat_activity where datname = current_database() and application_name like $1";
    let pids: Vec<i32> = sqlx::query_scalar(BACKENDS).bind(name).fetch_all(database.pool()).await?;
    Ok(pids.into_iter().filter_map(|pid| exact_cpu_of(pid.unsigned_abs())).sum())
}

//! Workloads F1 to F3: the cost of a journaled step in one job at a time, in many concurrent jobs, and in a transaction with the step's
//! writes.

use std::{sync::Arc, time::Duration};

use queue_core::{Handler, Job as _, JobResult, JobType, durable::Durable, options::Options};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    BenchError, FigureSink, Plan,
    database::BenchDatabase,
    job::{Noop, Unserved},
    measure::{Cost, Moment},
    report::{Record, median},
};

/// Durable job with `steps` steps.
#[derive(Debug, Serialize, Deserialize)]
struct Stepping {
    steps: u64,
    within: bool,
}

impl JobType for Stepping {
    type Output = ();
    type Cx = Durable;
    const OPTIONS: Options = Options::new("bench_stepping").queue("bench").durable();
}

const EFFECT: &str = "insert into bench_effect (n) values ($1)";

impl Handler for Stepping {
    async fn run(self, cx: &Durable) -> JobResult {
        for n in 0..self.steps {
            if self.within {
                let effect = async |tx: &mut sqlx::PgConnection| sqlx::query(EFFECT).bind(n.cast_signed()).execute(tx).await.map(|_| n);
                cx.step_tx(("step", n), effect).await?;
            } else {
                cx.step(("step", n), async { Ok::<_, queue_core::Failure>(n) }).await?;
            }
        }
        Ok(())
    }
}

/// Number of concurrent handlers in F2.
const AT_ONCE: u64 = 64;

/// Runs F1, F2 and F3.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let steps = plan.jobs(4000);
    let mut costs: [Vec<Cost>; 5] = Default::default();
    for _ in 0..plan.runs {
        database.reset().await?;
        sqlx::raw_sql("create table if not exists bench_effect (n bigint); truncate bench_effect").execute(database.pool()).await?;
        costs[0].push(enqueues(database, steps).await?);
        costs[1].push(stepped(database, (1, steps), false).await?);
        costs[2].push(stepped(database, (AT_ONCE, (steps * 8 / AT_ONCE).max(10)), false).await?);
        costs[3].push(transactions(database, steps).await?);
        costs[4].push(stepped(database, (1, steps), true).await?);
    }
    let many = AT_ONCE * (steps * 8 / AT_ONCE).max(10);
    sink.figures(per_step("F1", "line: an enqueue", steps, &costs[0], None))?;
    sink.figures(per_step("F1", "a step alone", steps, &costs[1], Some((&costs[0], steps))))?;
    sink.figures(per_step("F2", "64 jobs at once", many, &costs[2], Some((&costs[0], steps))))?;
    sink.figures(per_step("F3", "line: a transaction", steps, &costs[3], None))?;
    sink.figures(per_step("F3", "a step in one", steps, &costs[4], Some((&costs[3], steps))))
}

/// Enqueues `jobs` jobs, each in its own transaction. Returns the cost.
async fn enqueues(database: &BenchDatabase, jobs: u64) -> Result<Cost, BenchError> {
    let mut connection = database.connection().await?;
    let begin = Moment::now(database).await?;
    for n in 0..jobs {
        Unserved(Noop::numbered(n)).enqueue(&mut *connection).await?;
    }
    drop(connection);
    cost(begin, database).await
}

/// Returns the cost of `count` transactions, each with the effect that a step in a transaction writes, but without a journal entry.
async fn transactions(database: &BenchDatabase, count: u64) -> Result<Cost, BenchError> {
    let begin = Moment::now(database).await?;
    for n in 0..count {
        let mut tx = database.pool().begin().await?;
        sqlx::query(EFFECT).bind(n.cast_signed()).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    cost(begin, database).await
}

/// Returns the cost since `begin`. Waits first, because sessions report their statistics at most once a second.
async fn cost(begin: Moment, database: &BenchDatabase) -> Result<Cost, BenchError> {
    tokio::time::sleep(Duration::from_millis(1200)).await;
    begin.cost(database).await
}

/// Runs `jobs` jobs with `steps` steps each on a worker in this process, and checks the number of journaled steps. Returns the cost.
async fn stepped(database: &BenchDatabase, (jobs, steps): (u64, u64), within: bool) -> Result<Cost, BenchError> {
    let from = database.next_id().await?;
    let ended = Arc::new(Notify::new());
    let stop = Arc::clone(&ended);
    let worker = Worker::new(database.pool().clone()).register::<Stepping>().queue("bench", jobs as usize);
    let worker = tokio::spawn(worker.run(async move { stop.notified().await }));
    database.until_asleep().await?;
    let begin = Moment::now(database).await?;
    for _ in 0..jobs {
        Stepping { steps, within }.enqueue(database.pool()).await?;
    }
    database.until_completed(from, jobs).await?;
    let cost = cost(begin, database).await?;
    ended.notify_one();
    worker.await.map_err(|error| BenchError::Process(error.to_string()))??;
    let journaled: i64 = sqlx::query_scalar("select count(*) from queue.step where id >= $1").bind(from).fetch_one(database.pool()).await?;
    if journaled.unsigned_abs() != jobs * steps {
        return Err(BenchError::Wrong { workload: "F1 to F3", what: format!("{journaled} steps of {} are journaled", jobs * steps) });
    }
    Ok(cost)
}

fn per_step(workload: &'static str, variant: &str, steps: u64, costs: &[Cost], line: Option<(&[Cost], u64)>) -> Vec<Record> {
    type CostField = fn(&Cost) -> Option<f64>;
    let units: [(&'static str, CostField); 3] = [
        ("server us/step", |cost| cost.server.map(|time| time.as_secs_f64() * 1e6)),
        ("WAL B/step", |cost| Some(cost.wal)),
        ("commits/step", |cost| Some(cost.transactions)),
    ];
    let each =
        |costs: &[Cost], of: CostField, steps: u64| -> Vec<f64> { costs.iter().filter_map(of).map(|value| value / steps as f64).collect() };
    let figure = |(unit, of): (&'static str, CostField)| {
        let runs = each(costs, of, steps);
        let record = (!runs.is_empty()).then(|| Record::new(workload, variant, unit, runs))?;
        let line = line.map(|(line, count)| each(line, of, count)).filter(|line| median(line) > 0.0);
        Some(match line {
            Some(line) => record.against(&line),
            None => record,
        })
    };
    units.into_iter().filter_map(figure).collect()
}

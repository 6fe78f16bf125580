//! Workloads that enqueue jobs: one job per transaction in W1, many jobs per call in W2, and transactions that stay open in W11.

use std::time::{Duration, Instant};

use queue_core::{Job as _, options::Durability};
use sqlx::Connection as _;

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    job::Noop,
    line::{self, together},
    measure::{Cost, Moment, per_job},
    process::{Shape, WorkerProcess},
    report::Record,
};

const PRODUCERS: u64 = 8;

/// W1: 8 producers enqueue one job per transaction, first at full durability, then at relaxed durability, then at full durability while a
/// worker drains the jobs.
pub(crate) async fn one(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(20_000) / PRODUCERS * PRODUCERS;
    let (mut plain, mut alone, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut relaxed, mut draining) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        plain.push(line::insert(database, PRODUCERS, jobs).await?);

        let from = database.reset().await?;
        let begin = Moment::now(database).await?;
        alone.push(enqueue_singly(database, jobs, Durability::Full).await?);
        costs.push(begin.cost(database).await?);
        database.check("W1", from, Expected { ready: jobs, ..Expected::default() }, None).await?;

        let from = database.reset().await?;
        relaxed.push(enqueue_singly(database, jobs, Durability::Relaxed).await?);
        database.check("W1", from, Expected { ready: jobs, ..Expected::default() }, None).await?;

        let from = database.reset().await?;
        let mut worker = WorkerProcess::start(database, Shape::Defaults, jobs)?;
        database.until_asleep().await?;
        draining.push(enqueue_singly(database, jobs, Durability::Full).await?);
        worker.reached().await?;
        database.until_completed(from, jobs).await?;
        let seen = worker.stop().await?;
        database.check("W1", from, Expected { completed: jobs, ..Expected::default() }, Some(&seen)).await?;
    }
    sink.figure(Record::new("W1", "line, INSERT", "tx/s", plain.clone()))?;
    sink.figure(Record::new("W1", "alone", "jobs/s", alone).against(&plain))?;
    sink.figure(Record::new("W1", "relaxed", "jobs/s", relaxed).against(&plain))?;
    sink.figure(Record::new("W1", "draining", "jobs/s", draining).against(&plain))?;
    sink.figures(per_job("W1", "alone", "producer us/job", jobs, &costs))
}

async fn enqueue_singly(database: &BenchDatabase, jobs: u64, durability: Durability) -> Result<f64, BenchError> {
    let each = jobs / PRODUCERS;
    let elapsed = together(database, PRODUCERS, move |mut connection, producer| async move {
        for n in 0..each {
            Noop::numbered(producer * each + n).enqueue(&mut *connection).durability(durability).await?;
        }
        Ok(())
    })
    .await?;
    Ok(jobs as f64 / elapsed.as_secs_f64())
}

/// W2: enqueues many jobs per call.
pub(crate) async fn many(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(200_000);
    let (mut plain, mut ours, mut costs): (Vec<f64>, Vec<f64>, Vec<Cost>) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        plain.push(line::copy(database, jobs).await?);

        let from = database.reset().await?;
        let begin = Moment::now(database).await?;
        let began = Instant::now();
        database.fill(jobs).await?;
        ours.push(jobs as f64 / began.elapsed().as_secs_f64());
        costs.push(begin.cost(database).await?);
        database.check("W2", from, Expected { ready: jobs, ..Expected::default() }, None).await?;
    }
    sink.figure(Record::new("W2", "line, COPY", "rows/s", plain.clone()))?;
    sink.figure(Record::new("W2", "enqueue_all", "jobs/s", ours).against(&plain))?;
    sink.figures(per_job("W2", "enqueue_all", "producer us/job", jobs, &costs))
}

/// Delay between the enqueue and the commit of each W11 transaction.
const OPEN: Duration = Duration::from_millis(20);

/// W11: producers enqueue in transactions that stay open. A rate below the baseline means that the producers wait for each other.
pub(crate) async fn slowly(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let each = (plan.seconds(4.0).as_secs_f64() / OPEN.as_secs_f64()) as u64;
    let jobs = each * PRODUCERS;
    let (mut plain, mut alone, mut draining) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        plain.push(line::insert_slowly(database, PRODUCERS, each, OPEN).await?);

        let from = database.reset().await?;
        alone.push(enqueue_slowly(database, each).await?);
        database.check("W11", from, Expected { ready: jobs, ..Expected::default() }, None).await?;

        let from = database.reset().await?;
        let mut worker = WorkerProcess::start(database, Shape::Defaults, jobs)?;
        database.until_asleep().await?;
        draining.push(enqueue_slowly(database, each).await?);
        worker.reached().await?;
        database.until_completed(from, jobs).await?;
        let seen = worker.stop().await?;
        database.check("W11", from, Expected { completed: jobs, ..Expected::default() }, Some(&seen)).await?;
    }
    sink.figure(Record::new("W11", "line, INSERT", "tx/s", plain.clone()))?;
    sink.figure(Record::new("W11", "alone", "tx/s", alone).against(&plain))?;
    sink.figure(Record::new("W11", "draining", "tx/s", draining).against(&plain))
}

async fn enqueue_slowly(database: &BenchDatabase, each: u64) -> Result<f64, BenchError> {
    let elapsed = together(database, PRODUCERS, move |mut connection, producer| async move {
        for n in 0..each {
            let mut tx = connection.begin().await?;
            Noop::numbered(producer * each + n).enqueue(&mut tx).await?;
            tokio::time::sleep(OPEN).await;
            tx.commit().await?;
        }
        Ok(())
    })
    .await?;
    Ok((each * PRODUCERS) as f64 / elapsed.as_secs_f64())
}

//! W7: runs a million jobs while a session holds a snapshot, so that vacuum cannot remove dead rows.

use sqlx::PgConnection;

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    drain::{drain, fill_and_drain},
    process::Shape,
    report::Record,
    trickle,
};

/// W7: measures W3 and W4. Then holds a REPEATABLE READ snapshot, runs 1,000,000 jobs, and measures W3 and W4 again.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let (jobs, passed) = (plan.jobs(200_000), plan.jobs(1_000_000));
    let (mut before, mut held) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        before.push(fill_and_drain(database, "W7", Shape::Defaults, jobs).await?.rate);
    }
    database.vacuum().await?;
    let waits_before = trickle::waits(database, "W7", plan).await?;

    database.reset().await?;
    let mut other = database.connection().await?;
    hold_snapshot(&mut other).await?;
    pass(database, passed).await?;
    for _ in 0..plan.runs {
        held.push(pass(database, jobs).await?);
    }
    database.vacuum().await?;
    let waits_held = trickle::waits(database, "W7", plan).await?;
    sqlx::raw_sql("rollback").execute(&mut *other).await?;
    other.close().await?;

    sink.figure(Record::new("W7", "line, W3 before", "jobs/s", before.clone()))?;
    sink.figure(Record::new("W7", "W3 held", "jobs/s", held).against(&before))?;
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let before = vec![trickle::ms(&waits_before, share)];
        sink.figure(Record::new("W7", format!("W4 {name} before"), "ms", before.clone()))?;
        sink.figure(Record::new("W7", format!("W4 {name} held"), "ms", vec![trickle::ms(&waits_held, share)]).against(&before))?;
    }
    Ok(())
}

async fn hold_snapshot(connection: &mut PgConnection) -> Result<(), BenchError> {
    sqlx::raw_sql("begin isolation level repeatable read").execute(&mut *connection).await?;
    sqlx::raw_sql("select count(*) from queue.ready").execute(connection).await?;
    Ok(())
}

/// Enqueues and drains `jobs` jobs without truncating the tables first. Returns the number of jobs per second.
async fn pass(database: &BenchDatabase, jobs: u64) -> Result<f64, BenchError> {
    let from = database.next_id().await?;
    database.fill(jobs).await?;
    let drained = drain(database, Shape::Defaults, from, 0, jobs).await?;
    database.check("W7", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
    Ok(drained.rate)
}

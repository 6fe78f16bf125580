//! W7: a session that holds a snapshot, so that nothing dead can be cleaned away, while a million jobs pass.

use sqlx::PgConnection;

use super::{
    BenchError, Plan, Say,
    drain::{drain, fill_and_drain},
    ground::{Expected, Ground},
    process::Shape,
    report::Record,
    trickle,
};

/// W7: W3 and W4 before, and again while a REPEATABLE READ snapshot is held over 1,000,000 jobs that have passed since.
pub(super) async fn run(ground: &Ground, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let (jobs, passed) = (plan.jobs(200_000), plan.jobs(1_000_000));
    let (mut before, mut held) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        before.push(fill_and_drain(ground, "W7", Shape::Defaults, jobs).await?.rate);
    }
    let waits_before = trickle::waits(ground, "W7", plan).await?;

    ground.reset().await?;
    let mut other = ground.connection().await?;
    hold_snapshot(&mut other).await?;
    pass(ground, passed).await?;
    for _ in 0..plan.runs {
        held.push(pass(ground, jobs).await?);
    }
    let waits_held = trickle::waits(ground, "W7", plan).await?;
    sqlx::raw_sql("rollback").execute(&mut *other).await?;
    other.close().await?;

    say.figure(Record::new("W7", "line, W3 before", "jobs/s", before.clone()))?;
    say.figure(Record::new("W7", "W3 held", "jobs/s", held).against(&before))?;
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let before = vec![trickle::ms(&waits_before, share)];
        say.figure(Record::new("W7", format!("W4 {name} before"), "ms", before.clone()))?;
        say.figure(Record::new("W7", format!("W4 {name} held"), "ms", vec![trickle::ms(&waits_held, share)]).against(&before))?;
    }
    Ok(())
}

async fn hold_snapshot(connection: &mut PgConnection) -> Result<(), BenchError> {
    sqlx::raw_sql("begin isolation level repeatable read").execute(&mut *connection).await?;
    sqlx::raw_sql("select count(*) from queue.ready").execute(connection).await?;
    Ok(())
}

/// So many jobs more, through the same tables; jobs a second.
async fn pass(ground: &Ground, jobs: u64) -> Result<f64, BenchError> {
    let from = ground.next_id().await?;
    ground.fill(jobs).await?;
    let drained = drain(ground, Shape::Defaults, from, 0, jobs).await?;
    ground.check("W7", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
    Ok(drained.rate)
}

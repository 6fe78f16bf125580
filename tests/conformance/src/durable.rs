//! Durable jobs: steps that run once, sleeps, signals and restarts.

use std::time::Duration;

use anyhow::{Result, ensure};
use queue_core::{Job as _, JobRef, JobState, operate::SignalOutcome};

use super::{
    jobs::{Receives, Restarting, Sleeps, Steps},
    play::{Need, OperationGroup, operations},
    world::World,
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "durable",
    needs: Need::Worker,
    operations: operations![
        "steps, step in a transaction, revision" => steps,
        "short sleep in place" => |world| sleeps(world, 200, 1),
        "long sleep, scheduled meanwhile" => |world| sleeps(world, 1500, 2),
        "run now does not end a sleep" => woken,
        "signal a parked job" => signalled,
        "signal before the start, in a transaction" => signalled_before,
        "receive in time" => in_time,
        "receive too late" => too_late,
        "signal a finished job" => finished,
        "restart" => restart,
    ],
};

async fn steps(world: &World) -> Result<()> {
    let job = Steps {}.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == [0, 1, 3, 1]);
    let id = job.id();
    ensure!(world.given.noted(&format!("first {id}")).len() == 1, "the first step ran twice");
    ensure!(world.effects(job.job_ref()).await? == [2], "the effect of the second step does not exist exactly once");
    let found = world.queries().await?.job(id).steps().await?;
    let names: Vec<&str> = found.iter().map(|step| step.name.as_str()).collect();
    ensure!(["first", "second", "third/1"].iter().all(|name| names.contains(name)), "{names:?}");
    ensure!(found.iter().all(|step| !step.is_timed_out()));
    Ok(())
}

async fn sleeps(world: &World, ms: u64, calls: usize) -> Result<()> {
    let job = Sleeps { ms }.enqueue(world.pool()).store(world.store).await?;
    if calls > 1 {
        world.wait_for_state(job.job_ref(), JobState::Scheduled).await?;
    }
    world.output(job).await?;
    let called = world.given.noted(&format!("sleeps {}", job.id())).len();
    ensure!(called == calls, "the handler was called {called} times");
    Ok(())
}

async fn woken(world: &World) -> Result<()> {
    let job = Sleeps { ms: 600_000 }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Scheduled).await?;
    job.run_now(world.pool()).await?;
    let calls = format!("sleeps {}", job.id());
    world.until("the handler was called again", async || Ok(world.given.noted(&calls).len() > 1)).await?;
    world.wait_for_state(job.job_ref(), JobState::Scheduled).await?;
    job.cancel(world.pool()).await?;
    Ok(())
}

async fn signalled(world: &World) -> Result<()> {
    let job = Receives { timeout_ms: None }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Parked).await?;
    let found = world.queries().await?.job(job.id()).steps().await?;
    ensure!(found.iter().all(|step| step.waits_for().is_none()), "the step has a deadline: {found:?}");
    ensure!(job.signal(world.pool(), "word", "hello").await? == SignalOutcome::Sent);
    ensure!(world.output(job).await?.as_deref() == Some("hello"));
    Ok(())
}

async fn signalled_before(world: &World) -> Result<()> {
    let mut tx = world.pool().begin().await?;
    let job = Receives { timeout_ms: None }.enqueue(&mut tx).store(world.store).after(Duration::from_millis(300)).await?;
    ensure!(job.signal(&mut tx, "word", "early").await? == SignalOutcome::Sent);
    tx.commit().await?;
    let waiting = world.queries().await?.job(job.id()).signals().await?;
    ensure!(waiting.iter().all(|signal| signal.name == "word"), "{waiting:?}");
    ensure!(world.output(job).await?.as_deref() == Some("early"));
    Ok(())
}

async fn in_time(world: &World) -> Result<()> {
    let job = Receives { timeout_ms: Some(15_000) }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Parked).await?;
    ensure!(job.signal(world.pool(), "word", "in time").await? == SignalOutcome::Sent);
    ensure!(world.output(job).await?.as_deref() == Some("in time"));
    Ok(())
}

async fn too_late(world: &World) -> Result<()> {
    let job = Receives { timeout_ms: Some(1200) }.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await?.is_none());
    let found = world.queries().await?.job(job.id()).steps().await?;
    ensure!(found.iter().any(|step| step.name.contains("word")), "{found:?}");
    Ok(())
}

async fn finished(world: &World) -> Result<()> {
    let job = Receives { timeout_ms: Some(1) }.enqueue(world.pool()).store(world.store).await?;
    world.output(job).await?;
    ensure!(job.signal(world.pool(), "word", "late").await? == SignalOutcome::Over);
    let none = JobRef::from_id(queue_core::JobId(1)).in_store(world.store);
    ensure!(none.signal(world.pool(), "word", "none").await? == SignalOutcome::Absent);
    Ok(())
}

async fn restart(world: &World) -> Result<()> {
    let job = Restarting { left: 2, rounds: 0 }.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == 2);
    Ok(())
}

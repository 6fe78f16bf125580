//! Operations that an operator performs on a single job or on many jobs.

use std::{future::pending, time::Duration};

use anyhow::{Result, ensure};
use chrono::{TimeDelta, Utc};
use queue_core::{
    Error, Job as _, JobHandle, JobRef, JobState, Queue,
    operate::{Filter, Note, Operation, OperationOutcome},
};

use super::{
    jobs::{Echo, First, Slow, Try, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "act",
    needs: Need::Worker,
    operations: operations![
        "cancel a queued job" => cancel,
        "cancel a running job" => cancel_running,
        "reschedule, snooze, run now" => times,
        "set priority" => priority,
        "requeue, discard" => dead,
        "requeue a completed job" => again,
        "refuse operations in the wrong state" => refused,
        "all of a filter: priority, snooze, reschedule, run now" => waiting_all,
        "all of a filter: cancel, with a note" => cancel_all,
        "all of a filter: requeue, discard" => dead_all,
        "several jobs by id" => some,
    ],
};

async fn idle(world: &World, text: &str) -> Result<JobHandle<Echo>> {
    Ok(echo(text).enqueue(world.pool()).store(world.store).queue(IDLE).await?)
}

async fn is(world: &World, job: JobRef, expected: JobState) -> Result<()> {
    let state = job.state(world.pool()).await?;
    ensure!(state == expected, "the job is {state} instead of {expected}");
    Ok(())
}

async fn cancel(world: &World) -> Result<()> {
    let job = idle(world, "cancelled").await?;
    ensure!(job.cancel(world.pool()).await? == OperationOutcome::Done);
    is(world, job.job_ref(), JobState::Cancelled).await?;
    let job = idle(world, "cancelled in a transaction").await?;
    let mut tx = world.pool().begin().await?;
    job.cancel(&mut tx).await?;
    tx.rollback().await?;
    is(world, job.job_ref(), JobState::Ready).await
}

async fn cancel_running(world: &World) -> Result<()> {
    let job = Slow { ms: 20_000 }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Running).await?;
    ensure!(job.cancel(world.pool()).await? == OperationOutcome::Cancelling);
    world.wait_for_state(job.job_ref(), JobState::Cancelled).await
}

async fn times(world: &World) -> Result<()> {
    let (job, pool) = (idle(world, "times").await?, world.pool());
    job.reschedule(pool, Utc::now() + TimeDelta::hours(2)).await?;
    is(world, job.job_ref(), JobState::Scheduled).await?;
    job.snooze(pool, Duration::from_mins(1)).await?;
    is(world, job.job_ref(), JobState::Scheduled).await?;
    job.run_now(pool).await?;
    is(world, job.job_ref(), JobState::Ready).await
}

async fn priority(world: &World) -> Result<()> {
    let job = idle(world, "priority").await?;
    job.set_priority(world.pool(), 7).await?;
    ensure!(job.apply(world.pool(), Operation::Priority(9)).await? == OperationOutcome::Done && Operation::Priority(9).done() == "changed");
    ensure!(job.find(world.pool()).await?.priority == 9);
    Ok(())
}

async fn dies(world: &World) -> Result<JobRef> {
    let job = Try { first: First::Terminal }.enqueue(world.pool()).store(world.store).queue("others").await?;
    world.wait_for_state(job.job_ref(), JobState::Dead).await?;
    Ok(job.job_ref())
}

async fn dead(world: &World) -> Result<()> {
    let job = dies(world).await?;
    let calls = format!("try {}", job.id());
    job.requeue(world.pool()).await?;
    world.until("the job runs again", async || Ok(world.given.noted(&calls).len() == 2)).await?;
    // The second call is recorded while the job still runs, so the job may finish a moment later.
    world.until("the job is finished", async || Ok(matches!(job.state(world.pool()).await?, JobState::Dead | JobState::Completed))).await?;
    let job = dies(world).await?;
    job.discard(world.pool()).await?;
    ensure!(matches!(job.state(world.pool()).await, Err(Error::NotFound { .. })), "the job still exists");
    Ok(())
}

async fn again(world: &World) -> Result<()> {
    let job = Try { first: First::Complete }.enqueue(world.pool()).store(world.store).await?;
    world.output(job).await?;
    job.requeue(world.pool()).await?;
    let calls = format!("try {}", job.id());
    world.until("the job runs again", async || Ok(world.given.noted(&calls).len() == 2)).await?;
    world.wait_for_state(job.job_ref(), JobState::Completed).await
}

async fn refused(world: &World) -> Result<()> {
    let job = idle(world, "refused").await?;
    let (requeued, run) = (job.requeue(world.pool()).await, job.run_now(world.pool()).await);
    ensure!(matches!(requeued, Err(Error::WrongState { .. })) && matches!(run, Err(Error::WrongState { .. })), "{requeued:?} {run:?}");
    let mut tx = world.pool().begin().await?;
    job.cancel(&mut tx).await?;
    ensure!(matches!(job.cancel(world.pool()).await, Err(Error::Locked { .. })), "a job locked by another transaction was cancelled");
    tx.rollback().await?;
    Ok(())
}

/// Creates a queue with twelve jobs and no worker. Returns a filter that selects these jobs.
async fn twelve(world: &World, queue: &str) -> Result<Filter> {
    Echo::enqueue_all((0..12).map(|n| echo(n.to_string())), world.pool()).store(world.store).queue(queue).await?;
    Ok(Filter { queue: Some(queue.to_owned()), ..Filter::default() })
}

async fn in_state(world: &World, filter: &Filter, state: JobState) -> Result<usize> {
    let filter = Filter { state: Some(state), ..filter.clone() };
    Ok(world.queries().await?.jobs().matching(&filter).list().await?.jobs.len())
}

async fn waiting_all(world: &World) -> Result<()> {
    let (pool, store, filter) = (world.pool(), world.store, twelve(world, "act_waiting").await?);
    ensure!(Queue::new(pool).store(store).jobs().matching(&filter).set_priority(3).await?.done == 12);
    ensure!(Queue::new(pool).store(store).jobs().matching(&filter).snooze(Duration::from_mins(10)).await?.done == 12);
    ensure!(in_state(world, &filter, JobState::Scheduled).await? == 12);
    ensure!(Queue::new(pool).store(store).jobs().matching(&filter).run_now().await?.done == 12);
    ensure!(in_state(world, &filter, JobState::Ready).await? == 12);
    ensure!(
        Queue::new(pool).store(store).jobs().matching(&filter).reschedule(Utc::now() + TimeDelta::hours(1)).at_most(5).await?.done == 5
    );
    ensure!(in_state(world, &filter, JobState::Scheduled).await? == 5);
    Ok(())
}

async fn cancel_all(world: &World) -> Result<()> {
    let (pool, store, filter) = (world.pool(), world.store, twelve(world, "act_cancel").await?);
    ensure!(Queue::new(pool).store(store).jobs().matching(&filter).apply(Operation::Cancel).count().await? == 12);
    let note = Note { actor: "conformance".to_owned(), act: "cancel".to_owned(), what: "queue=act_cancel".to_owned() };
    let swept = Queue::new(pool).store(store).jobs().matching(&filter).cancel().rate(1000.0).until(pending()).noted(note).await?;
    ensure!((swept.done, swept.cancelling) == (12, 0), "{swept:?}");
    let noted = world.queries().await?.audit(None, 5).await?;
    ensure!(noted.iter().any(|record| record.what == "queue=act_cancel" && record.jobs == 12), "{noted:?}");
    Ok(())
}

async fn dead_all(world: &World) -> Result<()> {
    let jobs = (0..5).map(|_| Try { first: First::Terminal });
    let jobs = Try::enqueue_all(jobs, world.pool()).store(world.store).meta("sweep", "dead").returning_ids().await?;
    for job in &jobs {
        world.wait_for_state(job.job_ref(), JobState::Dead).await?;
    }
    let filter = Filter::default().meta("sweep", "dead");
    ensure!(world.queue().jobs().matching(&filter).requeue().await?.done == 5);
    for job in &jobs {
        world.wait_for_state(job.job_ref(), JobState::Dead).await?;
    }
    ensure!(world.queue().jobs().matching(&filter).discard().await?.done == 5);
    ensure!(jobs[0].state(world.pool()).await.is_err(), "the job still exists");
    Ok(())
}

async fn some(world: &World) -> Result<()> {
    let filter = twelve(world, "act_some").await?;
    let page = world.queue().jobs().matching(&filter).list().await?;
    let ids: Vec<_> = page.jobs.iter().map(|job| job.id).take(4).collect();
    ensure!(world.queue().apply_to(ids, Operation::Cancel).await?.done == 4);
    ensure!(world.queue().jobs().matching(&filter).apply(Operation::Snooze(Duration::from_mins(1))).await?.done == 8);
    Ok(())
}

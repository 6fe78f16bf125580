//! Waits for jobs, queries their outcomes and follows their progress.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use queue_core::{Job as _, JobHandle, JobId, JobRef, JobState, Queue, wait::WaitError};

use super::{
    jobs::{Echo, First, Slow, Try, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "wait",
    needs: Need::Worker,
    operations: operations![
        "by a handle" => by_handle,
        "by an id" => by_id,
        "fifty concurrently" => many,
        "a timeout" => timeout,
        "for a job that dies" => dead,
        "for a job that is cancelled" => cancelled,
        "for a job that expires" => expired,
        "for a job that does not exist" => none,
        "status" => status,
        "progress" => progress,
        "watch" => watch,
    ],
};

const LONG: Duration = Duration::from_secs(20);

async fn by_id(world: &World) -> Result<()> {
    let id = echo("by an id").enqueue(world.pool()).store(world.store).await?.id();
    ensure!(world.queue().job(id).wait::<Echo>().timeout(LONG).await? == "by an id");
    Ok(())
}

async fn by_handle(world: &World) -> Result<()> {
    let own = Queue::new(world.direct()).store(world.store);
    let job = echo("by a handle").enqueue(world.pool()).store(world.store).await?;
    ensure!(job.wait(&own).timeout(LONG).await? == "by a handle");
    // A `Queue` for the default store cannot wait for jobs of the run's store.
    let others = Queue::new(world.direct());
    ensure!(matches!(job.wait(&others).timeout(LONG).await, Err(WaitError::OtherStore { .. })));
    Ok(())
}

async fn many(world: &World) -> Result<()> {
    let mut jobs = Vec::new();
    for n in 0..50 {
        jobs.push(echo(format!("waited for {n}")).enqueue(world.pool()).store(world.store).await?);
    }
    let waits = jobs.iter().map(|job| job.wait(world.queue()).timeout(LONG).into_future());
    for (n, output) in futures_util::future::join_all(waits).await.into_iter().enumerate() {
        ensure!(output? == format!("waited for {n}"));
    }
    Ok(())
}

fn is<T: Debug>(waited: &Result<T, WaitError>, is_expected: impl Fn(&WaitError) -> bool) -> Result<()> {
    ensure!(waited.as_ref().is_err_and(is_expected), "{waited:?}");
    Ok(())
}

async fn timeout(world: &World) -> Result<()> {
    let job = echo("never").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let waited = job.wait(world.queue()).timeout(Duration::from_millis(50)).await;
    is(&waited, |error| matches!(error, WaitError::Timeout { .. }))
}

async fn dead(world: &World) -> Result<()> {
    let job = Try { first: First::Terminal }.enqueue(world.pool()).store(world.store).await?;
    is(&job.wait(world.queue()).timeout(LONG).await, |error| matches!(error, WaitError::Dead { attempts: 1, .. }))
}

async fn cancelled(world: &World) -> Result<()> {
    let job = echo("never").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let wait = job.wait(world.queue()).timeout(LONG).into_future();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        job.cancel(world.pool()).await
    };
    let (waited, cancelled) = tokio::join!(wait, cancel);
    cancelled?;
    is(&waited, |error| matches!(error, WaitError::Cancelled { .. }))
}

async fn expired(world: &World) -> Result<()> {
    let job = echo("too late").enqueue(world.pool()).store(world.store).queue(IDLE).expires_in(Duration::from_millis(200)).await?;
    is(&job.wait(world.queue()).timeout(LONG).await, |error| matches!(error, WaitError::Expired { .. }))
}

async fn none(world: &World) -> Result<()> {
    let job = JobHandle::<Echo>::from_id(JobId(1)).in_store(world.store);
    is(&job.wait(world.queue()).timeout(LONG).await, |error| matches!(error, WaitError::NotFound { .. }))
}

async fn status(world: &World) -> Result<()> {
    let job = echo("status").enqueue(world.pool()).store(world.store).await?;
    world.output(job).await?;
    for found in [job.status(world.pool()).await?, job.status(world.read().await?).await?] {
        ensure!(found.state == JobState::Completed && found.output.as_deref() == Some("status"), "{found:?}");
    }
    let untyped = JobRef::status(&job, world.read().await?).await?;
    ensure!(untyped.output.is_some_and(|output| output.get() == "\"status\"") && untyped.attempts == 1);
    Ok(())
}

async fn progress(world: &World) -> Result<()> {
    let job = Slow { ms: 10_000 }.enqueue(world.pool()).store(world.store).await?;
    world
        .until("the reported progress is visible", async || {
            let found = job.progress(world.pool()).await?;
            let counts = [found.counts.get("row").copied(), found.counts.get("reported").copied()];
            Ok(found.fraction == Some(0.5) && found.stage.as_deref() == Some("half") && counts == [Some(3), Some(1)])
        })
        .await?;
    ensure!(world.queue().job(job.id()).progress().await?.fraction == Some(0.5));
    job.cancel(world.pool()).await?;
    world.wait_for_state(job.job_ref(), JobState::Cancelled).await
}

async fn watch(world: &World) -> Result<()> {
    for by_handle in [true, false] {
        let job = Slow { ms: 400 }.enqueue(world.pool()).store(world.store).await?;
        let mut watch = if by_handle { job.watch(world.queue()) } else { world.queue().job(job.id()).watch() };
        let mut seen = Vec::new();
        while let Some(progress) = watch.next().await {
            seen.push(progress?);
        }
        let last = seen.last().context("nothing was seen")?;
        ensure!(last.over == Some(JobState::Completed), "{last:?}");
        if !seen.iter().any(|progress| progress.fraction == Some(0.5)) {
            bail!("intermediate progress was not seen: {seen:?}");
        }
    }
    Ok(())
}

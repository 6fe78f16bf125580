//! Enqueues many jobs in one call: by INSERT, by COPY, with one statement per job, or in a batch of several types.

use std::time::Duration;

use anyhow::{Result, ensure};
use queue_core::{Batch, EnqueueOutcome, Job as _, operate};

use super::{
    jobs::{Echo, Fair, Keyed, OneEach, Within, echo},
    play::{Need, OperationGroup, operations},
    world::World,
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "enqueue many",
    needs: Need::Store,
    operations: operations![
        "few" => few,
        "in a transaction" => within,
        "by COPY" => copied,
        "with ordering keys" => keyed,
        "with fair keys" => fair,
        "unique, each on its own" => each,
        "relaxed, later" => relaxed,
        "a batch of several types" => batch,
    ],
};

/// Returns the number of jobs in a queue without a worker. Each operation has its own queue.
async fn waiting(world: &World, queue: &str) -> Result<u64> {
    let filter = operate::Filter { queue: Some(queue.to_owned()), ..operate::Filter::default() };
    Ok(world.queue().jobs().matching(&filter).apply(operate::Operation::Cancel).count().await?)
}

async fn few(world: &World) -> Result<()> {
    let count = Echo::enqueue_all((0..5).map(|n| echo(n.to_string())), world.pool()).store(world.store).queue("few").await?;
    ensure!(count == 5 && waiting(world, "few").await? == 5);
    Ok(())
}

async fn within(world: &World) -> Result<()> {
    let mut tx = world.pool().begin().await?;
    let jobs = (0..1500).map(|n| echo(n.to_string()));
    let jobs = Echo::enqueue_all(jobs, &mut tx).store(world.store).queue("within").returning_ids().await?;
    ensure!(jobs.len() == 1500 && waiting(world, "within").await? == 0);
    tx.commit().await?;
    ensure!(waiting(world, "within").await? == 1500);
    Ok(())
}

async fn copied(world: &World) -> Result<()> {
    let jobs = Echo::enqueue_all((0..3000).map(|n| echo(n.to_string())), world.pool()).store(world.store).queue("copied");
    let jobs = jobs.priority(5).meta("of", "many").returning_ids().await?;
    ensure!(jobs.is_sorted_by_key(queue_core::JobHandle::id) && waiting(world, "copied").await? == 3000);
    Ok(())
}

async fn keyed(world: &World) -> Result<()> {
    let jobs = (0..30).map(|n| Keyed { key: format!("k{}", n % 3), n });
    let count = Keyed::enqueue_all(jobs, world.pool()).store(world.store).queue("keyed").await?;
    ensure!(count == 30);
    // Waits, because the first job of each key may be moving from blocked to ready. During the move, a count can include the job twice or
    // omit it.
    world.until("all are there", async || Ok(waiting(world, "keyed").await? == 30)).await
}

async fn fair(world: &World) -> Result<()> {
    let jobs = (0..30).map(|n| Fair { tenant: format!("t{}", n % 3), n });
    let count = Fair::enqueue_all(jobs, world.pool()).store(world.store).queue("fair").await?;
    ensure!(count == 30 && waiting(world, "fair").await? == 30);
    Ok(())
}

async fn each(world: &World) -> Result<()> {
    let jobs = (0..10).map(|n| OneEach { customer: n % 4, text: n.to_string() });
    let jobs = OneEach::enqueue_all(jobs, world.pool()).store(world.store).queue("each").returning_ids().await?;
    let new = jobs.iter().filter(|job| job.outcome() == EnqueueOutcome::New).count();
    ensure!(new == 4 && waiting(world, "each").await? == 4, "{new} of four are new");
    Ok(())
}

async fn relaxed(world: &World) -> Result<()> {
    let jobs = Echo::enqueue_all((0..5).map(|n| echo(n.to_string())), world.pool()).store(world.store).queue("later");
    let jobs = jobs.durability(queue_core::options::Durability::Relaxed).after(Duration::from_mins(10)).expires_in(Duration::from_mins(1));
    ensure!(jobs.max_attempts(2).await? == 5 && waiting(world, "later").await? == 5);
    Ok(())
}

async fn batch(world: &World) -> Result<()> {
    let mut batch = Batch::new().store(world.store);
    ensure!(batch.is_empty());
    batch.add(echo("of a batch"))?.queue("batch").priority(7);
    batch.add(Keyed { key: "b".to_owned(), n: 1 })?.queue("batch").meta("tenant", "acme");
    batch.add(Within { n: 1, fails_first: false })?.queue("batch").after(Duration::from_mins(10));
    ensure!(batch.len() == 3);
    let ids = batch.enqueue(world.pool()).await?;
    ensure!(ids.len() == 3);
    world.until("all are there", async || Ok(waiting(world, "batch").await? == 3)).await
}

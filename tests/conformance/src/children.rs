//! Durable jobs that spawn children and maps.

use anyhow::{Context as _, Result, ensure};
use queue_core::{Job as _, JobRef, JobState};

use super::{
    jobs::{Mapped, Mapper, Parent, Waits},
    play::{Need, OperationGroup, operations},
    world::World,
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "children",
    needs: Need::Worker,
    operations: operations![
        "spawn, join, outcome" => parent,
        "cancel a parent and its child" => cancel,
        "map, two in flight" => map,
        "map of a thousand and more" => large_map,
    ],
};

async fn parent(world: &World) -> Result<()> {
    let job = Parent {}.enqueue(world.pool()).store(world.store).await?;
    let output = world.output(job).await?;
    ensure!(output[0] == "a child" && output[1].contains("intentional terminal failure") && output[2] == "true", "{output:?}");
    let children = world.queries().await?.job(job.id()).children().await?;
    let ended: Vec<(&str, &str)> = children.iter().map(|child| (child.name.as_str(), child.current_state())).collect();
    ensure!(ended.contains(&("well", "completed")) && ended.contains(&("ill", "dead")), "{ended:?}");
    Ok(())
}

async fn cancel(world: &World) -> Result<()> {
    let job = Waits {}.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Parked).await?;
    let child = world.queue().job(job.id()).children().await?.into_iter().next().context("the job has no child")?;
    job.cancel(world.pool()).await?;
    world.wait_for_state(job.job_ref(), JobState::Cancelled).await?;
    world.wait_for_state(JobRef::from_id(child.id).in_store(world.store), JobState::Cancelled).await
}

async fn map(world: &World) -> Result<()> {
    let job = Mapper { parts: 7, most: 2 }.enqueue(world.pool()).store(world.store).await?;
    let outputs = vec![Some(0), Some(1), None, Some(3), Some(4), None, Some(6)];
    let found = world.output(job).await?;
    ensure!(found == Mapped { total: 7, completed: 5, dead: 2, outputs }, "{found:?}");
    let gathers = world.queries().await?.job(job.id()).gathers().await?;
    ensure!(!gathers.is_empty() && gathers.iter().all(|gather| (gather.completed, gather.dead) == (5, 2)), "{gathers:?}");
    Ok(())
}

async fn large_map(world: &World) -> Result<()> {
    let job = Mapper { parts: 1100, most: 400 }.enqueue(world.pool()).store(world.store).await?;
    let found = world.output(job).await?;
    ensure!((found.total, found.completed + found.dead, found.outputs.len()) == (1100, 1100, 1100));
    Ok(())
}

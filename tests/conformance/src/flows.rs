//! Flows of jobs that are enqueued together. Some of the jobs wait for other jobs and receive their results.

use anyhow::{Context as _, Result, ensure};
use queue_core::{
    Job as _, JobState,
    flow::{Flow, IfDead, NodeOutput},
    options::Durability,
};

use super::{
    jobs::{After, Both, Counted, Echo, Piece, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "flow",
    needs: Need::Worker,
    operations: operations![
        "a job after two others" => both,
        "in a transaction that rolls back" => rolled_back,
        "on dead, if dead" => dead,
        "a node with many jobs" => many,
        "nested" => nested,
        "then" => then,
        "cancel" => cancel,
        "given values in tests" => given,
    ],
};

/// Returns the name and state of each node of a flow.
async fn states(world: &World, job: queue_core::JobId) -> Result<Vec<(String, String)>> {
    let nodes = world.queries().await?.job(job).flow().await?;
    Ok(nodes.into_iter().map(|node| (node.name, node.state.unwrap_or_default())).collect())
}

fn is(found: &[(String, String)], name: &str, state: &str) -> Result<()> {
    ensure!(found.iter().any(|(node, at)| node == name && at == state), "{name} is not {state}: {found:?}");
    Ok(())
}

async fn both(world: &World) -> Result<()> {
    let mut flow = Flow::new("both").store(world.store).durability(Durability::Full);
    ensure!(flow.is_empty());
    let left = flow.add("left", echo("one"));
    let right = flow.add("right", echo("two"));
    let both = flow.add("both", Both { left: left.output(), right: right.output() });
    let last = flow.add("last", echo("last")).after(&both).with(|job| job.priority(120));
    ensure!(flow.len() == 4);
    let mut tx = world.pool().begin().await?;
    let flow = flow.enqueue(&mut tx).await?;
    tx.commit().await?;
    ensure!(world.output(flow.job(&both)).await? == "one two" && world.output(flow.job(&last)).await? == "last");
    ensure!(flow.jobs().count() == 4 && flow.jobs().next().is_some_and(|(_, job)| job == flow.id()));
    is(&states(world, flow.id()).await?, "both", "completed")?;
    let first = world.queries().await?.job(flow.id()).first_nodes(2).await?;
    ensure!(first.len() >= 2, "{first:?}");
    Ok(())
}

async fn rolled_back(world: &World) -> Result<()> {
    let mut flow = Flow::new("never").store(world.store);
    let first = flow.add("first", echo("one"));
    flow.add("second", echo("two")).after(&first);
    let mut tx = world.pool().begin().await?;
    let flow = flow.enqueue(&mut tx).await?;
    tx.rollback().await?;
    ensure!(flow.job(&first).state(world.pool()).await.is_err(), "the job exists");
    Ok(())
}

async fn dead(world: &World) -> Result<()> {
    let mut flow = Flow::new("dead").store(world.store);
    let dies = flow.add("dies", Piece { n: 1, dies: true }).if_dead(IfDead::Continue);
    let after = flow.add("after", After { before: dies.output() });
    let sorry = flow.add("sorry", echo("sorry")).on_dead(&dies);
    let not = flow.add("well", echo("well"));
    flow.add("not to run", echo("never")).on_dead(&not);
    let flow = flow.enqueue(world.pool()).await?;
    ensure!(world.output(flow.job(&after)).await? == "dead" && world.output(flow.job(&sorry)).await? == "sorry");
    world
        .until("the node that must not run is cancelled", async || {
            Ok(is(&states(world, flow.id()).await?, "not to run", "cancelled").is_ok())
        })
        .await
}

async fn many(world: &World) -> Result<()> {
    let mut flow = Flow::new("many").store(world.store);
    let pieces = (0..25).map(|n| Piece { n, dies: n == 5 });
    let pieces = flow.add_all("pieces", pieces).in_flight(4).each(|job| job.priority(90));
    let counted = flow.add("counted", Counted { counts: pieces.output() });
    let flow = flow.enqueue(world.pool()).await?;
    ensure!(world.output(flow.job(&counted)).await? == 2401);
    Ok(())
}

async fn nested(world: &World) -> Result<()> {
    let mut flow = Flow::new("outer").store(world.store);
    let first = flow.add("first", echo("first"));
    let mut inner = flow.nested("inner").after(&first);
    let one = inner.add("one", echo("inner"));
    let mut innermost = inner.nested("most").after(&one);
    innermost.add_all("many", (0..3).map(|n| Piece { n, dies: false }));
    let last = flow.add("last", echo("last")).after(&inner);
    let flow = flow.enqueue(world.pool()).await?;
    ensure!(world.output(flow.job(&last)).await? == "last");
    let found = states(world, flow.id()).await?;
    is(&found, "inner/one", "completed")?;
    is(&found, "inner/most/many", "completed")
}

async fn then(world: &World) -> Result<()> {
    let flow = Piece { n: 42, dies: false }.then(|before| After { before }).then(|_| echo("third"));
    let flow = flow.store(world.store).durability(Durability::Relaxed).enqueue(world.pool()).await?;
    let (_, last) = flow.jobs().last().context("the flow has no job")?;
    let last = queue_core::JobHandle::<Echo>::from_id(last).in_store(world.store);
    ensure!(world.output(last).await? == "third");
    let second = flow.jobs().nth(1).context("the flow has no second job")?.1;
    let second = queue_core::JobHandle::<After>::from_id(second).in_store(world.store);
    ensure!(world.output(second).await? == "42");
    Ok(())
}

async fn cancel(world: &World) -> Result<()> {
    let mut flow = Flow::new("cancelled").store(world.store);
    let first = flow.add("first", echo("one")).with(|job| job.queue(IDLE));
    let second = flow.add("second", echo("two")).after(&first);
    let flow = flow.enqueue(world.pool()).await?;
    let cancelled = world.queue().job(flow.id()).cancel_flow().await?;
    ensure!(cancelled >= 1, "{cancelled} were cancelled");
    world.wait_for_state(flow.job(&first).job_ref(), JobState::Cancelled).await?;
    world.wait_for_state(flow.job(&second).job_ref(), JobState::Cancelled).await
}

#[expect(clippy::unused_async, reason = "all operations are async")]
async fn given(_: &World) -> Result<()> {
    ensure!(NodeOutput::given(7).get() == Some(&7) && NodeOutput::<u32>::ended_as("dead").ended() == Some("dead"));
    ensure!(NodeOutput::given(7).value().is_ok() && NodeOutput::<u32>::ended_as("dead").into_value().is_err());
    Ok(())
}

//! Operations that limit or order jobs: capacities, limits, weights, pauses, priorities and keys.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use queue_core::{Error, Job as _, JobState, Queue, operate::Scope, options::Limit};

use super::{
    jobs::{Echo, Fair, Hooked, Keyed, Limited, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, SINGLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "bounds",
    needs: Need::Worker,
    operations: operations![
        "capacity" => capacity,
        "capacity with a wait" => patient,
        "limit of a type" => of_type,
        "per-key limit" => by_key,
        "limit of an operator" => by_operator,
        "limit of a queue, declared by the worker" => of_queue,
        "weights" => weights,
        "fair queueing" => turns,
        "pause, until paused, resume" => pause,
        "pause of a type" => pause_type,
        "priorities" => priorities,
        "order of a key" => order,
        "a new lane" => new_lane,
    ],
};

const FULL: &str = "full";

async fn capacity(world: &World) -> Result<()> {
    let (pool, store) = (world.pool(), world.store);
    Queue::new(pool).store(store).set_capacity(FULL, Some(1)).await?;
    let one = |text: &str| echo(text).enqueue(pool).store(store).queue(FULL);
    one("first").await?;
    ensure!(matches!(one("second").await, Err(Error::AtCapacity { capacity: 1, .. })), "the second was not refused");
    let mut tx = pool.begin().await?;
    ensure!(echo("second").enqueue(&mut tx).store(store).queue(FULL).unless_at_capacity().await?.is_none());
    let elsewhere = echo("elsewhere").enqueue(&mut tx).store(store).queue(IDLE).unless_at_capacity().await?.context("refused")?;
    tx.commit().await?;
    ensure!(elsewhere.state(pool).await? == JobState::Ready);
    let read = world.read().await?;
    for found in [Queue::new(read).store(store).capacities().await?, Queue::new(read).store(store).capacities_exactly().await?] {
        ensure!(found.iter().any(|found| found.queue == FULL && (found.capacity, found.waiting) == (1, 1)), "{found:?}");
    }
    ensure!(
        Queue::new(read).store(store).queues().await?.contains(&FULL.to_owned()) && Queue::new(read).store(store).is_queue(FULL).await?
    );
    Ok(())
}

async fn patient(world: &World) -> Result<()> {
    let (pool, store) = (world.pool(), world.store);
    let waits = |text: &str, ms| echo(text).enqueue(pool).store(store).queue(FULL).wait_for_capacity(Duration::from_millis(ms));
    ensure!(matches!(waits("in vain", 50).await, Err(Error::AtCapacity { .. })));
    let grow = async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        Queue::new(pool).store(store).set_capacity(FULL, Some(5)).await
    };
    let (job, grown) = tokio::join!(waits("in the end", 15_000), grow);
    grown?;
    ensure!(job?.state(pool).await? == JobState::Ready);
    Queue::new(pool).store(store).set_capacity(FULL, None).await?;
    ensure!(Queue::new(pool).store(store).capacities().await?.iter().all(|found| found.queue != FULL), "the queue still has a capacity");
    Ok(())
}

/// Returns the maximum number of jobs that ran at the same time, computed from the notes of their handlers.
fn max_concurrent(notes: &[String]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for note in notes {
        now = if note.starts_with("begin") { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

async fn of_type(world: &World) -> Result<()> {
    let jobs = (0..4).map(|n| Limited { account: format!("a{n}"), n });
    let jobs = Limited::enqueue_all(jobs, world.pool()).store(world.store).returning_ids().await?;
    for job in jobs {
        world.output(job).await?;
    }
    let most = max_concurrent(&world.given.noted("limited"));
    ensure!(most == 1, "{most} jobs ran at the same time");
    let found = world.queries().await?.limits().await?;
    let own = found.iter().find(|limit| limit.name == "type:conf_limited").context("the limit is not listed")?;
    ensure!(own.figures.concurrency == Some(1) && own.figures.period().is_none() && !own.by_operator, "{own:?}");
    Ok(())
}

async fn by_key(world: &World) -> Result<()> {
    let (pool, store) = (world.pool(), world.store);
    Queue::new(pool).store(store).set_limit_key("conf_service", "stopped", Some(0)).await?;
    let job = Limited { account: "stopped".to_owned(), n: 9 }.enqueue(pool).store(store).await?;
    world
        .until("it waits for its key", async || {
            let waits = Queue::new(pool).store(store).job(job.id()).limit_waits().await?;
            Ok(waits.iter().any(|wait| wait.name == "conf_service"))
        })
        .await?;
    let keys = world.queries().await?.limit_keys("conf_service").await?;
    ensure!(keys.iter().any(|key| key.concurrency == Some(0)), "{keys:?}");
    Queue::new(pool).store(store).set_limit_key("conf_service", "stopped", None).await?;
    world.output(job).await
}

async fn by_operator(world: &World) -> Result<()> {
    let (pool, store) = (world.pool(), world.store);
    let none = Limit::named("conf_service").concurrency(0).keyed();
    ensure!(none.has_values() && none.fault().is_none());
    Queue::new(pool).store(store).set_limit("type:conf_limited", Limit::job_type().concurrency(0), Some("a test")).await?;
    let found = Queue::new(pool).store(store).limits().await?;
    let own = found.iter().find(|limit| limit.name == "type:conf_limited").context("the limit is not listed")?;
    ensure!(own.by_operator && own.reason.as_deref() == Some("a test"), "{own:?}");
    let job = Limited { account: "operator".to_owned(), n: 10 }.enqueue(pool).store(store).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(job.state(pool).await? == JobState::Ready, "the job has started");
    ensure!(Queue::new(pool).store(store).unset_limit("type:conf_limited").await?);
    world.output(job).await?;
    let rate = Limit::new().name("conf_rate").rate(5, Duration::from_mins(1)).burst(2);
    Queue::new(pool).store(store).set_limit("conf_rate", rate, None).await?;
    ensure!(Queue::new(pool).store(store).unset_limit("conf_rate").await?);
    Ok(())
}

async fn of_queue(world: &World) -> Result<()> {
    let found = world.queries().await?.limits().await?;
    ensure!(found.iter().any(|limit| limit.name == "queue:others" && limit.figures.concurrency == Some(2)), "{found:?}");
    let jobs = (0..6).map(|n| echo(format!("others {n}")));
    for job in Echo::enqueue_all(jobs, world.pool()).store(world.store).queue("others").returning_ids().await? {
        world.output(job).await?;
    }
    Ok(())
}

async fn weights(world: &World) -> Result<()> {
    let (pool, store) = (world.pool(), world.store);
    Queue::new(pool).store(store).set_weight("conf_fair", "large", Some(3)).await?;
    let found = world.queries().await?.weights(Some("conf_fair")).await?;
    ensure!(found.iter().any(|weight| (weight.fair.as_str(), weight.weight) == ("large", 3)), "{found:?}");
    Queue::new(pool).store(store).set_weight("conf_fair", "large", None).await?;
    ensure!(Queue::new(pool).store(store).weights(None).await?.iter().all(|weight| weight.fair != "large"));
    Ok(())
}

/// Pauses the queue `SINGLE`, awaits `enqueue`, and resumes the queue.
async fn held<T>(world: &World, enqueue: impl Future<Output = Result<T>>) -> Result<T> {
    let scope = Scope::queue(SINGLE);
    world.queue().pause_with_reason(&scope, Some("a test")).await?;
    let paused = world.queue().until_paused(&scope).await;
    let enqueued = enqueue.await;
    world.queue().resume(&scope).await?;
    ensure!(paused?, "the queue was resumed meanwhile");
    enqueued
}

async fn turns(world: &World) -> Result<()> {
    let jobs = held(world, async {
        let tenants = ["a", "a", "a", "a", "b", "b"];
        let jobs = (0..).zip(tenants).map(|(n, tenant)| Fair { tenant: tenant.to_owned(), n }).collect::<Vec<_>>();
        Ok(Fair::enqueue_all(jobs, world.pool()).store(world.store).queue(SINGLE).returning_ids().await?)
    });
    for job in jobs.await? {
        world.output(job).await?;
    }
    let turns = world.given.noted("fair");
    let last_of_b = turns.iter().rposition(|tenant| tenant == "b");
    ensure!(turns.len() == 6 && last_of_b.is_some_and(|last| last < 4), "{turns:?}");
    Ok(())
}

async fn pause(world: &World) -> Result<()> {
    let scope = Scope::queue(SINGLE);
    let job = held(world, async {
        let job = echo("paused").enqueue(world.pool()).store(world.store).queue(SINGLE).await?;
        let found = world.queries().await?.pauses().await?;
        let own = found.iter().find(|pause| pause.scope == scope).context("the pause is not listed")?;
        ensure!(own.covers(SINGLE, "conf_echo") && own.reason.as_deref() == Some("a test"), "{own:?}");
        let awaited = world.queue().pause_awaits(&scope).await?.context("the scope is not paused")?;
        ensure!(awaited.is_empty(), "{awaited:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure!(job.state(world.pool()).await? == JobState::Ready, "the job has started");
        Ok(job)
    });
    ensure!(world.output(job.await?).await? == "paused");
    ensure!(world.queue().pauses().await?.is_empty());
    Ok(())
}

async fn pause_type(world: &World) -> Result<()> {
    let scope = Scope::job_type("conf_hooked");
    world.queue().pause(&scope).await?;
    let known = world.queries().await?.job_types().await?;
    ensure!(known.contains(&"conf_echo".to_owned()), "{known:?}");
    world
        .until("workers know of the pause", async || {
            Ok(world.queue().pause_awaits(&scope).await?.context("the scope is not paused")?.is_empty())
        })
        .await?;
    let paused = Hooked {}.enqueue(world.pool()).store(world.store).await?;
    let other = echo("of another type").enqueue(world.pool()).store(world.store).await?;
    world.output(other).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(paused.state(world.pool()).await? == JobState::Ready, "the job has started");
    ensure!(world.queue().resume(&scope).await?);
    world.output(paused).await?;
    Ok(())
}

async fn priorities(world: &World) -> Result<()> {
    let enqueue = async |text: &str| {
        let mut jobs = Vec::new();
        for priority in [1, 30, 100, 150] {
            let job = echo(format!("{text} {priority}")).enqueue(world.pool()).store(world.store);
            jobs.push(job.queue(SINGLE).priority(priority).await?);
        }
        Ok(jobs)
    };
    // A worker discovers a new lane with a delay. The first jobs create the lanes, so that the worker already knows the lanes of the jobs
    // whose order is checked.
    for job in enqueue("before those of priority").await? {
        world.output(job).await?;
    }
    for job in held(world, enqueue("of priority")).await? {
        world.output(job).await?;
    }
    let echoes = world.given.noted("echo");
    let ran: Vec<&str> = echoes.iter().filter_map(|text| text.strip_prefix("of priority ")).collect();
    ensure!(ran == ["150", "100", "30", "1"], "{ran:?}");
    Ok(())
}

async fn order(world: &World) -> Result<()> {
    let jobs = (0..10).map(|n| Keyed { key: "ordered".to_owned(), n });
    for job in Keyed::enqueue_all(jobs, world.pool()).store(world.store).returning_ids().await? {
        world.output(job).await?;
    }
    let ran = world.given.noted("keyed ordered");
    ensure!(ran == (0..10).map(|n| n.to_string()).collect::<Vec<_>>(), "{ran:?}");
    Ok(())
}

/// Checks that a job in a new lane runs within 5 s. No worker has seen its combination of queue, type and priority before.
async fn new_lane(world: &World) -> Result<()> {
    let began = std::time::Instant::now();
    let job = echo("of a new lane").enqueue(world.pool()).store(world.store).priority(fastrand::i16(1000..30_000)).await?;
    world.output(job).await?;
    ensure!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    Ok(())
}

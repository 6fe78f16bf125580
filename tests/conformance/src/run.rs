//! Runs jobs: completions, retries, final failures, and writes in job transactions.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use queue_core::{
    Context, Failure, Job as _, JobRef, JobState, Keyring, Secret,
    middleware::{AttemptOutput, Middleware, Next, async_trait, on_enqueue},
    options::{Durability, Limit, TraceRelation},
    schedule::Schedule,
    use_keyring,
};
use queue_worker::{Config, OnStandby, Worker};
use tokio::sync::oneshot;

use super::{
    handlers::HandlerState,
    jobs::{
        After, Both, Checkpointed, ContextReport, Counted, Echo, Fair, First, Gone, Hooked, Keyed, Lax, Limited, LogWriter, Mapper,
        OneEach, Own, Parent, Piece, Receives, Restarting, Sealed, Sleeps, Slow, Steps, Ticks, Together, Try, Versioned, Waits, Within,
        echo,
    },
    play::{Need, OperationGroup, operations},
    world::{RunningWorker, SINGLE, World},
};

pub(super) const STARTED: OperationGroup = OperationGroup { name: "worker", needs: Need::Store, operations: operations!["run" => start,] };

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "run",
    needs: Need::Worker,
    operations: operations![
        "complete" => complete,
        "fail and retry" => |world| retried(world, First::Fail, 2),
        "panic and retry" => |world| retried(world, First::Panic, 2),
        "time out and retry" => |world| retried(world, First::Hang, 2),
        "retry in" => |world| retried(world, First::RetryIn, 2),
        "slow down" => |world| retried(world, First::SlowDown, 2),
        "snooze" => |world| retried(world, First::Snooze, 1),
        "fail permanently" => |world| dies(world, First::Terminal, 1),
        "fail the last attempt" => |world| dies(world, First::Always, 2),
        "context" => context,
        "checkpoint" => checkpoint,
        "transactional" => transactional,
        "own transaction, complete" => own,
        "own transaction, fail" => own_fails,
        "batch" => batch,
        "upgrade of an earlier version" => upgraded,
        "alias" => alias,
        "sealed payload" => sealed,
        "retain none" => gone,
        "enqueue hook" => hooked,
        "worker middleware and hooks" => hooks,
        "many jobs" => many,
    ],
};

/// Middleware that records each attempt in the handler state.
struct Noting(HandlerState);

#[async_trait]
impl Middleware for Noting {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        self.0.note("middleware", cx.job_type());
        next.run().await
    }
}

async fn start(world: &World) -> Result<()> {
    use_keyring(
        "conformance",
        Keyring::new("now", Secret::new([7; 32])).older("before", Secret::new([6; 32])).hashing(Secret::new([5; 32])),
    )?;
    on_enqueue(|job| {
        if job.job_type() == "conf_hooked" {
            let queue = job.queue().to_owned();
            job.meta("hooked", queue);
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, is_ready) = oneshot::channel();
    let outcomes = world.given.clone();
    let mut worker = Worker::new(world.pool().clone())
        .config(Config::default())
        .direct(world.direct())
        .store(world.store)
        .name("conformance")
        .queue("default", 20)
        .queue(SINGLE, 1)
        .queue("others", 4)
        .limit("others", Limit::queue().concurrency(2))
        .concurrency(20)
        .batch(100)
        .connections(6)
        .payload_memory(256)
        .aging(Duration::from_mins(1))
        .poll_interval(Duration::from_secs(1))
        .lease_ttl(Duration::from_secs(20))
        .grace(Duration::from_secs(5))
        .cancel_grace(Duration::from_secs(2))
        .retention(Duration::from_hours(24))
        .dead_retention(Duration::from_hours(24))
        .on_standby(OnStandby::Exit)
        .durability(Durability::Full)
        .trace(TraceRelation::Link)
        .health(([127, 0, 0, 1], 0).into())
        .state(world.given.clone())
        .middleware(Noting(world.given.clone()))
        .schedule("conf_declared", Schedule::every(Duration::from_secs(1)).job(&echo("declared")))
        .on_outcome(move |attempt| {
            outcomes.note("outcome", format!("{} {}", attempt.job, attempt.attempt));
        })
        .on_ready(move || ready.send(()).unwrap_or_default());
    ensure!(worker.pool().size() > 0, "the worker does not use the given pool");
    worker = worker.register::<Echo>().register::<Try>().register::<Slow>().register::<Checkpointed>().register::<ContextReport>();
    worker = worker.register::<Within>().register::<Own>().register_batch::<Together>().register::<Steps>().register::<Sleeps>();
    worker = worker.register::<Receives>().register::<Restarting>().register::<Parent>().register::<Waits>().register::<Mapper>();
    worker = worker.register::<Piece>().register::<Both>().register::<After>().register::<Counted>().register::<Fair>();
    worker = worker.register::<Keyed>().register::<OneEach>().register::<Limited>().register::<LogWriter>().register::<Versioned>();
    worker = worker.register::<Sealed>().register::<Gone>().register::<Lax>().register::<Ticks>().register::<Hooked>();
    let mut task = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    tokio::select! {
        ready = is_ready => ready.context("the worker stopped before it was ready")?,
        ended = &mut task => {
            ended??;
            anyhow::bail!("the worker stopped by itself");
        }
    }
    world.runs(RunningWorker { stop, task });
    Ok(())
}

async fn complete(world: &World) -> Result<()> {
    let job = echo("complete").enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == "complete");
    Ok(())
}

/// Enqueues a job that must complete when its handler runs for the second time. Checks that this attempt has the number `attempt`.
async fn retried(world: &World, first: First, attempt: u32) -> Result<()> {
    let job = Try { first }.enqueue(world.pool()).store(world.store).await?;
    let completed = world.output(job).await?;
    let calls = world.given.noted(&format!("try {}", job.id())).len();
    ensure!((completed, calls) == (attempt, 2), "completed in attempt {completed}, after {calls} calls");
    Ok(())
}

async fn dies(world: &World, first: First, attempts: i16) -> Result<()> {
    let job = Try { first }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Dead).await?;
    let found = JobRef::status(&job, world.pool()).await?;
    ensure!(found.attempts == attempts && found.error.is_some(), "{} attempts, {:?}", found.attempts, found.error);
    Ok(())
}

async fn context(world: &World) -> Result<()> {
    let job = ContextReport {}.enqueue(world.pool()).store(world.store).meta("tenant", "acme").await?;
    let facts = world.output(job).await?;
    let id = job.id().to_string();
    let expected = [
        ("id", id.as_str()),
        ("job_type", "conf_context"),
        ("version", "1"),
        ("attempt", "1"),
        ("max_attempts", "7"),
        ("is_last_attempt", "false"),
        ("in order", "true"),
        ("meta", "\"acme\""),
        ("pool", "1"),
        ("state", "true"),
        ("no state", "true"),
    ];
    for (name, value) in expected {
        ensure!(facts.get(name).is_some_and(|fact| fact == value), "{name} is {:?}", facts.get(name));
    }
    Ok(())
}

async fn checkpoint(world: &World) -> Result<()> {
    let job = Checkpointed {}.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == 41);
    Ok(())
}

async fn transactional(world: &World) -> Result<()> {
    let job = Within { n: 5, fails_first: true }.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == 5);
    ensure!(world.effects(job.job_ref()).await? == [5], "the failed attempt's write was committed, or the other one's was not");
    world
        .until("the job that it enqueued has run", async || {
            Ok(world.given.noted("echo").iter().filter(|text| *text == "within 5").count() == 1)
        })
        .await
}

async fn own(world: &World) -> Result<()> {
    let job = Own { n: 6, dies: false }.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == 6);
    ensure!(world.effects(job.job_ref()).await? == [6], "the dropped transaction's write was committed, or the other one's was not");
    world.until("the job that it enqueued has run", async || Ok(world.given.noted("echo").contains(&"own 6".to_owned()))).await
}

async fn own_fails(world: &World) -> Result<()> {
    let job = Own { n: 8, dies: true }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(job.job_ref(), JobState::Dead).await?;
    ensure!(world.effects(job.job_ref()).await? == [8], "its write was not committed");
    Ok(())
}

async fn batch(world: &World) -> Result<()> {
    let jobs = (0..12).map(|n| Together { n: if n == 3 { -1 } else { n } });
    let jobs = Together::enqueue_all(jobs, world.pool()).store(world.store).returning_ids().await?;
    for (n, job) in jobs.into_iter().enumerate() {
        if n == 3 {
            world.wait_for_state(job.job_ref(), JobState::Dead).await?;
        } else {
            ensure!(world.output(job).await? >= 1);
        }
    }
    let sizes = world.given.noted("batch");
    ensure!(sizes.iter().any(|size| size != "1"), "the jobs ran one by one: {sizes:?}");
    Ok(())
}

async fn upgraded(world: &World) -> Result<()> {
    let old = r#"select queue.enqueue('conf_versioned', '{"word": "old"}')"#;
    let id: i64 = sqlx::query_scalar(world.store.sql(old)).fetch_one(world.pool()).await?;
    let old = queue_core::JobHandle::<Versioned>::from_id(queue_core::JobId(id)).in_store(world.store);
    let new = Versioned { words: vec!["new".to_owned()] }.enqueue(world.pool()).store(world.store).await?;
    let outputs = (world.output(old).await?, world.output(new).await?);
    ensure!(outputs.0 == "old of version 1" && outputs.1 == "new of version 2", "{outputs:?}");
    Ok(())
}

async fn alias(world: &World) -> Result<()> {
    let old = r#"select queue.enqueue('conf_tried_before', '{"first": "Complete"}')"#;
    let id: i64 = sqlx::query_scalar(world.store.sql(old)).fetch_one(world.pool()).await?;
    let job = queue_core::JobHandle::<Try>::from_id(queue_core::JobId(id)).in_store(world.store);
    ensure!(world.output(job).await? == 1);
    Ok(())
}

async fn sealed(world: &World) -> Result<()> {
    let job = Sealed { card: "4242424242".to_owned() }.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await? == 10);
    let stored = job.find(world.pool()).await?.payload.map(|payload| payload.get().to_owned()).unwrap_or_default();
    ensure!(!stored.contains("4242"), "the payload is stored in clear");
    Ok(())
}

async fn gone(world: &World) -> Result<()> {
    let job = Gone {}.enqueue(world.pool()).store(world.store).await?;
    world.until("no record is left", async || Ok(matches!(job.state(world.pool()).await, Err(queue_core::Error::NotFound { .. })))).await?;
    ensure!(!world.given.noted("gone").is_empty(), "the job has not run");
    Ok(())
}

async fn hooked(world: &World) -> Result<()> {
    let job = Hooked {}.enqueue(world.pool()).store(world.store).await?;
    ensure!(world.output(job).await?.as_deref() == Some("\"default\""));
    Ok(())
}

async fn hooks(world: &World) -> Result<()> {
    let job = echo("told").enqueue(world.pool()).store(world.store).await?;
    world.output(job).await?;
    ensure!(world.given.noted("middleware").contains(&"conf_echo".to_owned()), "the middleware was not called");
    ensure!(world.given.noted("outcome").contains(&format!("{} 1", job.id())), "the hook was not called");
    Ok(())
}

async fn many(world: &World) -> Result<()> {
    let jobs = Echo::enqueue_all((0..500).map(|n| echo(format!("many {n}"))), world.pool()).store(world.store).returning_ids().await?;
    let outputs = futures_util::future::try_join_all(jobs.into_iter().map(|job| world.output(job))).await?;
    ensure!((0..).zip(outputs).all(|(n, output)| output == format!("many {n}")));
    Ok(())
}

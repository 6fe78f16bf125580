//! Enqueues single jobs in every form and on every kind of connection. The jobs do not run: no worker serves the queue `IDLE`, and the only
//! job in another queue is scheduled for later.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::{TimeDelta, Utc};
use queue_core::{
    EnqueueOutcome, Job as _, JobHandle, JobRef, JobState, OnConflict, Priority, Queue,
    drivers::Rendered,
    operate::JobRecord,
    options::{Durability, KeyPolicy, While},
};
use sqlx::PgConnection;

use super::{
    jobs::{Echo, Fair, Keyed, Lax, OneEach, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "enqueue",
    needs: Need::Store,
    operations: operations![
        "plain, on a pool" => plain,
        "on a connection" => on_connection,
        "in a transaction that commits" => committed,
        "in a transaction that rolls back" => rolled_back,
        "queue, priority, attempts" => options,
        "after, at" => later,
        "ordering key" => keyed,
        "fair key" => fair,
        "unique, keep" => unique_keep,
        "unique, replace" => unique_replace,
        "unique, debounce" => unique_debounce,
        "unique by fields" => unique_fields,
        "expires" => expires,
        "metadata" => meta,
        "relaxed" => relaxed,
        "rendered" => rendered,
        "by name" => by_name,
        "handle" => handle,
    ],
};

async fn is_ready(world: &World, job: JobRef) -> Result<()> {
    let state = job.state(world.pool()).await?;
    ensure!(state == JobState::Ready, "the job is {state}");
    Ok(())
}

async fn plain(world: &World) -> Result<()> {
    let job = echo("plain").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    is_ready(world, job.job_ref()).await
}

async fn on_connection(world: &World) -> Result<()> {
    let mut on = world.pool().acquire().await?;
    let borrowed = echo("on a pool's connection").enqueue(&mut on).store(world.store).queue(IDLE).await?;
    let bare: &mut PgConnection = &mut on;
    let bare = echo("on a connection").enqueue(bare).store(world.store).queue(IDLE).await?;
    drop(on);
    is_ready(world, borrowed.job_ref()).await?;
    is_ready(world, bare.job_ref()).await
}

async fn committed(world: &World) -> Result<()> {
    let mut tx = world.pool().begin().await?;
    let job = echo("committed").enqueue(&mut tx).store(world.store).queue(IDLE).await?;
    ensure!(job.state(world.pool()).await.is_err(), "the job is visible before the commit");
    tx.commit().await?;
    is_ready(world, job.job_ref()).await
}

async fn rolled_back(world: &World) -> Result<()> {
    let mut tx = world.pool().begin().await?;
    let job = echo("rolled back").enqueue(&mut tx).store(world.store).queue(IDLE).await?;
    tx.rollback().await?;
    ensure!(matches!(job.state(world.pool()).await, Err(queue_core::Error::NotFound { .. })), "the job exists");
    Ok(())
}

async fn options(world: &World) -> Result<()> {
    let job = echo("options").enqueue(world.pool()).store(world.store).queue(IDLE).priority(Priority::EXPLICIT).max_attempts(3).await?;
    let found = job.find(world.pool()).await?;
    ensure!((found.queue.as_str(), found.priority, found.max_attempts) == (IDLE, 150, 3), "{found:?}");
    Ok(())
}

async fn later(world: &World) -> Result<()> {
    let hour = Duration::from_hours(1);
    let after = echo("after").enqueue(world.pool()).store(world.store).queue(IDLE).after(hour).await?;
    let at = echo("at").enqueue(world.pool()).store(world.store).queue(IDLE).at(Utc::now() + TimeDelta::hours(1)).await?;
    for job in [after, at] {
        let found = job.find(world.pool()).await?;
        let wait = found.run_at.context("the job has no start time")? - found.enqueued_at;
        ensure!(found.state == JobState::Scheduled && (wait.num_minutes() - 60).abs() <= 5, "{} in {wait}", found.state);
    }
    Ok(())
}

async fn keyed(world: &World) -> Result<()> {
    let job = |n| Keyed { key: "one".to_owned(), n }.enqueue(world.pool()).store(world.store).queue(IDLE);
    let (first, second) = (job(1).await?, job(2).await?);
    let other = job(3).key("another").key_policy(KeyPolicy::Skip).await?;
    let states = [first.state(world.pool()).await?, second.state(world.pool()).await?, other.state(world.pool()).await?];
    ensure!(states == [JobState::Ready, JobState::Blocked, JobState::Ready], "{states:?}");
    let line = world.queries().await?.jobs_of_key(IDLE, "one", 10).await?;
    ensure!(line.jobs.iter().map(|job| job.id).eq([first.id(), second.id()]), "{:?}", line.jobs);
    Ok(())
}

async fn fair(world: &World) -> Result<()> {
    let own = Fair { tenant: "acme".to_owned(), n: 1 }.enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let given = echo("fair").enqueue(world.pool()).store(world.store).queue(IDLE).fair("acme").await?;
    is_ready(world, own.job_ref()).await?;
    is_ready(world, given.job_ref()).await
}

async fn unique(world: &World, key: &str, text: &str, on_conflict: OnConflict) -> Result<JobHandle<Echo>> {
    let job = echo(text).enqueue(world.pool()).store(world.store).queue(IDLE).unique(key).unique_while(While::Queued);
    Ok(job.on_conflict(on_conflict).after(Duration::from_mins(10)).await?)
}

fn payload(record: &JobRecord) -> &str {
    record.payload.as_ref().map(|payload| payload.get()).unwrap_or_default()
}

async fn unique_keep(world: &World) -> Result<()> {
    let first = unique(world, "keep", "first", OnConflict::Keep).await?;
    let second = unique(world, "keep", "second", OnConflict::Keep).await?;
    ensure!((first.outcome(), second.outcome()) == (EnqueueOutcome::New, EnqueueOutcome::Kept) && first.id() == second.id());
    ensure!(payload(&first.find(world.pool()).await?).contains("first"));
    Ok(())
}

async fn unique_replace(world: &World) -> Result<()> {
    let first = unique(world, "replace", "first", OnConflict::Replace).await?;
    let second = unique(world, "replace", "second", OnConflict::Replace).await?;
    ensure!(second.outcome() == EnqueueOutcome::Replaced && first.id() == second.id(), "{:?}", second.outcome());
    ensure!(payload(&first.find(world.pool()).await?).contains("second"));
    Ok(())
}

async fn unique_debounce(world: &World) -> Result<()> {
    let first = unique(world, "debounce", "first", OnConflict::Debounce).await?;
    let before = first.find(world.pool()).await?.run_at;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = unique(world, "debounce", "second", OnConflict::Debounce).await?;
    ensure!(second.outcome() == EnqueueOutcome::Debounced && first.id() == second.id(), "{:?}", second.outcome());
    ensure!(first.find(world.pool()).await?.run_at > before, "the start time was not moved");
    Ok(())
}

async fn unique_fields(world: &World) -> Result<()> {
    let one = |text: &str| OneEach { customer: 7, text: text.to_owned() }.enqueue(world.pool()).store(world.store).queue(IDLE);
    let (first, second) = (one("first").await?, one("second").await?);
    ensure!(second.outcome() == EnqueueOutcome::Replaced && first.id() == second.id(), "{:?}", second.outcome());
    let timed = |text: &str| one(text).unique("for a time").unique_while(While::For(Duration::from_hours(1)));
    let (first, second) = (timed("first").await?, timed("second").await?);
    ensure!(first.id() == second.id());
    Ok(())
}

async fn expires(world: &World) -> Result<()> {
    let within = echo("expires in").enqueue(world.pool()).store(world.store).queue("others").after(Duration::from_mins(10));
    let within = within.expires_in(Duration::from_mins(10)).await?;
    let by = echo("expires at").enqueue(world.pool()).store(world.store).queue(IDLE).expires_at(Utc::now() + TimeDelta::hours(1)).await?;
    for job in [within, by] {
        let system = job.find(world.pool()).await?.system.map(|system| system.get().to_owned()).unwrap_or_default();
        ensure!(system.contains("expires_at"), "{system}");
    }
    Ok(())
}

async fn meta(world: &World) -> Result<()> {
    let job = echo("meta").enqueue(world.pool()).store(world.store).queue(IDLE).meta("tenant", "acme").meta("n", 7).await?;
    let meta: serde_json::Value = serde_json::from_str(job.find(world.pool()).await?.meta.context("none")?.get())?;
    ensure!(meta["tenant"] == "acme" && meta["n"] == 7, "{meta}");
    Ok(())
}

async fn relaxed(world: &World) -> Result<()> {
    let handle = echo("relaxed").enqueue(world.pool()).store(world.store).queue(IDLE).durability(Durability::Relaxed).await?;
    let by_type = Lax {}.enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    is_ready(world, handle.job_ref()).await?;
    is_ready(world, by_type.job_ref()).await
}

/// Executes a rendered enqueue statement through sqlx, as another driver would.
async fn send<J>(on: &mut PgConnection, rendered: &Rendered<J>) -> Result<JobHandle<J>> {
    let statement = rendered.parameters().into_iter().fold(sqlx::query_as(rendered.sql()), sqlx::query::QueryAs::bind);
    let (id, outcome): (i64, String) = statement.fetch_one(on).await?;
    Ok(rendered.handle(id, &outcome))
}

async fn rendered(world: &World) -> Result<()> {
    let rendered = echo("rendered").statement().store(world.store).queue(IDLE).priority(3).unique("rendered").build()?;
    let mut tx = world.pool().begin().await?;
    let job = send(&mut tx, &rendered).await?;
    let again = send(&mut tx, &rendered).await?;
    tx.commit().await?;
    ensure!(again.outcome() == EnqueueOutcome::Kept && again.id() == job.id());
    ensure!(job.find(world.pool()).await?.priority == 3);
    Ok(())
}

async fn by_name(world: &World) -> Result<()> {
    let payload = serde_json::value::to_raw_value(&echo("by name"))?;
    let options = serde_json::json!({ "queue": IDLE, "unique_key": "by name" });
    let queue = Queue::new(world.pool()).store(world.store);
    let (job, outcome) = queue.enqueue_json("conf_echo", &payload, &options).await?;
    let (again, kept) = queue.enqueue_json("conf_echo", &payload, &options).await?;
    ensure!((outcome, kept) == (EnqueueOutcome::New, EnqueueOutcome::Kept) && job.id() == again.id());
    is_ready(world, job).await
}

async fn handle(world: &World) -> Result<()> {
    let job = echo("handle").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let elsewhere = JobHandle::<Echo>::from_id(job.id()).in_store(world.store);
    let untyped = JobRef::from_id(job.id()).in_store(world.store);
    ensure!(elsewhere.job_ref().id() == untyped.id() && elsewhere.store() == untyped.store());
    ensure!(job.id().enqueued_at().is_some() && job.outcome() == EnqueueOutcome::New);
    is_ready(world, untyped).await
}

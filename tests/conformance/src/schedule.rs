//! Schedules that are created by calls, or declared by job types and by the worker. The schedules are listed, paused, run early and
//! removed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chrono::Utc;
use queue_core::{
    JobId, JobRef, JobState,
    schedule::{DeclaredSchedule, Missed, Overlap, Schedule},
};
use serde_json::json;

use super::{
    jobs::{Ticks, echo},
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "schedule",
    needs: Need::Worker,
    operations: operations![
        "create, list, find" => create,
        "ticks" => ticks,
        "cron every second" => cron,
        "declared by a type, and by the worker" => declared,
        "pause and resume" => pause,
        "run now" => run_now,
        "skip the next" => skip_next,
        "schedule of an unknown type" => of_others,
        "refuse an invalid schedule" => refused,
        "delete" => delete,
    ],
};

const HOURLY: &str = "conf_hourly";

async fn create(world: &World) -> Result<()> {
    let hourly = Schedule::cron("0 * * * *").tz("Europe/Berlin").missed(Missed::Skip).grace(Duration::from_secs(30));
    let hourly = hourly.overlap(Overlap::Allow).jitter(Duration::from_secs(1));
    let hourly = hourly.job_with(&echo("hourly"), |options| {
        options.queue(IDLE).meta("of", "a schedule");
    });
    ensure!(hourly.next(Utc::now(), 3)?.len() == 3);
    world.queue().schedule(HOURLY).create(&hourly).await?;
    let all = world.queries().await?.schedules().await?;
    ensure!(all.iter().any(|found| found.name == HOURLY), "{all:?}");
    let found = world.queries().await?.schedule(HOURLY).find().await?;
    ensure!(found.tz == "Europe/Berlin" && found.next(2).len() == 2, "{found:?}");
    Ok(())
}

/// Waits until a schedule has enqueued a job, and returns the job's id.
async fn fired(world: &World, name: &str) -> Result<JobId> {
    let mut job = None;
    world
        .until("a tick has had its job", async || {
            let fires = world.queue().schedule(name).ticks(5).await?;
            job = fires.iter().find_map(|fire| fire.job);
            Ok(job.is_some())
        })
        .await?;
    job.context("the schedule has no job")
}

async fn ticks(world: &World) -> Result<()> {
    let each_second = Schedule::every(Duration::from_secs(1)).job(&echo("each second"));
    world.queue().schedule("conf_second").create(&each_second).await?;
    let job = JobRef::from_id(fired(world, "conf_second").await?).in_store(world.store);
    world.wait_for_state(job, JobState::Completed).await
}

async fn cron(world: &World) -> Result<()> {
    let each_second = Schedule::cron("* * * * * *").job(&echo("each second"));
    world.queue().schedule("conf_cron").create(&each_second).await?;
    fired(world, "conf_cron").await?;
    world.queue().schedule("conf_cron").delete().await?;
    Ok(())
}

async fn declared(world: &World) -> Result<()> {
    let (name, _) = DeclaredSchedule::of::<Ticks>().named().context("the type declares none")?;
    for name in [name.as_str(), "conf_declared"] {
        fired(world, name).await?;
    }
    world.until("a job of the type has run, and knows its tick", async || Ok(world.given.noted("ticks").contains(&name))).await
}

async fn pause(world: &World) -> Result<()> {
    world.queue().schedule("conf_second").pause().await?;
    ensure!(world.queue().schedule("conf_second").find().await?.paused_at.is_some());
    world.queue().schedule("conf_second").resume().await?;
    ensure!(world.queue().schedule("conf_second").find().await?.paused_at.is_none());
    Ok(())
}

async fn run_now(world: &World) -> Result<()> {
    let job = world.queue().schedule(HOURLY).run_now().await?;
    ensure!(JobRef::from_id(job).in_store(world.store).state(world.pool()).await? == JobState::Ready);
    Ok(())
}

async fn skip_next(world: &World) -> Result<()> {
    let is_planned = async || Ok(world.queue().schedule(HOURLY).find().await?.next_at.is_some());
    world.until("a worker has planned it", is_planned).await?;
    let skipped = world.queue().schedule(HOURLY).skip_next().await?;
    let found = world.queue().schedule(HOURLY).find().await?;
    ensure!(found.skip_at == Some(skipped), "{found:?}");
    Ok(())
}

async fn of_others(world: &World) -> Result<()> {
    let first = Schedule::every(Duration::from_hours(1)).job_json("of_others", &json!({"a": 1}));
    let later = Schedule::every(Duration::from_hours(1)).job_json_version("of_others", 2, &json!({"a": 1}));
    world.queue().schedule("conf_others").create(&first).await?;
    world.queue().schedule("conf_others").create(&later).await?;
    let found = world.queue().schedule("conf_others").find().await?;
    ensure!(found.job_type == "of_others", "{found:?}");
    world.queue().schedule("conf_others").delete().await?;
    Ok(())
}

async fn refused(world: &World) -> Result<()> {
    let wrong = Schedule::cron("61 * * * *").job(&echo("never"));
    ensure!(world.queue().schedule("conf_wrong").create(&wrong).await.is_err());
    ensure!(world.queue().schedule("conf_wrong").find().await.is_err());
    Ok(())
}

async fn delete(world: &World) -> Result<()> {
    for name in [HOURLY, "conf_second"] {
        world.queue().schedule(name).delete().await?;
        ensure!(world.queue().schedule(name).find().await.is_err(), "{name} still exists");
    }
    Ok(())
}

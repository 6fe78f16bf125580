//! The schedules of a run, and an account of their ticks: each that was due stands in the history, and has one job at most.
//!
//! Knows what every user can read: schedules, fires and jobs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use queue_core::{
    Context, Handler, JobResult, Store, job,
    schedule::{self, Overlap, Schedule},
};
use serde::{Deserialize, Serialize};

use super::server::Database;

/// The job of a tick. It has no number, so the other checks know nothing of it.
#[job(name = "chaos_tick", queue = "ticks", max_attempts = 1000, backoff = fixed("100ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Tick {}

impl Handler for Tick {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// What workers of a run declare.
pub(super) const DECLARED: &str = "declared";

/// However long everything was away, each tick counts.
const GRACE: Duration = Duration::from_hours(1);

/// For what is due to be seen to, once nothing disturbs it any more.
const PATIENCE: Duration = Duration::from_mins(1);

/// Each second.
pub(super) fn each_second() -> Schedule {
    Schedule::every(Duration::from_secs(1)).grace(GRACE).overlap(Overlap::Allow).job(&Tick {})
}

/// What came of the ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub(super) struct Account {
    #[serde(rename = "cron_ticks")]
    pub(super) due: i64,
    /// Due, and not fired: there is no word of them, or another than of a job.
    #[serde(rename = "cron_missed")]
    pub(super) missed: i64,
    /// Jobs beyond the one of their tick.
    #[serde(rename = "cron_doubled")]
    pub(super) doubled: i64,
}

/// Makes so many schedules, of three sorts.
pub(super) async fn make(database: &Database, count: usize) -> Result<()> {
    for place in 0..count {
        let schedule = match place % 3 {
            0 => each_second(),
            1 => each_second().jitter(Duration::from_millis(900)),
            _ => each_second().overlap(Overlap::Queue),
        };
        schedule::create(&database.pool, Store::default(), &format!("made{place}"), &schedule).await?;
    }
    Ok(())
}

/// Lets everything that is due be seen to, ends all ticks, and counts them.
pub(super) async fn account(database: &Database) -> Result<Account> {
    const BEHIND: &str = "select count(*) from queue.schedule where next_at is null or next_at < now() - interval '1 s'";
    const END: &str = "update queue.schedule set paused_at = now()";
    /// From when it was made up to its next one every second is a tick of each, and that is not far behind when it was paused.
    const ACCOUNT: &str = "
      with due as (
        select s.name, greatest(floor(extract(epoch from s.paused_at)) - 3, floor(extract(epoch from s.next_at)) - 1)
            - floor(extract(epoch from s.since)) as ticks
        from queue.schedule s
      ), fired as (
        select f.name, f.tick
        from queue.fire f join queue.job j on j.id = f.job and j.system ->> 'schedule' = f.name
        where f.outcome = 'enqueued'
      )
      select (select coalesce(sum(ticks), 0) from due)::bigint as due,
        (select coalesce(sum(greatest(d.ticks - (select count(*) from fired f where f.name = d.name), 0)), 0) from due d)::bigint as missed,
        ((select count(*) from queue.job j where j.system ? 'tick') - (select count(*) from fired)) as doubled";
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && database.count(BEHIND).await? > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    sqlx::query(END).execute(&database.pool).await?;
    let account: Account = sqlx::query_as(ACCOUNT).fetch_one(&database.pool).await?;
    ensure!(account.due > 0, "there were no ticks");
    Ok(account)
}

impl Account {
    /// What must not be.
    pub(super) fn wrong(self) -> usize {
        usize::try_from(self.missed + self.doubled).unwrap_or(usize::MAX)
    }
}

//! Creates the schedules of a run and checks their ticks. Each due tick must be recorded in `queue.fire` and have exactly one job.
//!
//! Reads only data that users can read: schedules, fired ticks and jobs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use queue_core::{
    Context, Handler, JobResult, Queue, job,
    schedule::{Overlap, Schedule},
};
use serde::{Deserialize, Serialize};

use super::server::Database;

/// Job that a tick enqueues. The job has no number, so the other checks ignore it.
#[job(name = "chaos_tick", queue = "ticks", max_attempts = 1000, backoff = fixed("100ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Tick {}

impl Handler for Tick {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Name of the schedule that the workers of a run declare.
pub(super) const DECLARED: &str = "declared";

/// Grace period of the schedules, long enough that ticks remain due even after a long outage.
const GRACE: Duration = Duration::from_hours(1);

/// Time limit for processing due ticks after the last fault.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns a schedule with one tick per second.
pub(super) fn each_second() -> Schedule {
    Schedule::every(Duration::from_secs(1)).grace(GRACE).overlap(Overlap::Allow).job(&Tick {})
}

/// Numbers of due ticks and of violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub(super) struct TickCounts {
    #[serde(rename = "cron_ticks")]
    pub(super) due: i64,
    /// Number of due ticks that did not fire, or whose outcome is not an enqueued job.
    #[serde(rename = "cron_missed")]
    pub(super) missed: i64,
    /// Number of jobs in excess of one per tick.
    #[serde(rename = "cron_doubled")]
    pub(super) doubled: i64,
}

/// Creates `count` schedules with one tick per second. One third has jitter, and one third has `Overlap::Queue` instead of
/// `Overlap::Allow`.
pub(super) async fn make(database: &Database, count: usize) -> Result<()> {
    for place in 0..count {
        let schedule = match place % 3 {
            0 => each_second(),
            1 => each_second().jitter(Duration::from_millis(900)),
            _ => each_second().overlap(Overlap::Queue),
        };
        Queue::new(&database.pool).schedule(&format!("made{place}")).create(&schedule).await?;
    }
    Ok(())
}

/// Waits until all due ticks are processed, at most for `PATIENCE`. Then pauses all schedules and returns the counts.
pub(super) async fn account(database: &Database) -> Result<TickCounts> {
    const BEHIND: &str = "select count(*) from queue.schedule where next_at is null or next_at < now() - interval '1 s'";
    const END: &str = "update queue.schedule set paused_at = now()";
    /// Query that counts the ticks. A schedule has one due tick per second from its creation until its next tick, or until three seconds
    /// before the pause if that is later. The next tick is earlier only if due ticks were not processed.
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
    let account: TickCounts = sqlx::query_as(ACCOUNT).fetch_one(&database.pool).await?;
    ensure!(account.due > 0, "there were no ticks");
    Ok(account)
}

impl TickCounts {
    /// Returns the number of violations.
    pub(super) fn wrong(self) -> usize {
        usize::try_from(self.missed + self.doubled).unwrap_or(usize::MAX)
    }
}

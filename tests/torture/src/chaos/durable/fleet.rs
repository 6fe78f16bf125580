//! Deployment test with sleeping jobs. While all jobs sleep, all workers are killed. Workers of another release, which has the steps in a
//! different order, then continue the jobs.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use super::{account, account::DurableFindings, drain, work::STRIDE};
use crate::chaos::{history::Clock, inject::Fault, plan::Kind, processes::ProcessGroup, server::TestServer};

/// Number of jobs per enqueue statement.
const AT_ONCE: u64 = 5000;

/// Result of the deployment test. `seconds` contains the time until the workers were killed and the duration of the whole test.
pub(in crate::chaos) struct FleetResult {
    pub(in crate::chaos) account: DurableFindings,
    /// Number of sleeping jobs when all workers were killed.
    pub(in crate::chaos) asleep: i64,
    pub(in crate::chaos) seconds: [u64; 2],
}

/// Runs the deployment test with `jobs` sleeping jobs.
pub(in crate::chaos) async fn fleet(server: &TestServer, folder: &Path, jobs: u64) -> Result<FleetResult> {
    const ENQUEUE: &str = "select count(queue.enqueue('chaos_sleeper', jsonb_build_object('n', n * $3, 'ms', $4),
         '{\"queue\": \"durable\", \"max_attempts\": 1000}')) from generate_series($1::bigint, $2) n";
    const ASLEEP: &str = "select count(*) from queue.scheduled s join queue.step t on t.id = s.id and t.name = 'night'";
    let (database, began, clock) = (server.database("fleet").await?, Instant::now(), Clock::new());
    // This time is long enough for all jobs to fall asleep before the first job wakes, even on a slow machine.
    let night = Duration::from_secs(10) + Duration::from_millis(8) * u32::try_from(jobs)?;
    let mut processes =
        ProcessGroup::new(server, &database, folder, 3).await?.with(&[("CHAOS_TTL_MS", "2000"), ("CHAOS_CONCURRENCY", "60")]);
    for first in (1..=jobs).step_by(usize::try_from(AT_ONCE)?) {
        let last = (first + AT_ONCE - 1).min(jobs);
        let bound = [first, last, STRIDE, u64::try_from(night.as_millis())?].map(u64::cast_signed);
        bound.iter().fold(sqlx::query(ENQUEUE), |query, value| query.bind(*value)).execute(&database.pool).await?;
    }
    processes.start_all()?;
    let until = Instant::now() + night;
    while database.count(ASLEEP).await?.cast_unsigned() < jobs && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut faults = Vec::new();
    for slot in 0..3 {
        let (who, from) = (processes.label(slot), clock.now());
        processes.kill(slot);
        faults.push(Fault { kind: Kind::Kill, who, from, until: from, held: Vec::new(), quiet: None });
    }
    let (asleep, slept) = (database.count(ASLEEP).await?, began.elapsed());
    ensure!(asleep.cast_unsigned() >= jobs / 2, "{asleep} of {jobs} jobs are asleep after {slept:?}");
    processes = processes.with(&[("CHAOS_RELEASE", "2")]);
    processes.start_all()?;
    let drained = drain(&database, night + Duration::from_secs(30)).await?;
    let ended = processes.reap();
    processes.stop_all();
    let mut account = account(&database, folder, &faults, &[], jobs, 0).await?;
    (account.ended, account.left) = (ended, !drained);
    Ok(FleetResult { account, asleep, seconds: [slept.as_secs(), began.elapsed().as_secs()] })
}

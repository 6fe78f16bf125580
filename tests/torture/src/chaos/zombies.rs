//! Executes the product's own statements under leases that have ended. Each write must change nothing and be rejected.

use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection as _, PgConnection};

use super::server::{Database, TestServer, url};
use tests::{
    holders::{self, HOLDER_WRITES},
    protocol::{JobVerdict, Lease, VERDICTS, beat, claim, contents, flush, give_back, note, recover, register, settle, silence},
    signals,
};

/// Numbers of tried and accepted stale writes, with descriptions of the first five that were accepted.
#[derive(Debug, Default)]
pub(super) struct Zombies {
    pub(super) tried: usize,
    pub(super) accepted: usize,
    pub(super) notes: Vec<String>,
}

/// State of a job after its first worker has lost the lease.
#[derive(Clone, Copy, Debug)]
enum Aftermath {
    /// The job is queued.
    Recovered,
    /// Another worker holds the job.
    Reclaimed,
    /// The job was released without charging the attempt. Another worker holds the job, with the same attempt number.
    Released,
    /// Another worker has completed the job.
    Completed,
    /// The first worker parked the job, a signal woke the job, and another worker holds the job.
    Woken,
    /// The first worker restarted the job, and another worker holds the job.
    Restarted,
}

const AFTERMATHS: [Aftermath; 6] =
    [Aftermath::Recovered, Aftermath::Reclaimed, Aftermath::Released, Aftermath::Completed, Aftermath::Woken, Aftermath::Restarted];

/// Makes `count` workers lose their jobs, and then executes every write that these workers could still send.
pub(super) async fn run_zombies(server: &TestServer, database: &Database, count: usize) -> Result<Zombies> {
    let mut connection = PgConnection::connect(&url(server.port(), &database.name)).await?;
    let mut seen = Zombies::default();
    for number in 0..count {
        let aftermath = AFTERMATHS[number % AFTERMATHS.len()];
        let (worker, lease) = lose_lease(&mut connection, aftermath).await?;
        for verdict in VERDICTS {
            let job_verdict = JobVerdict { token: lease.token, job: lease.jobs[0], verdict };
            let before = contents(&mut connection).await?;
            // An error counts as a rejection. A worker would retry the write forever, but the write changes nothing.
            let is_accepted = settle(&mut connection, &[job_verdict]).await.is_ok_and(|refused| refused.is_empty());
            seen.check_unchanged(&mut connection, &before, is_accepted, &format!("{verdict} of a job that was {aftermath:?}")).await?;
        }
        for what in HOLDER_WRITES {
            let job_verdict = JobVerdict { token: lease.token, job: lease.jobs[0], verdict: "complete" };
            let before = contents(&mut connection).await?;
            let accepted = holders::write(&mut connection, job_verdict, what).await?;
            seen.check_unchanged(&mut connection, &before, accepted, &format!("{what} of a job that was {aftermath:?}")).await?;
        }
        let before = contents(&mut connection).await?;
        let is_accepted = flush(&mut connection, &[], &[lease.token]).await.is_ok_and(|refused| refused.is_empty());
        seen.check_unchanged(&mut connection, &before, is_accepted, &format!("whole lease, {aftermath:?}")).await?;
        for (stage, what) in [("", "progress"), ("zombie", "progress and checkpoint")] {
            let before = contents(&mut connection).await?;
            let reports = note(&mut connection, lease.token, lease.jobs[0], stage).await.unwrap_or_default();
            seen.check_unchanged(&mut connection, &before, reports, &format!("{what}, {aftermath:?}")).await?;
        }
        let before = contents(&mut connection).await?;
        give_back(&mut connection, lease.token).await?;
        seen.check_unchanged(&mut connection, &before, false, &format!("give back, {aftermath:?}")).await?;
        if !matches!(aftermath, Aftermath::Released | Aftermath::Woken | Aftermath::Restarted) {
            let before = contents(&mut connection).await?;
            let beats = beat(&mut connection, worker).await?;
            seen.check_unchanged(&mut connection, &before, beats, &format!("heartbeat, {aftermath:?}")).await?;
            let claims = !claim(&mut connection, worker, 10).await?.jobs.is_empty();
            seen.check_unchanged(&mut connection, &before, claims, &format!("claim, {aftermath:?}")).await?;
        }
        let of_durable =
            ["parked", "step", "signal", "signal_hint", "child", "gather", "map_batch", "gather_part", "gather_hint", "end_hint"];
        let tables = ["ready", "scheduled", "lease", "done", "done_many", "dead", "failure", "job", "worker", "progress"];
        for table in tables.into_iter().chain(of_durable) {
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("delete from queue.{table}"))).execute(&mut connection).await?;
        }
    }
    Ok(seen)
}

impl Zombies {
    async fn check_unchanged(&mut self, connection: &mut PgConnection, before: &str, is_accepted: bool, what: &str) -> Result<()> {
        self.tried += 1;
        let after = contents(connection).await?;
        if is_accepted || after != before {
            self.accepted += 1;
            if self.notes.len() < 5 {
                self.notes.push(format!("stale write accepted: {what}"));
            }
        }
        Ok(())
    }
}

/// Returns a worker and a lease that the worker has lost.
async fn lose_lease(connection: &mut PgConnection, aftermath: Aftermath) -> Result<(uuid::Uuid, Lease)> {
    sqlx::query("select queue.enqueue('chaos', '{}'::jsonb)").execute(&mut *connection).await?;
    let worker = register(connection).await?;
    let lease = claim(connection, worker, 1).await?;
    anyhow::ensure!(lease.jobs.len() == 1, "nothing was claimed");
    anyhow::ensure!(note(connection, lease.token, lease.jobs[0], "alive").await?, "a report under a valid lease was refused");
    // In the case `Woken`, the signals wake the job. They remain stored, so that the run detects whether a worker without the lease
    // receives them.
    for _ in 0..2 {
        signals::signal(connection, lease.jobs[0].id).await?;
    }
    match aftermath {
        Aftermath::Released => drop(settle(connection, &lease.all("release")).await?),
        Aftermath::Woken => {
            anyhow::ensure!(signals::park_held(connection, &lease.all("snooze")).await?.is_empty(), "the job was not parked");
            anyhow::ensure!(signals::wake_parked(connection).await? == 1, "the job was not woken");
        }
        Aftermath::Restarted => {
            anyhow::ensure!(signals::restart(connection, &lease.all("snooze")).await?.is_empty(), "the job was not restarted");
        }
        Aftermath::Recovered | Aftermath::Reclaimed | Aftermath::Completed => {
            silence(connection, worker).await?;
            recover(connection).await?;
        }
    }
    if !matches!(aftermath, Aftermath::Recovered) {
        let other = register(connection).await?;
        let taken = claim(connection, other, 1).await?;
        if matches!(aftermath, Aftermath::Completed) {
            settle(connection, &taken.all("complete")).await?;
        }
    }
    Ok((worker, lease))
}

/// In each round, starts a recovery after a settle of the same lease was executed and before it is committed. Returns the violations.
pub(super) async fn race(server: &TestServer, database: &Database, rounds: usize) -> Result<Vec<String>> {
    let address = url(server.port(), &database.name);
    let (mut first, mut second) = (PgConnection::connect(&address).await?, PgConnection::connect(&address).await?);
    let mut wrong = Vec::new();
    for _ in 0..rounds {
        sqlx::query("select queue.enqueue('chaos', '{}'::jsonb) from generate_series(1, 3)").execute(&mut first).await?;
        let worker = register(&mut first).await?;
        let lease = claim(&mut first, worker, 3).await?;
        silence(&mut first, worker).await?;
        let mut open = first.begin().await?;
        settle(&mut open, &lease.all("complete")[..2]).await?;
        let recovery = tokio::spawn(async move {
            let recovered = recover(&mut second).await;
            (second, recovered)
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        open.commit().await?;
        let (connection, recovered) = recovery.await?;
        second = connection;
        if let Err(error) = recovered {
            wrong.push(format!("recovery failed: {error}"));
        }
        recover(&mut second).await?;
        let broken: Vec<(i64, i64, i64)> = sqlx::query_as(tests::INVARIANT).fetch_all(&mut first).await?;
        wrong.extend(broken.iter().map(|(id, entries, _)| format!("job {id} has {entries} entries after a settle beside a recovery")));
        if !wrong.is_empty() {
            break;
        }
    }
    Ok(wrong)
}

//! Writes under leases that are over, by hand and with the product's own statements: each must change nothing and be refused.

use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection as _, PgConnection};

use super::server::{Database, TestServer, url};
use tests::{
    holders::{self, SAYINGS},
    protocol::{Lease, Said, VERDICTS, beat, claim, contents, flush, give_back, note, recover, register, settle, silence},
    signals,
};

/// What zombies tried and what came of it.
#[derive(Debug, Default)]
pub(super) struct Zombies {
    pub(super) tried: usize,
    pub(super) accepted: usize,
    pub(super) notes: Vec<String>,
}

/// What became of the job after its first holder lost it.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// It waits, alone.
    Recovered,
    /// Another holds it.
    Reclaimed,
    /// It was released uncharged, so that another holds it under the same attempt number.
    Released,
    /// Another has completed it.
    Completed,
    /// It was parked by its holder, woken by a signal, and another holds it.
    Woken,
    /// It was begun anew by its holder, and another holds it.
    Restarted,
}

const AFTERWARDS: [Since; 6] = [Since::Recovered, Since::Reclaimed, Since::Released, Since::Completed, Since::Woken, Since::Restarted];

/// So many workers lose their jobs and write all the same.
pub(super) async fn haunt(server: &TestServer, database: &Database, count: usize) -> Result<Zombies> {
    let mut connection = PgConnection::connect(&url(server.port(), &database.name)).await?;
    let mut seen = Zombies::default();
    for number in 0..count {
        let since = AFTERWARDS[number % AFTERWARDS.len()];
        let (worker, lease) = bury(&mut connection, since).await?;
        for verdict in VERDICTS {
            let said = Said { token: lease.token, job: lease.jobs[0], verdict };
            let before = contents(&mut connection).await?;
            // An error is a refusal too: one that would be tried again for ever, but writes nothing.
            let refused = settle(&mut connection, &[said]).await.is_ok_and(|refused| refused.is_empty());
            seen.judge(&mut connection, &before, refused, &format!("{verdict} of a job that was {since:?}")).await?;
        }
        for what in SAYINGS {
            let said = Said { token: lease.token, job: lease.jobs[0], verdict: "complete" };
            let before = contents(&mut connection).await?;
            let accepted = holders::say(&mut connection, said, what).await?;
            seen.judge(&mut connection, &before, accepted, &format!("{what} of a job that was {since:?}")).await?;
        }
        let before = contents(&mut connection).await?;
        let silent = flush(&mut connection, &[], &[lease.token]).await.is_ok_and(|refused| refused.is_empty());
        seen.judge(&mut connection, &before, silent, &format!("whole lease, {since:?}")).await?;
        for (stage, what) in [("", "progress"), ("zombie", "progress and checkpoint")] {
            let before = contents(&mut connection).await?;
            let reports = note(&mut connection, lease.token, lease.jobs[0], stage).await.unwrap_or_default();
            seen.judge(&mut connection, &before, reports, &format!("{what}, {since:?}")).await?;
        }
        let before = contents(&mut connection).await?;
        give_back(&mut connection, lease.token).await?;
        seen.judge(&mut connection, &before, false, &format!("give back, {since:?}")).await?;
        if !matches!(since, Since::Released | Since::Woken | Since::Restarted) {
            let before = contents(&mut connection).await?;
            let beats = beat(&mut connection, worker).await?;
            seen.judge(&mut connection, &before, beats, &format!("heartbeat, {since:?}")).await?;
            let claims = !claim(&mut connection, worker, 10).await?.jobs.is_empty();
            seen.judge(&mut connection, &before, claims, &format!("claim, {since:?}")).await?;
        }
        let of_durable = ["parked", "step", "signal", "signal_hint", "child", "gather", "brood", "gather_part", "gather_hint", "end_hint"];
        let tables = ["ready", "scheduled", "lease", "done", "done_many", "dead", "failure", "job", "worker", "progress"];
        for table in tables.into_iter().chain(of_durable) {
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("delete from queue.{table}"))).execute(&mut connection).await?;
        }
    }
    Ok(seen)
}

impl Zombies {
    async fn judge(&mut self, connection: &mut PgConnection, before: &str, said_done: bool, what: &str) -> Result<()> {
        self.tried += 1;
        let after = contents(connection).await?;
        if said_done || after != before {
            self.accepted += 1;
            if self.notes.len() < 5 {
                self.notes.push(format!("stale write accepted: {what}"));
            }
        }
        Ok(())
    }
}

/// A worker and the lease that it has no more.
async fn bury(connection: &mut PgConnection, since: Since) -> Result<(uuid::Uuid, Lease)> {
    sqlx::query("select queue.enqueue('chaos', '{}'::jsonb)").execute(&mut *connection).await?;
    let worker = register(connection).await?;
    let lease = claim(connection, worker, 1).await?;
    anyhow::ensure!(lease.jobs.len() == 1, "nothing was claimed");
    anyhow::ensure!(note(connection, lease.token, lease.jobs[0], "alive").await?, "a report under a valid lease was refused");
    // One to wake it, and one that nobody may receive in its stead.
    for _ in 0..2 {
        signals::signal(connection, lease.jobs[0].id).await?;
    }
    match since {
        Since::Released => drop(settle(connection, &lease.all("release")).await?),
        Since::Woken => {
            anyhow::ensure!(signals::park_held(connection, &lease.all("snooze")).await?.is_empty(), "it was not parked");
            anyhow::ensure!(signals::wake_parked(connection).await? == 1, "it was not woken");
        }
        Since::Restarted => {
            anyhow::ensure!(signals::restart(connection, &lease.all("snooze")).await?.is_empty(), "it did not begin anew");
        }
        Since::Recovered | Since::Reclaimed | Since::Completed => {
            silence(connection, worker).await?;
            recover(connection).await?;
        }
    }
    if !matches!(since, Since::Recovered) {
        let other = register(connection).await?;
        let taken = claim(connection, other, 1).await?;
        if matches!(since, Since::Completed) {
            settle(connection, &taken.all("complete")).await?;
        }
    }
    Ok((worker, lease))
}

/// A settle and a recovery of the same lease at the same time, the settle first. Returns what is wrong afterwards.
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
            wrong.push(format!("the recovery failed: {error}"));
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

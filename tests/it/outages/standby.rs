//! Tests a primary and its standby: connections to the wrong server, and a failover.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection, postgres::PgPoolOptions};
use tests::{
    Act, eventually,
    protocol::{claim, register, settle},
    proxy::{Mode, Proxy},
    server::{Database, TestServer, url},
    within,
};

use super::{announced, begin, complains_with_restraint, enqueue, is_completed, nothing_is_charged, worker, works};

/// Returns a handle to the copy of `database` on the standby.
async fn on(standby: &TestServer, database: &Database) -> Database {
    let pool = PgPoolOptions::new().max_connections(4).connect(&standby.url(&database.name)).await.unwrap();
    Database { name: database.name.clone(), pool }
}

async fn caught_up(primary: &Database) {
    let behind = "select count(*) from pg_stat_replication where replay_lsn is distinct from pg_current_wal_lsn()
       union all select 1 where not exists (select from pg_stat_replication) order by 1 desc limit 1";
    within(Duration::from_secs(20), "the standby has caught up", async || primary.count(behind).await.unwrap() == 0).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f40_a_worker_on_a_standby_waits_until_its_promotion() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("followed").await.unwrap();
    let job = enqueue(&database.pool, Act::Ok(String::new())).await;
    let standby = primary.standby(primary.port()).await.unwrap();
    let since = Instant::now();
    let mut worker = worker(&standby.url("followed"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lines = complains_with_restraint(&mut worker, since);
    assert!(lines.iter().any(|line| line.contains("is a standby")), "{lines:#?}");
    standby.promote().await.unwrap();
    let promoted = Instant::now();
    let there = on(&standby, &database).await;
    eventually("the job is completed", async || is_completed(&there.pool, job).await).await;
    println!("works {:?} after the promotion", promoted.elapsed());
    assert!(!worker.has_ended());
    nothing_is_charged(&there).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f40_workers_follow_a_failover_and_no_job_is_charged_for_it() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("followed").await.unwrap();
    let standby = primary.standby(primary.port()).await.unwrap();
    let name = Proxy::start(primary.port()).await.unwrap();
    let mut workers: Vec<_> = (0..2).map(|_| worker(&url(name.port, "followed"))).collect();
    announced(&database, 2).await;
    begin(&database, 20, Act::Sleep(1500)).await;
    caught_up(&database).await;
    let since = Instant::now();
    primary.kill().unwrap();
    standby.promote().await.unwrap();
    name.redirect_to(standby.port());
    let there = on(&standby, &database).await;
    works(&there.pool).await;
    for worker in &mut workers {
        complains_with_restraint(worker, since);
    }
    nothing_is_charged(&there).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f41_of_two_holders_after_a_lost_claim_only_the_living_token_settles() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("followed").await.unwrap();
    let upstream = Proxy::start(primary.port()).await.unwrap();
    let standby = primary.standby(upstream.port).await.unwrap();
    let mut before = PgConnection::connect(&primary.url("followed")).await.unwrap();
    let job = enqueue(&database.pool, Act::Ok(String::new())).await;
    let first = register(&mut before).await.unwrap();
    caught_up(&database).await;

    upstream.set(Mode::Drop);
    let lost = claim(&mut before, first, 10).await.unwrap();
    assert_eq!(lost.ids(), [job]);
    primary.kill().unwrap();
    upstream.cut();
    standby.promote().await.unwrap();

    let there = on(&standby, &database).await;
    let mut after = PgConnection::connect(&standby.url("followed")).await.unwrap();
    let second = register(&mut after).await.unwrap();
    let living = claim(&mut after, second, 10).await.unwrap();
    assert_eq!(living.ids(), [job], "the claim did not survive");
    assert_ne!(living.token, lost.token);
    for verdict in tests::protocol::VERDICTS {
        assert_eq!(settle(&mut after, &lost.all(verdict)).await.unwrap().len(), 1, "{verdict} under the lost token is refused");
        assert_eq!(there.count("select count(*) from queue.jobs where state = 'running' and attempts = 1").await.unwrap(), 1);
    }
    assert!(settle(&mut after, &living.all("complete")).await.unwrap().is_empty());
    assert!(is_completed(&there.pool, job).await);
    assert_eq!(there.count("select count(*) from queue.failure").await.unwrap(), 0);
}

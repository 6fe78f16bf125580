//! Tests findings about sessions that prevent vacuum from cleaning up, lock a table, or belong to superusers.

use std::time::Duration;

use queue_core::operate::{Checkup, FindingKind};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually, server::TestServer};

use super::{ask, connect, found_by, is_cured, is_gone, make, one, run};

/// Returns thresholds that classify every open transaction as long, and a snapshot as old after fifty later transactions.
fn impatient() -> Checkup {
    Checkup { transaction: Duration::ZERO, transactions: 50, ..Checkup::default() }
}

#[tokio::test]
async fn a_long_transaction_is_found_and_ended_by_its_fix() {
    let db = TestDb::new().await;
    let mut holder = connect(&db).await;
    run(&mut holder, "set application_name = 'report'; begin isolation level repeatable read; select from queue.job").await;
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::LongTransaction).await.is_empty(), "it is not long yet");
    let found = one(&db.pool, &impatient(), FindingKind::LongTransaction).await;
    assert_eq!((found.facts["application"].as_str(), found.facts["state"].as_str()), (Some("report"), Some("idle in transaction")));
    is_cured(&db.url, &db.pool, &impatient(), FindingKind::LongTransaction).await;
    assert!(holder.ping().await.is_err(), "it was that session");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_prepared_transaction_that_waits_is_found_and_rolled_back_by_its_fix() {
    let server = TestServer::start_with(&["fsync=off", "max_prepared_transactions=4"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    let url = server.url("app");
    make(&db.pool, "begin; insert into effect (job) values (1); prepare transaction 'it''s mine'").await;
    let found = one(&db.pool, &impatient(), FindingKind::PreparedTransaction).await;
    assert_eq!(found.facts["gid"], "it's mine");
    is_cured(&url, &db.pool, &impatient(), FindingKind::PreparedTransaction).await;
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_standby_and_a_slot_that_hold_rows_are_found() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    let url = server.url("app");
    make(&db.pool, "select pg_create_physical_replication_slot('forgotten')").await;
    let standby = server.standby(server.port()).await.unwrap();
    let mut there = PgConnection::connect(&standby.url("postgres")).await.unwrap();
    run(&mut there, "alter system set hot_standby_feedback = on").await;
    run(&mut there, "alter system set wal_receiver_status_interval = '1s'").await;
    run(&mut there, "select pg_reload_conf()").await;
    let mut reader = PgConnection::connect(&standby.url("app")).await.unwrap();
    run(&mut reader, "begin isolation level repeatable read; select from queue.job").await;
    // Consume a hundred transaction ids, so that the standby's snapshot counts as old.
    let later = "do $$ begin for i in 1..100 loop begin insert into effect (job) values (i); exception when others then null; end; end loop; end $$";
    make(&db.pool, later).await;
    eventually("the standby has reported its position", async || {
        !found_by(&db.pool, &impatient(), FindingKind::StandbyFeedback).await.is_empty()
    })
    .await;
    run(&mut reader, "rollback").await;
    is_gone(&db.pool, &impatient(), FindingKind::StandbyFeedback).await;

    // A replication slot also prevents vacuum from cleaning up, even after its standby is stopped.
    run(&mut there, "alter system set primary_slot_name = 'forgotten'").await;
    run(&mut there, "select pg_reload_conf()").await;
    run(&mut reader, "begin isolation level repeatable read; select from queue.job").await;
    eventually("the slot has it", async || db.count("select count(*) from pg_replication_slots where xmin is not null").await.unwrap() > 0)
        .await;
    standby.kill().unwrap();
    make(&db.pool, later).await;
    eventually("the slot is unused", async || db.count("select count(*) from pg_replication_slots where active").await.unwrap() == 0).await;
    is_cured(&url, &db.pool, &impatient(), FindingKind::ReplicationSlot).await;
    server.stop().unwrap();
}

#[tokio::test]
async fn a_locked_table_is_found_with_its_session_and_delays_no_check() {
    let db = TestDb::new().await;
    let mut holder = connect(&db).await;
    run(&mut holder, "begin; lock table queue.ready, queue.worker in access exclusive mode").await;
    let checkup = Checkup { patience: Duration::from_millis(400), ..Checkup::default() };
    let diagnosis = ask(&db.pool, &checkup).await;
    let of = |kind: FindingKind| diagnosis.findings.iter().filter(|finding| finding.kind == kind).collect::<Vec<_>>();
    assert!(of(FindingKind::TableLocked)[0].message.contains("ready"), "{diagnosis:#?}");
    let unseen: Vec<&str> = of(FindingKind::NotLookedAt).iter().map(|finding| finding.facts["what"].as_str().unwrap()).collect();
    assert!(unseen.contains(&"workers") && unseen.contains(&"unserved jobs"), "{diagnosis:#?}");
    assert!(of(FindingKind::NoWorker).is_empty(), "hidden parts are not reported");
    assert!(!unseen.contains(&"settings") && !unseen.contains(&"days"), "others are checked nevertheless: {unseen:?}");
    is_cured(&db.url, &db.pool, &checkup, FindingKind::TableLocked).await;
    is_gone(&db.pool, &checkup, FindingKind::NotLookedAt).await;
    assert!(holder.ping().await.is_err());
    db.finish().await;
}

#[tokio::test]
async fn a_session_that_blocks_writes_to_a_table_is_found() {
    let db = TestDb::new().await;
    let mut holder = connect(&db).await;
    run(&mut holder, "begin; lock table queue.gather_hint in share mode").await;
    let found = found_by(&db.pool, &Checkup::default(), FindingKind::TableLocked).await;
    assert!(found[0].message.contains("gather_hint"), "{found:?}");
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::TableLocked).await;
    db.finish().await;
}

#[tokio::test]
async fn workers_that_are_superusers_are_found() {
    let db = TestDb::new().await;
    db.run_while(db.worker(), async {
        eventually("it lives", async || !found_by(&db.pool, &Checkup::default(), FindingKind::SuperuserWorker).await.is_empty()).await;
    })
    .await;
    is_gone(&db.pool, &Checkup::default(), FindingKind::SuperuserWorker).await;
    db.finish().await;
}

//! Tests findings about settings of the server, the database and the login.

use std::{str::FromStr as _, time::Duration};

use queue_core::{
    Error, Store, migrate,
    operate::{Checkup, FindingKind},
};
use queue_worker::Worker;
use sqlx::{
    AssertSqlSafe, Executor as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::{
    Clock, Do, TestDb,
    pooler::{Settings, pooler},
    server::TestServer,
};

use super::{found_by, is_cured, is_gone, make, one, paste};

fn pool_at(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(2).connect_lazy_with(PgConnectOptions::from_str(url).unwrap())
}

#[tokio::test]
#[ignore = "deep"]
async fn each_harmful_setting_is_found_and_cured() {
    let server = TestServer::start().await.unwrap();
    let db = server.database("app").await.unwrap();
    make(&db.pool, "create role app login superuser").await;
    let (url, admin) = (server.url("app").replace("postgres@", "app@"), server.url("app"));
    let (pool, checkup) = (pool_at(&url), Checkup::default());
    for (setting, kind) in [
        ("fsync", FindingKind::FsyncOff),
        ("full_page_writes", FindingKind::FullPageWritesOff),
        ("autovacuum", FindingKind::AutovacuumOff),
        ("track_counts", FindingKind::TrackCountsOff),
    ] {
        assert!(found_by(&pool, &checkup, kind).await.is_empty(), "{kind}");
        for statement in [format!("alter system set {setting} = off"), "select pg_reload_conf()".to_owned()] {
            make(&db.pool, &statement).await;
        }
        tests::eventually("it is off", async || !found_by(&pool, &checkup, kind).await.is_empty()).await;
        is_cured(&admin, &pool, &checkup, kind).await;
    }
    for (setting, kind) in [
        ("synchronous_commit = off", FindingKind::RelaxedCommits),
        ("default_transaction_isolation = 'serializable'", FindingKind::Isolation),
        ("statement_timeout = '50ms'", FindingKind::ShortTimeout),
        ("lock_timeout = '10ms'", FindingKind::ShortTimeout),
        ("idle_session_timeout = '1h'", FindingKind::EndsSessions),
        ("default_transaction_read_only = on", FindingKind::ReadOnly),
    ] {
        assert!(found_by(&pool, &checkup, kind).await.is_empty(), "{kind}");
        make(&db.pool, &format!("alter role app set {setting}")).await;
        is_cured(&admin, &pool, &checkup, kind).await;
    }
    assert!(found_by(&pool, &checkup, FindingKind::OpenTransactions).await.len() == 1);
    is_cured(&admin, &pool, &checkup, FindingKind::OpenTransactions).await;
    server.stop().unwrap();
}

/// Every encoding except UTF8 is rejected. A payload that is invalid in the database encoding would stop claims, and an output with a
/// character that the encoding lacks would be lost.
#[tokio::test]
async fn a_database_of_another_encoding_is_refused_by_all_that_meet_it() {
    let db = TestDb::new().await;
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        make(&db.pool, &format!("create database {name} encoding '{encoding}' locale 'C' template template0")).await;
        let options = PgConnectOptions::from_str(&db.url).unwrap().database(&name);
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
        let mut on = pool.acquire().await.unwrap();
        let refused = |error: &Error| {
            matches!(error, Error::Encoding { encoding: found } if found == encoding) && error.to_string().contains("template0")
        };
        assert!(refused(&migrate(&mut on, Store::default()).await.unwrap_err()));
        let worker = Worker::new(pool.clone()).register::<Do>().run(std::future::pending()).await.unwrap_err();
        assert!(matches!(worker, queue_worker::Error::Core(error) if refused(&error)));
        let printed = on.execute(sqlx::raw_sql(AssertSqlSafe(migrate::print(Store::default())))).await.unwrap_err();
        assert!(printed.to_string().contains("UTF8"), "{printed}");
        assert_eq!(one(&pool, &Checkup::default(), FindingKind::Encoding).await.facts["schema"], "queue");
        drop(on);
        pool.close().await;
        make(&db.pool, &format!("drop database {name} with (force)")).await;
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn few_connections_are_found_under_every_kind_of_limit() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    make(&db.pool, "create role app login superuser").await;
    let pool = pool_at(&server.url("app").replace("postgres@", "app@"));
    let few = async |sessions: u32| {
        let found = found_by(&pool, &Checkup { sessions, ..Checkup::default() }, FindingKind::FewConnections).await;
        found.into_iter().next().map(|finding| finding.facts["most"].as_i64().unwrap())
    };
    assert_eq!(few(10).await, None);
    assert_eq!(few(199).await, Some(197), "of 200, with three for superusers");
    make(&db.pool, "alter role app connection limit 15").await;
    assert_eq!((few(10).await, few(16).await), (None, Some(15)));
    make(&db.pool, "alter role app connection limit -1; alter database app connection limit 12").await;
    assert_eq!(few(12).await, Some(12));
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_remote_connection_must_be_encrypted() {
    let server = TestServer::start_encrypted().await.unwrap();
    server.database("app").await.unwrap();
    let here = Checkup::default();
    // This check trusts only another network, so it considers connections from this machine remote.
    let nowhere = Checkup { trusted_networks: vec!["10.0.0.0/8".to_owned()], ..Checkup::default() };
    let plain = pool_at(&server.url("app"));
    assert!(found_by(&plain, &here, FindingKind::NotEncrypted).await.is_empty());
    let found = one(&plain, &nowhere, FindingKind::NotEncrypted).await;
    assert_eq!(found.facts["from"], "127.0.0.1");
    let encrypted = pool_at(&format!("postgres://sealed@127.0.0.1:{}/app?sslmode=require", server.port()));
    assert!(found_by(&encrypted, &nowhere, FindingKind::NotEncrypted).await.is_empty());
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_pooler_is_found_however_it_treats_settings() {
    for settings in [Settings::Refused, Settings::Ignored] {
        let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
        server.database("app").await.unwrap();
        let port = pooler(server.port(), settings).await.unwrap();
        let through = server.url("app").replace(&server.port().to_string(), &port.to_string());
        one(&pool_at(&through), &Checkup::default(), FindingKind::Pooler).await;
        is_gone(&pool_at(&server.url("app")), &Checkup::default(), FindingKind::Pooler).await;
        server.stop().unwrap();
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn a_standby_and_an_unreachable_server_are_found() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    server.database("app").await.unwrap();
    let standby = server.standby(server.port()).await.unwrap();
    let pool = pool_at(&standby.url("app"));
    tests::eventually("it has what the other has", async || !found_by(&pool, &Checkup::default(), FindingKind::Standby).await.is_empty())
        .await;
    standby.promote().await.unwrap();
    is_gone(&pool, &Checkup::default(), FindingKind::Standby).await;
    standby.stop().unwrap();
    let away = one(&pool, &Checkup::default(), FindingKind::Unreachable).await;
    assert!(away.message.contains("out of reach"), "{away:#?}");
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn clock_skew_is_found() {
    let clock = Clock::new(3600).unwrap();
    let server = TestServer::start_by(&clock).await.unwrap();
    let db = server.database("app").await.unwrap();
    let found = one(&db.pool, &Checkup::default(), FindingKind::ClockApart).await;
    assert_eq!(found.facts["this_machine_is"], "behind");
    let apart = Duration::from_millis(found.facts["apart_ms"].as_u64().unwrap());
    assert!(apart > Duration::from_secs(3500) && apart < Duration::from_secs(3700), "{apart:?}");
    clock.set(0).unwrap();
    is_gone(&db.pool, &Checkup::default(), FindingKind::ClockApart).await;
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn roles_that_lack_a_privilege_of_this_release_are_found_and_cured() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::RolesOutdated).await.is_empty(), "there are none");
    queue_core::Roles::of(queue_core::Store::default()).apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::RolesOutdated).await.is_empty());
    make(&db.pool, "revoke execute on function queue.history from queue_reader").await;
    let found = one(&db.pool, &Checkup::default(), FindingKind::RolesOutdated).await;
    assert_eq!(found.facts["roles"], serde_json::json!(["queue_reader"]));
    paste(&server.url("app"), &found).await;
    is_gone(&db.pool, &Checkup::default(), FindingKind::RolesOutdated).await;
    server.stop().unwrap();
}

//! Tests that a healthy store has no findings, and that every role of the store can run the check.

use std::str::FromStr as _;

use queue_core::{
    Roles, Store, migrate,
    operate::{Checkup, FindingKind},
};
use queue_worker::Worker;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::{Do, eventually, server::TestServer};

use super::{ask, cli, make};

fn pool_of(server: &TestServer, user: &str) -> PgPool {
    let url = server.url("app").replace("postgres@", &format!("{user}@"));
    PgPoolOptions::new().max_connections(4).connect_lazy_with(PgConnectOptions::from_str(&url).unwrap())
}

#[tokio::test]
#[ignore = "deep"]
async fn nothing_is_wrong_with_a_fresh_store_that_a_worker_serves() {
    let server = TestServer::start_with(&["idle_in_transaction_session_timeout=10min"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    make(&db.pool, "create role runner login; create role ops login; grant select, insert on effect to public").await;
    Roles::of(Store::default()).apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    make(&db.pool, "grant queue_worker to runner; grant queue_operator to ops").await;

    let worker = Worker::new(pool_of(&server, "runner")).register::<Do>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run(async move {
        let _ = stopped.await;
    }));
    let beats = "select count(*) from queue.worker where expires_at > now()";
    eventually("the worker lives", async || db.count(beats).await.unwrap() == 1).await;
    let ops = pool_of(&server, "ops");
    let diagnosis = ask(&ops, &Checkup::default()).await;
    assert!(diagnosis.findings.is_empty(), "{diagnosis:#?}");
    assert_eq!((diagnosis.login.as_deref(), diagnosis.schema.as_str()), (Some("ops"), "queue"));
    assert_eq!(diagnosis.roles, ["queue_operator", "queue_reader"]);
    assert!(diagnosis.at.is_some() && diagnosis.server.is_some_and(|version| !version.is_empty()));
    let output = cli(&server.url("app").replace("postgres@", "ops@"), &["doctor", "--strict"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().trim().ends_with("no problems found"));
    let _ = stop.send(());
    worker.await.unwrap().unwrap();

    // Every role of the store can run the check. A `not_permitted` finding names the parts that the role may not see.
    make(&db.pool, "create role web login; grant queue_producer to web").await;
    let kinds = |diagnosis: &queue_core::operate::Diagnosis| -> Vec<String> {
        diagnosis.findings.iter().map(|finding| finding.kind.to_string()).collect()
    };
    assert_eq!(kinds(&ask(&pool_of(&server, "runner"), &Checkup::default()).await), ["not_permitted"]);
    assert_eq!(kinds(&ask(&pool_of(&server, "web"), &Checkup::default()).await), ["not_permitted"]);
    assert_eq!(kinds(&ask(&ops, &Checkup::default()).await), ["no_worker"]);
    // The fix of the `not_permitted` finding is the missing grant.
    let denied = ask(&pool_of(&server, "web"), &Checkup::default()).await.findings.remove(0);
    super::paste(&server.url("app"), &denied).await;
    assert_eq!(kinds(&ask(&pool_of(&server, "web"), &Checkup::default()).await), ["no_worker"]);
    server.stop().unwrap();
}

/// A member of a role has the role's privileges only if the member inherits them. Granting the role again would not help, so the fix must
/// make the member inherit them.
#[tokio::test]
#[ignore = "deep"]
async fn a_login_that_does_not_inherit_gets_the_fix() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    Roles::of(Store::default()).apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    make(&db.pool, "create role lazy login noinherit; grant queue_worker, queue_reader to lazy; create role stranger login").await;
    let start = async |login: &str| {
        let pool = pool_of(&server, login);
        migrate::verify(&mut pool.acquire().await.unwrap(), Store::default()).await.map_err(|error| error.to_string())
    };
    let refused = start("stranger").await.unwrap_err();
    assert!(refused.contains("`grant \"queue_worker\" to \"stranger\"`"), "{refused}");
    let refused = start("lazy").await.unwrap_err();
    let finding = super::one(&pool_of(&server, "lazy"), &Checkup::default(), FindingKind::NotPermitted).await;
    assert!(finding.fix.contains("inherit") && refused.contains(&finding.fix), "{refused} {finding:?}");
    super::paste(&server.url("app"), &finding).await;
    start("lazy").await.unwrap();
    server.stop().unwrap();
}

//! Tests the SQL statements for pauses. Covers the workers that must acknowledge a pause, the number of ready jobs in a paused scope, and
//! the order in which pauses become visible.

use std::time::Duration;

use queue_core::{
    Error, Queue, Store,
    operate::{Pause, Scope},
};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually, protocol::register};
use uuid::Uuid;

use super::{connect, enqueue, pause, quick, resume};

/// Returns the workers that have not acknowledged the pause of `scope` yet, or `None` if the scope is not paused.
async fn awaited(db: &TestDb, scope: &Scope) -> Option<Vec<Uuid>> {
    let found = Queue::new(&db.pool).pause_awaits(scope).await.unwrap();
    found.map(|found| found.into_iter().map(|one| one.worker).collect())
}

async fn vouch(on: &mut PgConnection, worker: Uuid, number: i64) {
    let statement = Store::default().sql(include_str!("../../../queue-worker/sql/acknowledge_pauses.sql"));
    sqlx::query(statement).bind(worker).bind(number).execute(on).await.unwrap();
}

#[tokio::test]
async fn a_pause_waits_for_each_living_worker_that_could_run_its_jobs_to_acknowledge() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let mut workers = Vec::new();
    // The first worker serves every queue and type. The second worker serves only the queue `other`, and the third worker only the type
    // `other`. The lease of the fourth worker has expired.
    for change in ["name = 'a'", "name = 'b', queues = '{other}'", "name = 'c', types = '{other}'", "expires_at = now() - interval '1 s'"] {
        let worker = register(&mut on).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!("update queue.worker set {change} where id = $1")))
            .bind(worker)
            .execute(&mut on)
            .await
            .unwrap();
        workers.push(worker);
    }
    let (mail, other) = (Scope::queue("mail"), Scope { queue: Some("other".into()), job_type: Some("do".into()) });
    assert_eq!(awaited(&db, &mail).await, None, "it is not paused");
    let first = pause(&db, &mail).await;
    let second = pause(&db, &other).await;
    assert_eq!(awaited(&db, &mail).await.unwrap(), [workers[0], workers[2]], "not of other queues, nor silent");
    assert_eq!(awaited(&db, &other).await.unwrap(), workers[..2], "not of other types");
    vouch(&mut on, workers[0], first).await;
    assert_eq!((awaited(&db, &mail).await.unwrap(), awaited(&db, &other).await.unwrap().len()), (vec![workers[2]], 2));
    vouch(&mut on, workers[0], second).await;
    vouch(&mut on, workers[0], first).await;
    assert_eq!(awaited(&db, &other).await.unwrap(), [workers[1]], "no word is taken back");
    vouch(&mut on, workers[2], second).await;
    assert!(awaited(&db, &mail).await.unwrap().is_empty());
    // When the same scope is paused again, its workers must acknowledge the new pause.
    assert!(pause(&db, &mail).await > second);
    assert_eq!(awaited(&db, &mail).await.unwrap().len(), 2);
    resume(&db, &mail).await;
    assert_eq!(awaited(&db, &mail).await, None);
    db.finish().await;
}

#[tokio::test]
async fn pauses_are_shown_with_their_reason_and_waiting_jobs_and_end_one_by_one() {
    let db = TestDb::new().await;
    let store = Store::default();
    for queue in ["mail", "mail", "post"] {
        enqueue(&db, queue, quick()).await;
    }
    let type_in_mail = Scope { queue: Some("mail".into()), job_type: Some("other".into()) };
    for scope in [Scope::queue("mail"), Scope::job_type("do"), Scope::EVERYTHING, type_in_mail.clone()] {
        pause(&db, &scope).await;
    }
    let since = Queue::new(&db.pool).store(store).pauses().await.unwrap()[0].paused_at;
    Queue::new(&db.pool).store(store).pause(&Scope::queue("mail")).await.unwrap();
    let found = Queue::new(&db.pool).store(store).pauses().await.unwrap();
    let shown = |pause: &Pause| format!("{}: {} {:?}", pause.scope, pause.ready, pause.reason.as_deref());
    let expected = [
        "queue mail: 2 None",
        "type do: 3 Some(\"a test\")",
        "everything: 3 Some(\"a test\")",
        "type other in queue mail: 0 Some(\"a test\")",
    ];
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected, "the last reason, the first time");
    assert!(found[0].paused_at == since && found[0].number > found[3].number && !found[0].partial);
    assert_eq!(found[0].paused_by, "postgres");
    let bounded: Vec<(i64, bool)> = sqlx::query_as("select ready, partial from queue.pauses(1)").fetch_all(&db.pool).await.unwrap();
    assert_eq!(bounded, [(1, true), (1, true), (1, true), (0, false)]);

    assert!(!Queue::new(&db.pool).store(store).resume(&Scope::queue("post")).await.unwrap(), "it is not paused by itself");
    for scope in [Scope::queue("mail"), type_in_mail, Scope::EVERYTHING] {
        resume(&db, &scope).await;
    }
    let left = Queue::new(&db.pool).store(store).pauses().await.unwrap();
    assert_eq!(left.iter().map(|pause| pause.scope.to_string()).collect::<Vec<_>>(), ["type do"]);

    for scope in [Scope::queue("*"), Scope::job_type(""), Scope::queue("a b")] {
        assert!(matches!(Queue::new(&db.pool).store(store).pause(&scope).await, Err(Error::InvalidName { .. })), "{scope}");
    }
    let long = Queue::new(&db.pool).store(store).pause_with_reason(&Scope::EVERYTHING, Some(&"é".repeat(1001))).await;
    assert!(matches!(long, Err(Error::OutOfRange { .. })), "{long:?}");
    Queue::new(&db.pool).store(store).pause_with_reason(&Scope::EVERYTHING, Some(&"é".repeat(1000))).await.unwrap();
    sqlx::query("update queue.paused set paused_by = 'somebody else'").execute(&db.pool).await.unwrap();
    Queue::new(&db.pool).store(store).pause(&Scope::EVERYTHING).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.paused where paused_by = session_user").await, 1, "by whom it was last");
    for (call, constraint) in [
        ("queue.pause('a b')", "paused_queue_is_a_name"),
        ("queue.pause('*', '')", "paused_type_is_a_name"),
        ("queue.pause('*', '*', repeat('x', 1001))", "paused_reason_is_short"),
        ("queue.pause(null)", "null"),
    ] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(format!("select {call}"))).execute(&db.pool).await.unwrap_err().to_string();
        assert!(refused.contains(constraint), "{refused}");
    }
    db.finish().await;
}

/// Runs an operation that must not wait forever. The timeout is long enough for a busy machine.
async fn soon<T>(act: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), act).await.expect("it waits forever")
}

#[tokio::test]
#[ignore = "deep"]
async fn pauses_become_visible_in_the_order_of_their_numbers_and_no_session_waits_forever() {
    let db = TestDb::new().await;
    let (mut one, mut other) = (connect(&db).await, connect(&db).await);
    let mut open = one.begin().await.unwrap();
    let first = Queue::on(&mut open).pause(&Scope::queue("mail")).await.unwrap();
    let second = tokio::spawn(async move {
        let number = Queue::on(&mut other).pause(&Scope::queue("post")).await;
        (number, other)
    });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("the other waits", async || db.count(waits).await == 1).await;
    assert_eq!(db.count("select count(*) from queue.paused").await, 0);
    open.commit().await.unwrap();
    let (second, mut other) = second.await.unwrap();
    assert!(second.unwrap() > first);
    // Readers do not wait for an operator's uncommitted transaction. Other operators wait until the lock timeout.
    let mut open = one.begin().await.unwrap();
    Queue::on(&mut open).pause(&Scope::queue("mail")).await.unwrap();
    assert_eq!(Queue::new(&db.pool).pauses().await.unwrap().len(), 2);
    for scope in [Scope::queue("mail"), Scope::queue("new")] {
        let late = soon(Queue::on(&mut other).pause(&scope)).await.unwrap_err().to_string();
        assert!(late.contains("lock timeout"), "{late}");
    }
    let late = soon(Queue::on(&mut other).resume(&Scope::queue("mail"))).await.unwrap_err().to_string();
    assert!(late.contains("lock timeout"), "{late}");
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn jobs_that_wait_for_a_pause_are_counted_up_to_any_number() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    pause(&db, &Scope::queue("default")).await;
    for _ in 0..2 {
        enqueue(&db, "default", quick()).await;
    }
    let mut ask = async |most: &str| -> sqlx::Result<(i64, bool)> {
        sqlx::query_as(sqlx::AssertSqlSafe(format!("select ready, partial from queue.pauses({most})"))).fetch_one(&mut on).await
    };
    for (most, counted) in [("2147483647", (2, false)), ("null", (2, false)), ("2", (2, false)), ("1", (1, true)), ("0", (0, true))] {
        assert_eq!(ask(most).await.unwrap(), counted, "{most}");
    }
    let error = ask("-1").await.unwrap_err();
    assert_eq!(error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("22023"), "{error}");
    db.finish().await;
}

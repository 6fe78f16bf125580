//! Tests the audit entries of operations: the user, the number of affected jobs, and the retention of the entries.

use queue_core::{
    Job as _, Queue,
    operate::{Note, Operation},
};
use sqlx::Connection as _;
use tests::{Act as Do_, Do, TestDb};

fn note(what: &str) -> Note {
    Note { actor: "ada".into(), act: "cancelled".into(), what: what.into() }
}

#[tokio::test]
async fn an_operation_in_many_transactions_is_one_audit_entry_that_grows() {
    let db = TestDb::new().await;
    Do::enqueue_all((0..2500).map(|_| Do { act: Do_::Ok("x".into()) }), &db.pool).await.unwrap();
    let swept = Queue::new(&db.pool).jobs().apply(Operation::Cancel).noted(note("all")).await.unwrap();
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    assert_eq!((swept.done, noted.len(), noted[0].jobs, noted[0].actor.as_str()), (2500, 1, 2500, "ada"));
    let again = Queue::new(&db.pool).jobs().apply(Operation::Cancel).noted(note("all")).await.unwrap();
    assert_eq!((again.done, Queue::new(&db.pool).audit(None, 10).await.unwrap().len()), (0, 1), "nothing was done");
    db.finish().await;
}

#[tokio::test]
async fn the_given_jobs_and_no_others_are_changed_each_once() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(Do { act: Do_::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id());
    }
    let chosen = vec![jobs[1], jobs[3], jobs[1], queue_core::JobId(5)];
    let swept = Queue::new(&db.pool).apply_to(chosen, Operation::Cancel).rate(1000.0).await.unwrap();
    assert_eq!(swept.done, 2);
    assert_eq!(db.count("select count(*) from queue.ready").await, 3);
    assert!(Queue::new(&db.pool).audit(None, 10).await.unwrap().is_empty(), "what is not noted costs nothing");
    db.finish().await;
}

#[tokio::test]
async fn the_last_ten_thousand_audit_entries_are_kept_and_their_writers_block_no_session() {
    let db = TestDb::new().await;
    let insert = "insert into queue.audit (actor, act, what, jobs) select 'a', 'b', n::text, 0 from generate_series(1, 10050) n";
    sqlx::query(insert).execute(&db.pool).await.unwrap();
    let mut first = db.pool.begin().await.unwrap();
    Queue::on(&mut first).record_operation(&note("first"), 1).await.unwrap();
    let mut second = db.pool.acquire().await.unwrap();
    sqlx::query("set lock_timeout = '500ms'").execute(&mut *second).await.unwrap();
    Queue::on(&mut second).record_operation(&note("second"), 1).await.unwrap();
    first.commit().await.unwrap();
    second.close().await.unwrap();
    Queue::new(&db.pool).record_operation(&note("third"), 1).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.audit").await, 10_000);
    let long = Note { actor: "x".repeat(1000), act: "y\0".repeat(100), what: "z".repeat(9000) };
    Queue::new(&db.pool).record_operation(&long, 0).await.unwrap();
    let noted = Queue::new(&db.pool).audit(None, 3).await.unwrap();
    assert_eq!((noted.len(), noted[0].actor.len(), noted[0].what.len()), (3, 100, 500));
    assert_eq!(Queue::new(&db.pool).audit(Some(noted[2].id), u32::MAX).await.unwrap().len(), 500);
    db.finish().await;
}

#[tokio::test]
async fn no_role_adds_to_an_audit_entry_of_another() {
    let db = TestDb::new().await;
    let number = Queue::new(&db.pool).record_operation(&note("mine"), 1).await.unwrap();
    sqlx::query("update queue.audit set role = 'somebody_else'").execute(&db.pool).await.unwrap();
    sqlx::query("select queue.count_operation($1, 5)").bind(number).execute(&db.pool).await.unwrap();
    assert_eq!(Queue::new(&db.pool).audit(None, 1).await.unwrap()[0].jobs, 1);
    let mut connection = sqlx::PgConnection::connect(&db.url).await.unwrap();
    for wrong in ["repeat('x', 101), 'b', 'c'", "'a', repeat('x', 41), 'c'", "'a', 'b', repeat('x', 501)"] {
        let insert = format!("insert into queue.audit (actor, act, what, jobs) values ({wrong}, 0)");
        assert!(sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&mut connection).await.is_err(), "{wrong}");
    }
    let twice = "insert into queue.audit overriding system value select * from queue.audit";
    assert!(sqlx::query(sqlx::AssertSqlSafe(twice)).execute(&mut connection).await.is_err(), "a note is there once");
    db.finish().await;
}

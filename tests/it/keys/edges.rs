//! Tests ordering keys in cases that only a second transaction, another row order or a wrong argument reveals.

use std::time::{Duration, Instant};

use queue_core::{Batch, Job as _, JobId, JobRef, JobState};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{Do, Sql as _, TestDb, WorkerProcess, operate, protocol};

use super::{claim, enqueue, enqueue_skipping, step, unblock};

/// Returns a connection with a lock timeout, so that an unexpected wait for a lock fails.
async fn impatient(db: &TestDb) -> PgConnection {
    let mut connection = db.connect().await;
    connection.run("set lock_timeout = '10s'").await;
    connection
}

async fn hints(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.key_hint").await
}

#[tokio::test]
async fn no_job_overtakes_one_that_waits_for_a_free_key() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    let lease = claim(&mut c).await;
    assert_eq!(protocol::settle(&mut c, &lease.all("complete")).await.unwrap(), []);
    let late = enqueue(&mut c, "a").await;
    assert_eq!([db.state(jobs[1]).await, db.state(late).await], [Some(JobState::Blocked); 2]);
    assert_eq!(unblock(&mut c).await, 1);
    assert_eq!(hints(&db).await, 0, "one of a key that has a head is of no more use");
    enqueue(&mut c, "a").await;
    assert_eq!(unblock(&mut c).await, 0);
    assert_eq!(hints(&db).await, 0);
    assert_eq!(step(&mut c, "complete").await, [jobs[1]]);
    assert_eq!(step(&mut c, "complete").await, [late]);
    db.finish().await;
}

#[tokio::test]
async fn neither_producers_nor_promoters_wait_for_a_session_that_is_releasing_a_key() {
    let db = TestDb::new().await;
    let (mut c, mut other) = (impatient(&db).await, db.connect().await);
    let first = enqueue(&mut c, "a").await;
    let lease = claim(&mut c).await;
    let mut settling = other.begin().await.unwrap();
    assert_eq!(protocol::settle(&mut settling, &lease.all("complete")).await.unwrap(), []);
    let second = enqueue(&mut c, "a").await;
    assert_eq!(unblock(&mut c).await, 0);
    settling.commit().await.unwrap();
    let mut moving = other.begin().await.unwrap();
    assert_eq!(unblock(&mut moving).await, 1);
    assert_eq!(unblock(&mut c).await, 0, "its hint is in other hands");
    let third = enqueue(&mut c, "a").await;
    assert_eq!(unblock(&mut c).await, 0, "and so is the job");
    moving.rollback().await.unwrap();
    assert_eq!(db.state(first).await, Some(JobState::Completed));
    assert_eq!(unblock(&mut c).await, 1);
    assert_eq!(step(&mut c, "complete").await, [second]);
    assert_eq!(step(&mut c, "complete").await, [third]);
    db.finish().await;
}

/// Reverses the physical order of a table's rows and makes the session read them in that order.
async fn turn(on: &mut PgConnection, table: &str, order: &str) {
    let text = format!(
        "set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
         create temporary table turned as select * from queue.{table}; delete from queue.{table};
         insert into queue.{table} select * from turned order by {order} desc; drop table turned"
    );
    sqlx::raw_sql(AssertSqlSafe(text)).execute(on).await.unwrap();
}

#[tokio::test]
async fn keys_continue_in_hint_order_up_to_the_given_number_and_their_jobs_in_place_order() {
    let (db, mut c) = TestDb::with_connection().await;
    let mut next = Vec::new();
    for round in 0..2 {
        for n in 0..6 {
            let job = enqueue(&mut c, &n.to_string()).await;
            next.extend((round == 1).then_some(job));
        }
    }
    unblock(&mut c).await;
    let lease = claim(&mut c).await;
    assert_eq!(protocol::settle(&mut c, &lease.all("complete")).await.unwrap(), []);
    turn(&mut c, "key_hint", "seq").await;
    turn(&mut c, "blocked", "seq").await;
    let hinted: Vec<i64> = c.all("select seq from queue.key_hint order by seq").await;
    let key = "select b.id from queue.key_hint h join queue.blocked b on b.key = h.key where h.seq = $1";
    let one: JobId = sqlx::query_scalar(key).bind(hinted[0]).fetch_one(&mut c).await.unwrap();
    let some = "select hints, lowest, moved from queue.unblock(0, 1)";
    let some: (i32, i64, i32) = sqlx::query_as(some).fetch_one(&mut c).await.unwrap();
    assert_eq!(some, (1, hinted[0], 1));
    assert_eq!(claim(&mut c).await.ids(), [one]);
    assert_eq!(unblock(&mut c).await, 5);
    next.retain(|job| *job != one);
    let order: Vec<JobId> = c.all("select id from queue.ready order by seq").await;
    assert_eq!(order, next);
    db.finish().await;
}

#[tokio::test]
async fn a_dead_letter_whose_key_continued_frees_nothing_and_is_requeued_behind_new_jobs() {
    let db = TestDb::new().await;
    let (mut c, mut producer, mut operator) = (db.connect().await, db.connect().await, db.connect().await);
    let dead = [enqueue_skipping(&mut c, "a").await, enqueue_skipping(&mut c, "a").await, enqueue_skipping(&mut c, "a").await];
    let finished = enqueue(&mut c, "a").await;
    for job in dead {
        assert_eq!(step(&mut c, "dead").await, [job]);
    }
    assert_eq!(step(&mut c, "plain").await, [finished]);
    let head = enqueue(&mut c, "a").await;
    JobRef::from_id(dead[0]).discard(&mut c).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.active_key").await, 1, "the key is another's");
    // Each operation waits briefly for the key, which a producer has locked, and then skips the jobs of the key.
    let mut tx = producer.begin().await.unwrap();
    let last = enqueue(&mut tx, "a").await;
    assert_eq!(operate::requeue(&mut operator, &dead).await.unwrap(), []);
    assert!(!operate::reopen(&mut operator, finished).await.unwrap());
    tx.commit().await.unwrap();
    turn(&mut operator, "dead", "id").await;
    assert_eq!(operate::requeue(&mut operator, &dead).await.unwrap().len(), 2);
    assert!(operate::reopen(&mut operator, finished).await.unwrap());
    db.check_invariant().await;
    for job in [head, last, dead[1], dead[2], finished] {
        assert_eq!(step(&mut c, "complete").await, [job]);
    }
    db.finish().await;
}

#[tokio::test]
async fn jobs_of_one_batch_are_stored_by_their_keys_and_times() {
    let db = TestDb::new().await;
    let job = || Do::ok();
    let mut batch = Batch::new();
    batch.add(job()).unwrap();
    batch.add(job()).unwrap().after(Duration::from_hours(1));
    batch.add(job()).unwrap().key("a");
    batch.add(job()).unwrap().key("b").after(Duration::from_hours(1));
    let jobs = batch.enqueue(&db.pool).await.unwrap();
    let mut c = db.connect().await;
    let states = async || {
        let mut states = Vec::new();
        for job in &jobs {
            states.extend(db.state(*job).await);
        }
        states
    };
    let (ready, scheduled, blocked) = (JobState::Ready, JobState::Scheduled, JobState::Blocked);
    assert_eq!(states().await, [ready, scheduled, blocked, blocked]);
    db.check_invariant().await;
    assert_eq!(unblock(&mut c).await, 2);
    assert_eq!(states().await, [ready, scheduled, ready, scheduled]);
    db.finish().await;
}

#[tokio::test]
async fn an_invalid_job_is_refused_under_a_key_too() {
    let db = TestDb::new().await;
    for (wrong, why) in [
        (r#"null, '{}', '{"key": "a"}'"#, "may not be null"),
        (r#"'do', null, '{"key": "a"}'"#, "may not be null"),
        (r#"'do', '{}', '{"max_attempts": 0, "key": "a"}'"#, "the option max_attempts must be"),
        (r#"'do', to_jsonb(repeat('x', 262144)), '{"key": "a"}'"#, "the limit is"),
        (r#"'do', '{}', '{"key": 7}'"#, "the option key must be"),
        (r#"'do', '{}', '{"key": "a", "key_policy": "wait"}'"#, "the option key_policy must be"),
        (r#"'do', '{}', '{"key_policy": "skip"}'"#, "needs the option key"),
        (r#"'do', '{}', '{"key": null, "key_policy": "block"}'"#, "needs the option key"),
        (r#"'do', '{}', '{"on_conflict": "replace"}'"#, "need the option unique_key"),
        (r#"'do', '{}', '{"unique_key": null, "unique_while": "live"}'"#, "need the option unique_key"),
        (r#"'do', '{}', '{"key": "a", "run_at": "infinity"}'"#, "the option run_at must be"),
        (r#"'do', '{}', '{"key": "a", "run_at": "-infinity"}'"#, "the option run_at must be"),
        (r#"'do', '{}', '{"unique_key": ["a"]}'"#, "the option unique_key must be"),
        (r#"'do', '{}', '{"unique_key": "a", "on_conflict": "drop"}'"#, "the option on_conflict must be"),
        (r#"'do', '{}', '{"unique_key": "a", "unique_while": "0 s"}'"#, "the option unique_while must be"),
        (r#"'do', 'null', '{"queue": "a b", "key": "a"}'"#, "the option queue must be"),
    ] {
        let call = format!("select queue.enqueue_with({wrong})");
        let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&db.pool).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{wrong}: {refused}");
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    let not_given = r#"{"key_policy": null, "unique_while": null, "on_conflict": null}"#;
    sqlx::query("select queue.enqueue_with('do', '{}', $1::jsonb)").bind(not_given).execute(&db.pool).await.unwrap();
    let later = Do::ok().enqueue(&db.pool).key("a").after(Duration::from_hours(1)).await.unwrap().id();
    let known = "select count(*) from queue.jobs where state = 'scheduled' and job_type = 'do'";
    assert_eq!((db.state(later).await, db.count(known).await), (Some(JobState::Scheduled), 1));
    db.finish().await;
}

/// If a job is deleted manually, the row that names it as the head of its key remains. A worker searches for such rows when it starts,
/// and then every minute.
#[tokio::test]
async fn a_worker_frees_the_key_whose_head_is_missing_and_no_other() {
    let (db, mut c, mut other) = TestDb::with_connections().await;
    let mut jobs = Vec::new();
    for key in ["gone", "locked", "alive"] {
        jobs.push([enqueue(&mut c, key).await, enqueue(&mut c, key).await]);
    }
    let [[gone, behind], [locked, behind_locked], [alive, behind_alive]] = jobs[..] else { unreachable!() };
    for deleted in [gone, locked] {
        c.run(&format!("delete from queue.ready where id = {deleted}; delete from queue.job where id = {deleted}")).await;
    }
    JobRef::from_id(alive).snooze(&mut c, Duration::from_hours(1)).await.unwrap();
    let mut open = other.begin().await.unwrap();
    open.run(&format!("select from queue.active_key where id = {locked} for update")).await;
    // Before the commit, neither the first job of the key `late` nor the row that names it as the head is visible.
    let late = enqueue(&mut open, "late").await;
    enqueue(&mut open, "late").await;
    let since = Instant::now();
    let warns =
        WorkerProcess::start_with(env!("CARGO_BIN_EXE_test-cli"), &db.url, &["run", "--log-format", "json"], &[("QUEUE_LOG", "warn")]);
    db.until(behind, JobState::Completed).await;
    let lines = warns.log_since(since);
    let mut fields = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["fields"].take());
    let fields = fields.find(|fields| fields["head"] == gone.to_string()).unwrap();
    assert_eq!((&fields["queue"], &fields["job_type"], &fields["job"]), (&"default".into(), &"do".into(), &behind.to_string().into()));
    assert_eq!([db.state(behind_locked).await, db.state(behind_alive).await], [Some(JobState::Blocked); 2]);
    open.commit().await.unwrap();
    db.run_while(db.worker(), async {
        db.until(late, JobState::Completed).await;
        db.until(behind_locked, JobState::Completed).await;
    })
    .await;
    assert_eq!(db.state(behind_alive).await, Some(JobState::Blocked));
    db.finish().await;
}

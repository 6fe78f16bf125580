//! Tests valid statements that the server rejects because of a deadlock, a serialization failure, a lack of disk space or memory, or a full
//! notification queue. For every table and write operation of a worker, triggers raise each error once. Sequences count the errors, because
//! a rollback does not revert a sequence.

use std::time::Duration;

use queue_core::{Error, Job as _, JobId, JobState};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{Act, Do, TestDb, effects, eventually, within};

/// Tables to which a worker writes between claim and settle, each with the write operation.
const WRITES: [(&str, &str); 9] = [
    ("ready", "delete"),
    ("lease", "insert"),
    ("lease", "delete"),
    ("done", "insert"),
    ("done_many", "insert"),
    ("scheduled", "insert"),
    ("scheduled", "delete"),
    ("worker", "update"),
    ("failure", "insert"),
];

/// Makes each of [`WRITES`] fail once with each code.
async fn refuse(db: &TestDb, codes: [&str; 2]) {
    let function = format!(
        "create function public.refuse() returns trigger language plpgsql as $$
         declare n bigint := nextval(format('public.refused_%s_%s', tg_argv[0], tg_argv[1]));
         begin
           if n <= 2 then raise exception 'as told' using errcode = (array['{}', '{}'])[n]; end if;
           return null;
         end $$",
        codes[0], codes[1]
    );
    sqlx::query(AssertSqlSafe(function)).execute(&db.pool).await.unwrap();
    for (table, operation) in WRITES {
        let trigger = format!(
            "create sequence public.refused_{table}_{operation};
             create trigger refused_{operation} before {operation} on queue.{table}
             for each statement execute function public.refuse('{table}', '{operation}')"
        );
        sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&db.pool).await.unwrap();
    }
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Makes the server reject each of [`WRITES`] with the SQLSTATEs `codes`. Checks that jobs with each outcome still end normally, and that
/// the rejections charge no attempt.
async fn none_is_charged_for(codes: [&str; 2]) {
    let db = TestDb::new().await;
    refuse(&db, codes).await;
    let plain = [enqueue(&db, Act::Sleep(1)).await, enqueue(&db, Act::Ok("x".into())).await];
    let (retried, snoozed) = (enqueue(&db, Act::FailUntil(2)).await, enqueue(&db, Act::Snooze(50, 2)).await);
    let dead = enqueue(&db, Act::Terminal("no".into())).await;
    let forgotten = "select queue.enqueue('do', '{\"act\":{\"Sleep\":1}}') from generate_series(1, 20)";
    sqlx::query(forgotten).execute(&db.pool).await.unwrap();
    db.run_while(db.worker().lease_ttl(Duration::from_secs(6)), async {
        within(Duration::from_mins(1), "all have finished", async || {
            db.count("select count(*) from queue.jobs where state in ('completed', 'dead')").await == 25
        })
        .await;
        for (table, operation) in WRITES {
            let count = format!("select last_value from public.refused_{table}_{operation}");
            eventually("every refusal was met", async || db.count(&count).await >= 2).await;
        }
    })
    .await;
    for (job, attempts) in [(plain[0], 1), (plain[1], 1), (retried, 2), (snoozed, 2), (dead, 1)] {
        assert_eq!(effects(&db.pool, job).await.unwrap(), attempts, "attempts of {job}");
    }
    assert_eq!(db.state(dead).await, Some(JobState::Dead));
    assert_eq!(db.count("select count(*) from queue.done where attempts <> 1").await, 1, "only the one that failed by itself");
    assert_eq!(db.count("select count(*) from queue.failure").await, 2, "the handlers' errors, no more");
    assert_eq!(db.count("select count(*) from effect").await, 20 + 7);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f42_deadlocks_and_serialization_failures_are_no_failures_of_a_job() {
    none_is_charged_for(["40P01", "40001"]).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f46_refusals_for_want_of_disk_or_memory_are_no_failures_of_a_job() {
    none_is_charged_for(["53100", "53200"]).await;
}

#[tokio::test]
async fn f42_a_deadlock_with_a_settle_is_resolved_by_it_and_costs_no_attempt() {
    const WAITS: &str = "select count(*) from pg_stat_activity
       where datname = current_database() and application_name = 'queue-worker settle' and wait_event_type = 'Lock'";
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Slowly(500, Box::new(Act::Ok("x".into())))).await;
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql("set deadlock_timeout = '1min'").execute(&mut other).await.unwrap();
    db.run_while(db.worker(), async {
        eventually("it runs", async || effects(&db.pool, job).await.unwrap() == 1).await;
        let mut locked = other.begin().await.unwrap();
        sqlx::raw_sql("lock table queue.done in access exclusive mode").execute(&mut *locked).await.unwrap();
        eventually("its settle waits", async || db.count(WAITS).await == 1).await;
        // The settle already holds a lock on `lease`, so the two sessions deadlock. The server cancels the settle, because its session has
        // the shorter deadlock timeout.
        sqlx::raw_sql("lock table queue.lease in access exclusive mode").execute(&mut *locked).await.unwrap();
        locked.rollback().await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn f38_a_full_queue_of_notifications_fails_the_commit_with_a_typed_error_and_stores_nothing() {
    let db = TestDb::new().await;
    // A real overflow takes 8 GB of notifications. Like the real error, the simulated error has the code 54000 and is raised at the commit.
    let full = "create function public.full() returns trigger language plpgsql as $$
         begin raise exception 'too many notifications in the NOTIFY queue' using errcode = '54000'; end $$;
       create constraint trigger is_full after insert on queue.ready deferrable initially deferred for each row execute function public.full()";
    sqlx::raw_sql(full).execute(&db.pool).await.unwrap();
    let refused = |error: &sqlx::Error| error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() == Some("54000");
    let act = || Do { act: Act::Ok(String::new()) };
    let error = act().enqueue(&db.pool).await.unwrap_err();
    assert!(matches!(&error, Error::Database(error) if refused(error)), "{error}");
    assert!(error.to_string().contains("too many notifications"), "{error}");
    let error = Do::enqueue_all([act(), act()], &db.pool).await.unwrap_err();
    assert!(matches!(&error, Error::Database(error) if refused(error)), "{error}");
    let mut tx = db.pool.begin().await.unwrap();
    act().enqueue(&mut tx).await.unwrap();
    assert!(refused(&tx.commit().await.unwrap_err()), "the caller gets the error");
    assert_eq!(db.count("select count(*) from queue.job").await, 0);

    sqlx::raw_sql("drop trigger is_full on queue.ready").execute(&db.pool).await.unwrap();
    let job = enqueue(&db, Act::Ok(String::new())).await;
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f38_notifications_can_be_switched_off_under_load() {
    // docs/RELIABILITY.md recommends this trigger to operators. With the trigger, the store records no sleeping worker, so producers send
    // no notifications.
    const OFF: &str = "create function queue.not_asleep() returns trigger language plpgsql as $$ begin return null; end $$;
       create trigger notify_off before insert on queue.idle for each row execute function queue.not_asleep();
       delete from queue.idle";
    let db = TestDb::new().await;
    let mut listener = db.listen("wake").await;
    let mut received = async |what: &str| {
        sqlx::query("select queue.notify('wake', 'probe')").execute(&db.pool).await.unwrap();
        let mut received = 0;
        while listener.recv().await.unwrap().payload() != "probe" {
            received += 1;
        }
        println!("{what}: {received} notifications");
        received
    };
    db.run_while(db.worker(), async {
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        let job = enqueue(&db, Act::Ok(String::new())).await;
        db.until(job, JobState::Completed).await;
        assert!(received("on").await > 0);
        sqlx::raw_sql(OFF).execute(&db.pool).await.unwrap();
        for _ in 0..5 {
            let job = enqueue(&db, Act::Ok(String::new())).await;
            within(Duration::from_secs(8), "polling finds it", async || db.state(job).await == Some(JobState::Completed)).await;
        }
        assert_eq!(received("off").await, 0);
        sqlx::raw_sql("drop function queue.not_asleep() cascade").execute(&db.pool).await.unwrap();
    })
    .await;
    drop(listener);
    db.finish().await;
}

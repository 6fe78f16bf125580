//! Tests that enqueues in SQL use the options that workers have published for a job type. Enqueues in Rust set all options themselves.

use queue_core::{Context, Handler, Job as _, JobHandle, JobId, JobResult, Store, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tests::{TestDb, eventually};

/// Job type in this release.
#[job(send_only, name = "letter", aliases = ["packet"], queue = "post", priority = 150, max_attempts = 3, unique(fields(to)))]
#[derive(Serialize, Deserialize)]
struct Letter {
    to: String,
}

/// The same job type in another release.
mod other {
    use super::{Context, Deserialize, Handler, JobResult, Serialize, job};

    #[job(send_only, name = "letter")]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Letter {
        to: String,
    }

    impl Handler for Letter {
        async fn run(self, _: &Context) -> JobResult {
            Ok(())
        }
    }
}

impl Handler for Letter {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Returns a worker that serves none of the queues into which the tests enqueue, so their jobs stay queued.
fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<Letter>().queue("nothing", 1)
}

async fn published(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.type_options").await
}

/// Runs an enqueue call. Returns the queue, the priority and the maximum number of attempts of the job.
async fn enqueue(on: &mut PgConnection, call: &str) -> String {
    let id: JobId = sqlx::query_scalar(AssertSqlSafe(format!("select id from queue.{call} id"))).fetch_one(&mut *on).await.unwrap();
    place(on, id).await
}

async fn place(on: &mut PgConnection, id: JobId) -> String {
    let job = "select queue || ' ' || priority || ' ' || max_attempts from queue.jobs where id = $1";
    sqlx::query_scalar(job).bind(id).fetch_one(on).await.unwrap()
}

#[tokio::test]
async fn an_enqueue_in_sql_uses_the_published_options_of_its_type() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    assert_eq!(enqueue(&mut on, "enqueue('letter', '{}')").await, "default 100 20", "no worker has published anything");
    db.run_while(worker(&db), eventually("they are published", async || published(&db).await == 2)).await;

    // The worker has stopped, but its published options remain.
    for (call, goes) in [
        ("enqueue('letter', '{}')", "post 150 3"),
        ("enqueue('packet', '{}')", "post 150 3"),
        ("enqueue('card', '{}')", "default 100 20"),
        (r#"enqueue('letter', '{}', '{"priority": 7}')"#, "post 7 3"),
        (r#"enqueue('letter', '{}', '{"queue": "express", "max_attempts": 20}')"#, "express 150 20"),
        (r#"enqueue('letter', '{}', '{"queue": "default", "priority": 100, "max_attempts": 20}')"#, "default 100 20"),
        (r#"enqueue('letter', '{}', '{"queue": null, "priority": null, "max_attempts": null}')"#, "post 150 3"),
        (r#"enqueue('letter', '{}', '{"key": "a"}')"#, "post 150 3"),
        (r#"enqueue('letter', '{}', '{"key": "a", "priority": 1, "max_attempts": 2}')"#, "post 1 2"),
        (r#"enqueue('letter', '{}', '{"after": 3600, "queue": "late", "priority": 1}')"#, "late 1 3"),
        (r#"enqueue('card', '{}', '{"priority": 1}')"#, "default 1 20"),
    ] {
        assert_eq!(enqueue(&mut on, call).await, goes, "{call}");
    }
    for with in ["enqueue_with", "try_enqueue"] {
        let row =
            sqlx::query(AssertSqlSafe(format!("select id, outcome from queue.{with}('letter', '{{}}')"))).fetch_one(&mut on).await.unwrap();
        assert_eq!((place(&mut on, row.get(0)).await.as_str(), row.get::<&str, _>(1)), ("post 150 3", "enqueued"), "{with}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_uniqueness_key_in_sql_belongs_to_the_published_queue_of_the_type() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    db.run_while(worker(&db), eventually("they are published", async || published(&db).await == 2)).await;
    let job = Letter { to: "ada".into() }.enqueue(&db.pool).unique("first").await.unwrap();
    let held = r#"select id, outcome from queue.enqueue_with('letter', '{}', '{"unique_key": "first"}')"#;
    let held: (JobId, String) = sqlx::query_as(held).fetch_one(&mut on).await.unwrap();
    assert_eq!(held, (job.id(), "kept".to_owned()));
    db.finish().await;
}

#[tokio::test]
async fn the_worker_that_started_last_decides_and_publishes_nothing_of_unknown_types() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("insert into queue.type_options values ('foreign', 'theirs', 1, 1)").execute(&mut on).await.unwrap();
    for _ in 0..2 {
        db.run_while(worker(&db), eventually("they are published", async || published(&db).await == 3)).await;
        assert_eq!(enqueue(&mut on, "enqueue('letter', '{}')").await, "post 150 3");
        let old = Worker::new(db.pool.clone()).register::<other::Letter>().queue("nothing", 1);
        db.run_while(old, eventually("it is as any type", async || published(&db).await == 2)).await;
        assert_eq!(enqueue(&mut on, "enqueue('letter', '{}')").await, "default 100 20");
    }
    assert_eq!(enqueue(&mut on, "enqueue('foreign', '{}')").await, "theirs 1 1");
    assert_eq!(enqueue(&mut on, "enqueue('packet', '{}')").await, "post 150 3", "the other release does not know this name");
    db.finish().await;
}

#[tokio::test]
async fn published_options_change_no_enqueue_from_rust() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("insert into queue.type_options values ('letter', 'stray', 1, 1)").execute(&mut on).await.unwrap();
    let letter = |to: &str| Letter { to: to.into() };
    let mut jobs = vec![
        letter("one").enqueue(&db.pool).await.unwrap().id(),
        letter("keyed").enqueue(&db.pool).key("k").await.unwrap().id(),
        letter("meta").enqueue(&db.pool).meta("a", 1).await.unwrap().id(),
        letter("unless").enqueue(&db.pool).unless_at_capacity().await.unwrap().unwrap().id(),
    ];
    let many = Letter::enqueue_all((0..3).map(|n| letter(&n.to_string())), &db.pool).returning_ids().await.unwrap();
    jobs.extend(many.iter().map(JobHandle::id));
    for job in jobs {
        assert_eq!(place(&mut on, job).await, "post 150 3");
    }
    db.finish().await;
}

/// A lock on the table of options delays neither an enqueue nor a worker's jobs.
#[tokio::test]
async fn a_lock_on_published_options_stops_neither_enqueues_nor_workers() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut holder = db.pool.begin().await.unwrap();
    sqlx::query("lock table queue.type_options in share row exclusive mode").execute(&mut *holder).await.unwrap();
    sqlx::query("set lock_timeout = '5s'").execute(&mut on).await.unwrap();
    assert_eq!(enqueue(&mut on, r#"enqueue('letter', '{"to": "ada"}')"#).await, "default 100 20");
    let waits = "select count(*) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and application_name = 'queue-worker prune'";
    db.run_while(Worker::new(db.pool.clone()).register::<Letter>(), async {
        eventually("the worker waits to publish it", async || db.count(waits).await == 1).await;
        let left = "select count(*) from queue.jobs where state <> 'completed'";
        eventually("and runs jobs meanwhile", async || db.count(left).await == 0).await;
        holder.rollback().await.unwrap();
        eventually("then it publishes it", async || published(&db).await == 2).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn published_options_are_written_once_and_refused_if_no_enqueue_could_use_them() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let publish = Store::default().sql(include_str!("../../queue-worker/sql/publish_types.sql"));
    for written in [1, 0, 0] {
        let statement =
            sqlx::query(publish).bind(["a", "b"]).bind(["mail", "default"]).bind([1_i16, 100]).bind([2_i16, 20]).bind([None::<f64>; 2]);
        assert_eq!(statement.execute(&mut on).await.unwrap().rows_affected(), written);
    }
    // Options that differ in only one value are published as well.
    for (n, (queue, priority, attempts)) in [("x", 100_i16, 20_i16), ("default", 101, 20), ("default", 100, 21)].into_iter().enumerate() {
        let statement = sqlx::query(publish).bind(["b"]).bind([queue]).bind([priority]).bind([attempts]).bind([None::<f64>]);
        assert_eq!(statement.execute(&mut on).await.unwrap().rows_affected(), 1, "{n}");
        assert_eq!(enqueue(&mut on, "enqueue('b', '{}')").await, format!("{queue} {priority} {attempts}"));
    }
    for (constraint, row) in [
        ("type_options_pkey", "values ('a', 'x', 1, 1)"),
        ("type_options_queue_is_a_name", "values ('c', 'a b', 1, 1)"),
        ("type_options_attempts_are_positive", "values ('c', 'a', 1, 0)"),
    ] {
        let error = sqlx::query(AssertSqlSafe(format!("insert into queue.type_options {row}"))).execute(&mut on).await.unwrap_err();
        assert!(error.to_string().contains(constraint), "{constraint}: {error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn whole_numbers_are_accepted_in_every_notation() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for (call, goes) in [
        ("insert_job('card', '{}', 'post', 150, 3)", "post 150 3"),
        ("insert_job('card', '{}', priority => -150, max_attempts => 3)", "default -150 3"),
        ("insert_job('card', '{}', 'post', 150::smallint, 3::smallint)", "post 150 3"),
    ] {
        assert_eq!(enqueue(&mut on, call).await, goes, "{call}");
    }
    for call in ["insert_job('card', '{}', priority => 32768)", "insert_job('card', '{}', max_attempts => 32768)"] {
        let error = sqlx::query(AssertSqlSafe(format!("select queue.{call}"))).execute(&mut on).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("22003"), "{call}: {error}");
    }
    // An integer literal does not match a smallint parameter, so the functions must not have smallint parameters.
    let narrow = "select count(*) from pg_proc where pronamespace = 'queue'::regnamespace
      and array['int2'::regtype, 'int2[]'::regtype]::oid[] && proargtypes::oid[]";
    assert_eq!(db.count(narrow).await, 0);
    db.finish().await;
}

//! Tests metadata. The size is bounded, jobs without metadata cost nothing extra, and every kind of enqueue and run keeps the metadata.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::{
    Batch, Context, Error, Handler, Job as _, JobHandle, JobId, JobResult, JobState, Store, job, options::Durability, testing,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tests::{Act, Do, TestDb};

/// Job that returns its metadata on its second attempt.
#[job(send_only, max_attempts = 2, backoff = fixed("1ms"), output = Value)]
#[derive(Serialize, Deserialize)]
struct Tell;

impl Handler for Tell {
    async fn run(self, cx: &Context) -> JobResult<Value> {
        if cx.is_last_attempt() { Ok(Value::Object(cx.meta().clone())) } else { Err("once more".into()) }
    }
}

/// Transactional job that returns its metadata.
#[job(send_only, transactional, output = Value)]
#[derive(Serialize, Deserialize)]
struct TellWithin;

impl Handler for TellWithin {
    async fn run(self, cx: &Context) -> JobResult<Value> {
        Ok(Value::Object(cx.meta().clone()))
    }
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Returns the stored metadata of a job.
async fn stored(db: &TestDb, job: JobId) -> Option<Value> {
    sqlx::query_scalar("select meta from queue.job where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

fn refused(error: &Error) -> String {
    let Error::OutOfRange { what: "the metadata", .. } = error else { panic!("{error}") };
    error.to_string()
}

#[tokio::test]
#[ignore = "deep"]
async fn metadata_are_stored_by_every_kind_of_enqueue_and_reach_the_handler() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let mut batch = Batch::new();
    batch.add(Tell).unwrap().meta("way", "batch");
    batch.add(Tell).unwrap();
    batch.add(Tell).unwrap().meta("way", "batch of keys").key("a");
    let mut unique = Batch::new();
    unique.add(Tell).unwrap().meta("way", "each").unique("b");
    unique.add(Tell).unwrap();
    let mut jobs: HashMap<JobId, Value> = HashMap::new();
    for (way, enqueue) in [
        ("one", Tell.enqueue(&mut tx)),
        ("key", Tell.enqueue(&db.pool).key("one")),
        ("unique", Tell.enqueue(&db.pool).unique("one").after(Duration::from_millis(1))),
        ("relaxed", Tell.enqueue(&db.pool).durability(Durability::Relaxed)),
    ] {
        jobs.insert(enqueue.meta("way", way).meta("n", 1.5).await.unwrap().id(), json!({"way": way, "n": 1.5}));
    }
    let tried = Tell.enqueue(&mut tx).meta("way", "other").meta("way", "try").unless_at_capacity().await.unwrap().unwrap();
    jobs.insert(tried.id(), json!({"way": "try"}));
    jobs.insert(TellWithin.enqueue(&mut tx).meta("way", [Some(1), None]).await.unwrap().id(), json!({"way": [1, null]}));
    tx.commit().await.unwrap();
    let few = Tell::enqueue_all((0..3).map(|_| Tell), &db.pool).meta("many", 3).returning_ids().await.unwrap();
    jobs.extend(few.iter().map(|job| (job.id(), json!({"many": 3}))));
    // These jobs fill more than one chunk. They do not have to run, so the worker does not register their type.
    assert_eq!(Do::enqueue_all((0..9000).map(|_| quick()), &db.pool).meta("many", 9000).await.unwrap(), 9000);
    assert_eq!(db.count("select count(*) from queue.job where meta = '{\"many\": 9000}'").await, 9000);
    let ids = batch.enqueue(&db.pool).await.unwrap();
    jobs.extend([(ids[0], json!({"way": "batch"})), (ids[1], json!({})), (ids[2], json!({"way": "batch of keys"}))]);
    let ids = unique.enqueue(&db.pool).await.unwrap();
    jobs.extend([(ids[0], json!({"way": "each"})), (ids[1], json!({}))]);
    let sql = "select queue.enqueue('tell', 'null', '{\"meta\": {\"way\": \"sql\"}}')";
    jobs.insert(sqlx::query_scalar(sql).fetch_one(&db.pool).await.unwrap(), json!({"way": "sql"}));

    let worker = Worker::new(db.pool.clone()).register::<Tell>().register::<TellWithin>();
    db.run_while(worker, async {
        for (id, expected) in &jobs {
            assert_eq!(JobHandle::<Tell>::from_id(*id).wait(&db.queue()).await.unwrap(), *expected);
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_without_metadata_has_none() {
    let db = TestDb::new().await;
    let job = quick().enqueue(&db.pool).key("a").await.unwrap();
    assert_eq!((stored(&db, job.id()).await, stored(&db, quick().enqueue(&db.pool).await.unwrap().id()).await), (None, None));
    let emptied = sqlx::query_scalar("select queue.enqueue('do', '{}', '{\"meta\": null}')").fetch_one(&db.pool).await.unwrap();
    assert_eq!(stored(&db, emptied).await, None);
    db.finish().await;
}

#[tokio::test]
async fn metadata_that_are_too_large_or_cannot_be_read_back_are_refused_without_being_shown() {
    let db = TestDb::new().await;
    // The text `{"k": "…"}` is nine bytes longer than its value.
    let of = |bytes: usize| "x".repeat(bytes - 9);
    let most = quick().enqueue(&db.pool).meta("k", of(4096)).await.unwrap();
    assert_eq!(stored(&db, most.id()).await.unwrap()["k"].as_str().unwrap().len(), 4087);
    assert!(refused(&quick().enqueue(&db.pool).meta("k", of(4097)).await.unwrap_err()).contains("4 KiB"));
    let halves = quick().enqueue(&db.pool).meta("a", of(2048)).meta("b", of(2050));
    assert!(refused(&halves.await.unwrap_err()).contains("4 KiB"), "together");
    for (key, value) in [("secret", json!("sec\0ret")), ("sec\0ret", json!(1)), ("deep", json!(["x", {"y": "\0"}]))] {
        let text = refused(&quick().enqueue(&db.pool).meta(key, value).await.unwrap_err());
        assert!(text.contains("U+0000") && !text.contains("sec\0ret"), "{text}");
    }
    assert!(refused(&quick().enqueue(&db.pool).meta("nan", f64::NAN).await.unwrap_err()).contains("`nan`"));
    let all = Do::enqueue_all((0..3).map(|_| quick()), &db.pool).meta("k", of(5000));
    refused(&all.await.unwrap_err());
    let mut batch = Batch::new();
    batch.add(quick()).unwrap();
    batch.add(quick()).unwrap().meta("k", of(5000));
    let Error::OneOfMany { index: 1, source } = batch.enqueue(&db.pool).await.unwrap_err() else { panic!("not of the second") };
    refused(&source);

    for wrong in [json!({"k": of(4097)}), json!([1]), json!("text"), json!(1)] {
        let options = json!({ "meta": wrong });
        let sql = sqlx::query("select queue.enqueue('do', '{}', $1)").bind(options).execute(&db.pool).await.unwrap_err();
        assert_eq!(sql.as_database_error().unwrap().code().unwrap(), "22023", "{sql}");
    }
    // The statement for many jobs is internal, but it also checks the metadata.
    for wrong in [json!({"k": of(4097)}), json!([1])] {
        let many = Store::default().sql(include_str!("../../queue-core/sql/insert_with.sql"));
        let many = sqlx::query(many).bind(vec![json!({})]).bind(vec![1_i64]).bind(vec![1_i16]).bind(vec![None::<DateTime<Utc>>]);
        let sql = many.bind(vec![json!({ "meta": wrong })]).bind(vec![None::<DateTime<Utc>>]).execute(&db.pool).await.unwrap_err();
        assert_eq!(sql.as_database_error().unwrap().code().unwrap(), "22023", "{sql}");
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn the_test_kit_gives_metadata_and_shows_it() {
    let alone = testing::run(Tell).attempt(2).meta("tenant", "acme").meta("n", 1).await;
    assert_eq!(alone.output(), json!({"tenant": "acme", "n": 1}));
    assert_eq!(testing::run(Tell).attempt(2).await.output(), json!({}));

    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let hour = std::time::Duration::from_hours(1);
    Tell.enqueue(&mut tx).max_attempts(1).meta("tenant", "acme").expires_in(hour).await.unwrap();
    Tell.enqueue(&mut tx).max_attempts(1).await.unwrap();
    let waiting = testing::enqueued_jobs::<Tell>(&mut tx).await.unwrap();
    let acme: Map<String, Value> = [("tenant".to_owned(), json!("acme"))].into_iter().collect();
    assert_eq!(waiting.iter().map(|job| job.meta.clone()).collect::<Vec<_>>(), [acme, Map::new()]);
    assert_eq!(waiting.iter().map(|job| job.expires_at.is_some()).collect::<Vec<_>>(), [true, false]);
    let drained = testing::drain(&mut tx).register::<Tell>().await.unwrap();
    assert_eq!(drained.outputs::<Tell>(), [json!({"tenant": "acme"}), json!({})]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn metadata_stay_with_a_dead_job_and_after_its_requeue() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Fail("no".into()) }.enqueue(&db.pool).max_attempts(1).meta("tenant", "acme").await.unwrap();
    db.run_while(db.worker(), db.until(job.id(), JobState::Dead)).await;
    job.requeue(&db.pool).await.unwrap();
    assert_eq!(stored(&db, job.id()).await, Some(json!({"tenant": "acme"})));
    db.finish().await;
}

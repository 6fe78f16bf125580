//! Tests every enqueue method for jobs that expire, and rejected expiry times.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Batch, Error, Job as _, JobId, JobType as _, OnConflict, Queue, job, options::Durability, schedule::Schedule};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection as _};
use tests::{Act, Do, TestDb, eventually, operate::expire_due};

use super::{HOUR, connect, count_entries, expire_now, stored_expiry};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Job that expires by default.
#[job(name = "expires_by_type", expires = "1h")]
#[derive(Serialize, Deserialize)]
struct ByType;

impl queue_core::Handler for ByType {
    async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
        Ok(())
    }
}

/// Returns the number of seconds from the job's due time until its expiry. A job without a due time counts from its enqueue. Returns -1 if
/// the job has no matching expiry entry.
async fn seconds(db: &TestDb, job: JobId) -> i64 {
    let text = "select round(extract(epoch from e.at - coalesce(s.run_at, queue.enqueued_at(j.id))))::bigint
      from queue.job j join queue.expiry e on e.id = j.id and queue.expiry_text(e.at) = j.system ->> 'expires_at'
      left join queue.scheduled s on s.id = j.id where j.id = $1";
    sqlx::query_scalar(text).bind(job).fetch_optional(&db.pool).await.unwrap().unwrap_or(-1)
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_expires_whichever_way_it_was_enqueued() {
    let db = TestDb::new().await;
    let pool = &db.pool;
    let mut jobs: Vec<(&str, JobId)> = Vec::new();
    jobs.push(("one", quick().enqueue(pool).expires_in(HOUR).await.unwrap().id()));
    jobs.push(("by its type", ByType.enqueue(pool).await.unwrap().id()));
    jobs.push(("relaxed", quick().enqueue(pool).durability(Durability::Relaxed).expires_in(HOUR).await.unwrap().id()));
    jobs.push(("keyed", quick().enqueue(pool).key("a").expires_in(HOUR).await.unwrap().id()));
    jobs.push(("blocked", quick().enqueue(pool).key("a").expires_in(HOUR).await.unwrap().id()));
    jobs.push(("unique", quick().enqueue(pool).unique("u").expires_in(HOUR).await.unwrap().id()));
    jobs.push(("later", quick().enqueue(pool).after(HOUR).expires_in(HOUR).await.unwrap().id()));
    jobs.push(("with metadata", quick().enqueue(pool).meta("a", 1).expires_in(HOUR).await.unwrap().id()));
    jobs.push(("unless full", quick().enqueue(pool).expires_in(HOUR).unless_at_capacity().await.unwrap().unwrap().id()));
    let many = Do::enqueue_all((0..3).map(|_| quick()), pool).expires_in(HOUR).returning_ids().await.unwrap();
    jobs.extend(many.iter().map(|job| ("of many", job.id())));
    let many = ByType::enqueue_all([ByType, ByType], pool).after(HOUR).returning_ids().await.unwrap();
    jobs.extend(many.iter().map(|job| ("of many later", job.id())));
    let many = Do::enqueue_all((0..20_000).map(|_| quick()), pool).expires_in(HOUR).returning_ids().await.unwrap();
    jobs.extend([&many[0], &many[19_999]].map(|job| ("of a great many", job.id())));
    let mut batch = Batch::new();
    batch.add(quick()).unwrap().expires_in(HOUR).key("b");
    batch.add(quick()).unwrap();
    batch.add(ByType).unwrap();
    let of_batch = batch.enqueue(pool).await.unwrap();
    jobs.extend([("of a batch", of_batch[0]), ("of a batch by its type", of_batch[2])]);
    let mut batch = Batch::new();
    batch.add(quick()).unwrap().expires_in(HOUR).unique("v");
    let of_batch_too = batch.enqueue(pool).await.unwrap();
    jobs.push(("of a batch, each", of_batch_too[0]));
    let mut tx = pool.begin().await.unwrap();
    jobs.push(("in a transaction", quick().enqueue(&mut tx).expires_in(HOUR).await.unwrap().id()));
    for call in [
        r#"enqueue('do', '{"act": {"Ok": ""}}', '{"expires_in": 3600}')"#,
        r#"enqueue('do', '{"act": {"Ok": ""}}', '{"expires_in": "1 hour", "key": "c"}')"#,
        r#"enqueue('do', '{"act": {"Ok": ""}}', jsonb_build_object('expires_at', now() + interval '1 hour'))"#,
    ] {
        let id = sqlx::query_scalar(AssertSqlSafe(format!("select queue.{call}"))).fetch_one(&mut *tx).await.unwrap();
        jobs.push((call, id));
    }
    for call in ["enqueue_with", "try_enqueue"] {
        let text = format!(r#"select id from queue.{call}('do', '{{"act": {{"Ok": ""}}}}', '{{"expires_in": "PT1H", "after": 60}}')"#);
        jobs.push((call, sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut *tx).await.unwrap()));
    }
    tx.commit().await.unwrap();
    for (way, job) in &jobs {
        // A large enqueue reads the clock once, at its beginning, so its later jobs may expire less than an hour after their enqueue.
        let seconds = seconds(&db, *job).await;
        assert!(if way.ends_with("many") { (3480..=3600).contains(&seconds) } else { seconds == 3600 }, "{way}: {seconds}");
    }
    assert_eq!(stored_expiry(&db, of_batch[1]).await, None, "the other one of the batch");
    let of_all = db.count("select count(*) from queue.expiry").await;
    assert_eq!(of_all, jobs.len() as i64 + 19_998);

    let ids: Vec<JobId> = jobs.iter().map(|(_, job)| *job).collect();
    expire_now(&db, &ids).await;
    let mut on = connect(&db).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), ids.len() as i64, "those that are due, wherever they wait");
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'expired'").await, ids.len() as i64);
    db.finish().await;
}

#[tokio::test]
async fn an_enqueue_in_sql_expires_as_its_types_workers_have_published() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = Worker::new(db.pool.clone()).register::<ByType>().queue("nothing", 1);
    let published = async || db.count("select count(*) from queue.type_options where expires = '1 hour'").await == 1;
    db.run_while(worker, eventually("it is published", published)).await;
    for call in [
        "enqueue('expires_by_type', '{}')",
        r#"enqueue('expires_by_type', '{}', '{"priority": 7}')"#,
        "producer_enqueue('expires_by_type', '{}')",
    ] {
        let job: JobId = sqlx::query_scalar(AssertSqlSafe(format!("select queue.{call}"))).fetch_one(&mut on).await.unwrap();
        assert_eq!(seconds(&db, job).await, 3600, "{call}");
    }
    let longer = r#"select queue.enqueue('expires_by_type', '{}', '{"expires_in": 7200}')"#;
    let job: JobId = sqlx::query_scalar(longer).fetch_one(&mut on).await.unwrap();
    assert_eq!(seconds(&db, job).await, 7200, "an enqueue overrides it");
    let other: JobId = sqlx::query_scalar("select queue.enqueue('another', '{}')").fetch_one(&mut on).await.unwrap();
    assert_eq!(stored_expiry(&db, other).await, None);
    db.finish().await;
}

#[tokio::test]
async fn the_job_of_a_tick_expires_relative_to_its_due_time() {
    let db = TestDb::new().await;
    let schedule = Schedule::every(Duration::from_mins(1)).job(&ByType);
    Queue::new(&db.pool).schedule("expiring").create(&schedule).await.unwrap();
    let job: JobId = sqlx::query_scalar("select queue.run_schedule('expiring')").fetch_one(&db.pool).await.unwrap();
    assert_eq!(seconds(&db, job).await, 3600);
    let at = Schedule::every(Duration::from_mins(1)).job_with(&ByType, |options| {
        options.expires_at(Utc::now());
    });
    let refused = Queue::new(&db.pool).schedule("expiring").create(&at).await.unwrap_err();
    assert!(refused.to_string().contains("left to the schedule"), "{refused}");
    db.finish().await;
}

#[tokio::test]
async fn an_invalid_expiry_or_one_before_the_due_time_is_refused_and_named() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for (options, why) in [
        (r#"{"expires_at": "infinity"}"#, "within the years 1970 to 9999"),
        (r#"{"expires_at": "-infinity"}"#, "within the years 1970 to 9999"),
        (r#"{"expires_at": "1969-12-31 23:59:59+00:00"}"#, "within the years 1970 to 9999"),
        (r#"{"expires_at": "10000-01-01T00:00:00Z"}"#, "within the years 1970 to 9999"),
        (r#"{"expires_at": 7}"#, "within the years 1970 to 9999"),
        (r#"{"expires_at": "soon"}"#, "within the years 1970 to 9999"),
        (r#"{"expires_in": 0}"#, "longer than zero"),
        (r#"{"expires_in": -1}"#, "longer than zero"),
        (r#"{"expires_in": "9000 years"}"#, "before the year 10000"),
        (r#"{"expires_in": 1e300}"#, "before the year 10000"),
        (r#"{"expires_in": true}"#, "longer than zero"),
        (r#"{"expires_in": "a while"}"#, "longer than zero"),
        (r#"{"expires_in": "9 years", "run_at": "9999-01-01T00:00:00Z"}"#, "before the year 10000"),
        (r#"{"expires_in": 1, "expires_at": "2100-01-01"}"#, "excludes the option expires_in"),
        (
            r#"{"expires_at": "2100-01-01T00:00:00Z", "run_at": "2100-01-01T00:00:00Z"}"#,
            "would expire at 2100-01-01T00:00:00.000000Z, before it may run",
        ),
        (r#"{"expires_at": "2020-01-01T00:00:00Z", "after": 1}"#, "before it may run"),
    ] {
        let refused = sqlx::query("select queue.enqueue('do', '{}', $1::text::jsonb)").bind(options).execute(&mut on).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{options} is taken"));
        let refused = refused.as_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("22023"), "{options}: {refused}");
        assert!(refused.message().contains(why), "{options}: {refused}");
    }
    let year = |year: i64| DateTime::UNIX_EPOCH + chrono::Duration::days(year * 365);
    let now = Utc::now();
    let quickly = || quick().enqueue(&db.pool);
    for (what, refused) in [
        ("too late", quickly().expires_at(year(9000)).await.map(drop)),
        ("before all", quickly().expires_at(year(-1)).await.map(drop)),
        ("at once", quickly().expires_in(Duration::ZERO).await.map(drop)),
        ("never", quickly().expires_in(Duration::MAX).await.map(drop)),
        ("many, before they may run", Do::enqueue_all([quick()], &db.pool).at(now + HOUR).expires_at(now + HOUR).await.map(drop)),
        ("many, too late", Do::enqueue_all([quick()], &db.pool).at(year(8020)).expires_in(40 * 365 * 24 * HOUR).await.map(drop)),
    ] {
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{what}: {refused:?}");
    }
    let refused = quickly().after(HOUR).expires_at(now).await.unwrap_err();
    assert!(refused.to_string().contains("before it may run"), "{refused}");
    assert_eq!(db.count("select count(*) from queue.job").await, 0, "nothing was enqueued");

    // A job with an expiry time in the past expires at the next sweep, even if the job's due time is in the past as well.
    let past = quickly().at(now - HOUR).expires_at(now - HOUR).await.unwrap().id();
    assert_eq!(count_entries(&db, past).await, 1);
    assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
async fn replacing_or_debouncing_a_job_sets_its_expiry_and_keeping_it_does_not() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let again = async |conflict, expires: Option<u64>| {
        let enqueue = quick().enqueue(&db.pool).unique("u").on_conflict(conflict);
        let enqueue = if let Some(hours) = expires { enqueue.expires_in(hours as u32 * HOUR) } else { enqueue };
        enqueue.await.unwrap().id()
    };
    let job = again(OnConflict::Keep, Some(1)).await;
    let first = stored_expiry(&db, job).await;
    assert_eq!((again(OnConflict::Keep, Some(2)).await, stored_expiry(&db, job).await), (job, first.clone()), "kept as it is");
    assert_eq!(again(OnConflict::Replace, Some(2)).await, job);
    let second = stored_expiry(&db, job).await;
    assert!(second > first && count_entries(&db, job).await == 2, "{second:?} {first:?}");
    // The entry of the first expiry time is obsolete.
    sqlx::query("update queue.expiry set at = now() - interval '1 s' where queue.expiry_text(at) = $1")
        .bind(first)
        .execute(&mut on)
        .await
        .unwrap();
    assert_eq!((expire_due(&mut on).await.unwrap(), count_entries(&db, job).await), (0, 1));
    let same = Utc::now() + 3 * HOUR;
    for _ in 0..2 {
        let set_again = quick().enqueue(&db.pool).unique("u").on_conflict(OnConflict::Replace).expires_at(same);
        assert_eq!(set_again.await.unwrap().id(), job, "the same time may be set again");
    }
    assert_eq!(again(OnConflict::Debounce, Some(4)).await, job);
    assert!(stored_expiry(&db, job).await > second);
    assert_eq!((again(OnConflict::Replace, None).await, stored_expiry(&db, job).await), (job, None), "it may begin at any time");
    expire_now(&db, &[]).await;
    sqlx::query("update queue.expiry set at = now() - (1 + random()) * interval '1 s'").execute(&mut on).await.unwrap();
    assert_eq!(expire_due(&mut on).await.unwrap(), 0);
    assert_eq!(again(OnConflict::Replace, Some(1)).await, job);
    expire_now(&db, &[job]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    assert_ne!(again(OnConflict::Keep, None).await, job, "a job that has expired holds no key");
    assert_eq!(ByType::OPTIONS.expires, Some(HOUR));
    on.close().await.unwrap();
    db.finish().await;
}

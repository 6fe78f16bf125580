//! Tests unique jobs. Exactly one job holds a key, whatever the order of the enqueues. Also tests the results of conflicting enqueues,
//! and when a job releases its key.

mod held;
mod kept;
mod races;
mod requeued;

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Batch, EnqueueOutcome, Error, Job as _, JobHandle, JobState, OnConflict, job, options::While};
use queue_worker::Config;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, PgPool};
use tests::{
    Act, Do, Sql as _, TestDb,
    protocol::{claim, register, settle},
};

/// Job that is unique by two of its fields.
#[job(send_only, unique(fields(user, month), while = queued, on_conflict = replace))]
#[derive(Clone, Serialize, Deserialize)]
struct Report {
    user: String,
    month: String,
    pages: u32,
}

fn report(user: &str, month: &str, pages: u32) -> Report {
    Report { user: user.to_owned(), month: month.to_owned(), pages }
}

fn say(text: &str) -> Do {
    Do { act: Act::Ok(text.to_owned()) }
}

async fn jobs(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.job").await
}

/// Claims all jobs, and settles them with `verdict`.
async fn end(on: &mut PgConnection, verdict: &'static str) {
    let worker = register(on).await.unwrap();
    let lease = claim(on, worker, 100).await.unwrap();
    assert!(!lease.jobs.is_empty());
    assert_eq!(settle(on, &lease.all(verdict)).await.unwrap(), []);
}

async fn payload(db: &TestDb, job: JobHandle<Do>) -> String {
    let payload = sqlx::query_scalar("select payload -> 'act' ->> 'Ok' from queue.jobs where id = $1");
    payload.bind(job.id()).fetch_one(&db.pool).await.unwrap()
}

async fn run_at(db: &TestDb, job: JobHandle<Do>) -> Option<DateTime<Utc>> {
    db.one(&format!("select run_at from queue.jobs where id = {0}", job.id())).await
}

#[tokio::test]
async fn a_queued_key_is_free_once_its_job_is_claimed_and_held_again_when_it_comes_back() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = |text| say(text).enqueue(&db.pool).unique("key").unique_while(While::Queued);
    let first = enqueue("1").await.unwrap();
    assert_eq!(enqueue("2").await.unwrap().outcome(), EnqueueOutcome::Kept);
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    settle(&mut on, &lease.all("release")).await.unwrap();
    assert_eq!(enqueue("3").await.unwrap().id(), first.id(), "given back");
    let lease = claim(&mut on, worker, 1).await.unwrap();
    settle(&mut on, &lease.all("retry")).await.unwrap();
    let replaced = enqueue("4").on_conflict(OnConflict::Replace).await.unwrap();
    assert_eq!((replaced.id(), replaced.outcome()), (first.id(), EnqueueOutcome::Replaced), "it waits for a retry");
    // After the promotion, the job's position in its lane differs from its id.
    db.run("update queue.scheduled set run_at = now() - interval '1 s'").await;
    sqlx::query(include_str!("../../queue-worker/sql/promote.sql")).bind(10_i64).execute(&mut on).await.unwrap();
    let replaced = enqueue("5").on_conflict(OnConflict::Replace).await.unwrap();
    assert_eq!((replaced.id(), replaced.outcome()), (first.id(), EnqueueOutcome::Replaced), "it is ready again");
    assert_eq!(payload(&db, first).await, "5");
    // Moves the job to the quarantine lane, which contains jobs that may have crashed a process.
    db.run("update queue.ready set seq = id, lane = queue.lane_id('default', 'do', 100::smallint, true)").await;
    assert_eq!(enqueue("6").on_conflict(OnConflict::Replace).await.unwrap().outcome(), EnqueueOutcome::Replaced);
    let place = "select count(*) from queue.ready where seq = id and lane = queue.lane_id('default', 'do', 100::smallint, true)";
    assert_eq!(db.count(place).await, 1, "in its place");
    db.run("update queue.ready set lane = queue.lane_id('default', 'do', 100::smallint, false)").await;
    let lease = claim(&mut on, worker, 1).await.unwrap();
    let second = enqueue("7").await.unwrap();
    assert_eq!(second.outcome(), EnqueueOutcome::New);
    settle(&mut on, &lease.all("release")).await.unwrap();
    assert_eq!(enqueue("8").await.unwrap().id(), second.id(), "the last producer to take it has it");
    db.finish().await;
}

#[tokio::test]
async fn a_key_with_a_period_is_held_for_the_period_set_when_it_was_taken() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = |held| say("1").enqueue(&db.pool).unique("key").unique_while(held);
    let hour = While::For(Duration::from_hours(1));
    enqueue(hour).await.unwrap();
    end(&mut on, "plain").await;
    assert_eq!(enqueue(While::Live).await.unwrap().outcome(), EnqueueOutcome::Kept);
    assert_eq!(db.count("select count(*) from queue.unique_key where until between now() + '30 min' and now() + '1 hour'").await, 1);
    db.run("update queue.unique_key set until = now()").await;
    assert_eq!(enqueue(hour).await.unwrap().outcome(), EnqueueOutcome::New);
    for time in [Duration::ZERO, Duration::MAX] {
        let error = enqueue(While::For(time)).await.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_replaced_payload_runs_in_the_place_of_the_first() {
    let (db, mut on) = TestDb::with_connection().await;
    let first = say("old").enqueue(&db.pool).unique("key").await.unwrap();
    let other = say("other").enqueue(&db.pool).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let replaced = say("new").enqueue(&mut tx).unique("key").on_conflict(OnConflict::Replace).await.unwrap();
    assert_eq!((replaced.id(), replaced.outcome()), (first.id(), EnqueueOutcome::Replaced));
    let worker = register(&mut on).await.unwrap();
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [other.id()], "it is not claimed before that is committed");
    tx.rollback().await.unwrap();
    assert_eq!(payload(&db, first).await, "old");
    say("new").enqueue(&db.pool).unique("key").on_conflict(OnConflict::Replace).await.unwrap();
    let large = say(&"x".repeat(262_000));
    let error = sqlx::query(
        "select queue.enqueue_with('do', jsonb_build_array(repeat('x', 262144)), '{\"unique_key\": \"key\", \"on_conflict\": \"replace\"}')",
    );
    assert!(error.execute(&db.pool).await.unwrap_err().to_string().contains("the limit is"));
    assert_eq!(payload(&db, first).await, "new");
    large.enqueue(&db.pool).unique("key").on_conflict(OnConflict::Replace).await.unwrap();
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [first.id()]);
    assert_eq!(payload(&db, first).await.len(), 262_000);
    db.finish().await;
}

#[tokio::test]
async fn a_debounced_job_runs_when_the_last_one_would_have_and_never_earlier() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = |text| say(text).enqueue(&db.pool).unique("key").on_conflict(OnConflict::Debounce);
    let first = enqueue("1").await.unwrap();
    assert_eq!(enqueue("2").await.unwrap().outcome(), EnqueueOutcome::Debounced);
    assert_eq!(db.state(first.id()).await, Some(JobState::Ready), "it runs now anyway");
    let hour = Utc::now() + chrono::Duration::hours(1);
    assert_eq!(enqueue("3").at(hour).await.unwrap().outcome(), EnqueueOutcome::Debounced);
    assert_eq!(run_at(&db, first).await.map(|at| at.timestamp()), Some(hour.timestamp()));
    for sooner in [hour - chrono::Duration::minutes(1), Utc::now() - chrono::Duration::days(1)] {
        assert_eq!(enqueue("4").at(sooner).await.unwrap().id(), first.id());
        assert_eq!(run_at(&db, first).await.map(|at| at.timestamp()), Some(hour.timestamp()));
    }
    let later = hour + chrono::Duration::hours(1);
    enqueue("5").at(later).await.unwrap();
    assert_eq!(run_at(&db, first).await.map(|at| at.timestamp()), Some(later.timestamp()));
    assert_eq!(payload(&db, first).await, "1");
    // A debounce keeps the attempt count of a job that is waiting for a retry.
    db.run("update queue.scheduled set run_at = now() - interval '1 s'").await;
    sqlx::query(include_str!("../../queue-worker/sql/promote.sql")).bind(10_i64).execute(&mut on).await.unwrap();
    end(&mut on, "retry").await;
    enqueue("6").after(Duration::from_hours(9)).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.scheduled where attempts = 1 and run_at > now() + interval '8 hours'").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_sleeping_worker_runs_a_job_replaced_or_debounced_meanwhile() {
    let db = TestDb::new().await;
    let mut config = Config::default();
    config.poll_interval = Duration::from_mins(10);
    let worker = db.worker().config(config);
    db.run_while(worker, async {
        let enqueue = || say("1").enqueue(&db.pool).unique("key").after(Duration::from_millis(150)).on_conflict(OnConflict::Debounce);
        let first = enqueue().await.unwrap();
        enqueue().await.unwrap();
        db.until(first.id(), JobState::Completed).await;
        // An open transaction enqueues and replaces a job, so the job is not visible when the next enqueue notifies the worker.
        let mut tx = db.pool.begin().await.unwrap();
        let second = say("2").enqueue(&mut tx).unique("key").await.unwrap();
        let same = say("3").enqueue(&mut tx).unique("key").on_conflict(OnConflict::Replace).await.unwrap();
        assert_eq!(same.id(), second.id());
        say("4").enqueue(&db.pool).await.unwrap();
        db.until_count("select count(*) from queue.ready", 0).await;
        tx.commit().await.unwrap();
        db.until(second.id(), JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn f12_equal_fields_make_equal_keys_and_unequal_ones_do_not() {
    let db = TestDb::new().await;
    let first = report("a", "bc", 1).enqueue(&db.pool).await.unwrap();
    let same = report("a", "bc", 2).enqueue(&db.pool).await.unwrap();
    assert_eq!((same.id(), same.outcome()), (first.id(), EnqueueOutcome::Replaced));
    assert_eq!(report("ab", "c", 3).enqueue(&db.pool).await.unwrap().outcome(), EnqueueOutcome::New);
    assert_eq!(report("a", "bc", 4).enqueue(&db.pool).queue("mail").await.unwrap().outcome(), EnqueueOutcome::New, "in another queue");
    let kept = report("a", "bc", 5).enqueue(&db.pool).on_conflict(OnConflict::Keep).await.unwrap();
    assert_eq!((kept.id(), kept.outcome()), (first.id(), EnqueueOutcome::Kept));
    assert_eq!(report("a", "bc", 6).enqueue(&db.pool).unique("my own").await.unwrap().outcome(), EnqueueOutcome::New);
    assert_eq!(say("7").enqueue(&db.pool).unique("my own").await.unwrap().outcome(), EnqueueOutcome::New, "of another type");
    assert_eq!(db.count("select sum((payload ->> 'pages')::int) from queue.job where payload ? 'pages'").await, 2 + 3 + 4 + 6);
    let error = say("8").enqueue(&db.pool).unique_while(While::Live).await.unwrap_err();
    assert!(matches!(error, Error::OutOfRange { what: "the uniqueness key", .. }), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn f22_a_key_of_a_mebibyte_is_hashed_and_sql_makes_the_same_one() {
    let db = TestDb::new().await;
    for key in ["k".repeat(1 << 20), "é'\"\\$1;--".to_owned(), String::new()] {
        let first = say("1").enqueue(&db.pool).unique(&key).await.unwrap();
        assert_eq!(say("2").enqueue(&db.pool).unique(&key).await.unwrap().id(), first.id());
        assert_eq!(say("3").enqueue(&db.pool).unique(format!("{key}.")).await.unwrap().outcome(), EnqueueOutcome::New);
        let by_sql =
            sqlx::query_as("select id, outcome from queue.enqueue_with('do', '{}', jsonb_build_object('unique_key', $1::text))").bind(&key);
        let by_sql: (i64, String) = by_sql.fetch_one(&db.pool).await.unwrap();
        assert_eq!(by_sql, (first.id().0, "kept".to_owned()));
    }
    assert!(db.count("select max(pg_column_size(u.*))::bigint from queue.unique_key u").await < 100);
    let error = say("4").enqueue(&db.pool).unique("a\0b").await.unwrap_err();
    assert!(matches!(error, Error::OutOfRange { what: "the uniqueness key", .. }), "{error}");
    for wrong in [
        r#""unique_while": "alive""#,
        r#""unique_while": 7"#,
        r#""unique_while": "0 s""#,
        r#""on_conflict": "drop""#,
        r#""on_conflict": true"#,
    ] {
        let statement = format!("select queue.enqueue_with('do', '{{}}', '{{\"unique_key\": \"wrong\", {wrong}}}')");
        sqlx::query(AssertSqlSafe(statement)).execute(&db.pool).await.unwrap_err();
    }
    db.finish().await;
}

#[tokio::test]
async fn a_bulk_enqueue_honours_keys_too() {
    let db = TestDb::new().await;
    let again = [report("a", "1", 1), report("b", "1", 2), report("a", "1", 3), report("c", "1", 4)];
    assert_eq!(Report::enqueue_all(again.clone(), &db.pool).await.unwrap(), 3, "this number are new");
    let handles = Report::enqueue_all(again.clone(), &db.pool).returning_ids().on_keep().await;
    assert_eq!(handles.iter().map(JobHandle::outcome).collect::<Vec<_>>(), [EnqueueOutcome::Replaced; 4]);
    assert_eq!(handles[0].id(), handles[2].id());
    assert_eq!(db.count("select (payload ->> 'pages')::bigint from queue.job order by id limit 1").await, 3, "the last of equals wins");

    let mut batch = Batch::new();
    batch.add(say("plain")).unwrap();
    batch.add(report("a", "1", 9)).unwrap();
    batch.add(report("d", "1", 9)).unwrap().queue("mail");
    let mut tx = db.pool.begin().await.unwrap();
    let ids = batch.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(ids[1], handles[0].id());
    assert_eq!(jobs(&db).await, 5);
    let many = (0..1000).map(|n| report(&(n % 100).to_string(), "2", n));
    let mut tx = db.pool.begin().await.unwrap();
    assert_eq!(Report::enqueue_all(many, &mut tx).await.unwrap(), 100);
    tx.rollback().await.unwrap();
    assert_eq!(report("1", "2", 0).enqueue(&db.pool).await.unwrap().outcome(), EnqueueOutcome::New, "rolled back, they are free");
    db.finish().await;
}

/// Extension trait that awaits an enqueue and returns its handles.
trait OnKeep {
    async fn on_keep(self) -> Vec<JobHandle<Report>>;
}

impl OnKeep for queue_core::EnqueueAll<'_, Report, Vec<JobHandle<Report>>> {
    async fn on_keep(self) -> Vec<JobHandle<Report>> {
        self.await.unwrap()
    }
}

#[tokio::test]
async fn keys_that_no_job_holds_are_deleted_and_no_others() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = |key: &str, held| say("1").enqueue(&db.pool).unique(key).unique_while(held);
    for n in 0..20 {
        enqueue(&format!("over {n}"), While::Live).await.unwrap();
        enqueue(&format!("past {n}"), While::For(Duration::from_millis(1))).await.unwrap();
        enqueue(&format!("claimed {n}"), While::Queued).await.unwrap();
    }
    end(&mut on, "plain").await;
    enqueue("lives", While::Live).await.unwrap();
    enqueue("for long", While::For(Duration::from_hours(1))).await.unwrap();
    end(&mut on, "retry").await;
    enqueue("waits", While::Queued).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    assert_eq!(say("2").enqueue(&mut tx).unique("over 7").await.unwrap().outcome(), EnqueueOutcome::New);
    let forget = || sqlx::query_scalar::<_, i32>(include_str!("../../queue-worker/sql/forget_keys.sql"));
    // The scan checks five keys and starts at a random key, so some of the five keys may still be held.
    let few = forget().bind(5).fetch_one(&db.pool).await.unwrap();
    assert!((1..=5).contains(&few), "{few} of five that were checked");
    while forget().bind(500).fetch_one(&db.pool).await.unwrap() > 0 {}
    tx.commit().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.unique_key").await, 4);
    for (key, held) in [("lives", While::Live), ("waits", While::Queued), ("over 7", While::Live), ("for long", While::Live)] {
        assert_eq!(enqueue(key, held).await.unwrap().outcome(), EnqueueOutcome::Kept, "{key}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_worker_deletes_unheld_keys_by_itself() {
    let db = TestDb::new().await;
    for n in 0..10 {
        say("1").enqueue(&db.pool).unique(n.to_string()).unique_while(While::For(Duration::from_millis(1))).await.unwrap();
    }
    db.run_while(db.worker(), async {
        db.until_count("select count(*) from queue.unique_key", 0).await;
    })
    .await;
    db.finish().await;
}

/// The transactions use an isolation level above read committed. A producer whose snapshot does not show the job that holds the key gets a
/// serialization failure.
#[tokio::test]
async fn under_an_old_snapshot_a_conflict_has_the_right_answer_or_is_a_serialization_failure() {
    let db = TestDb::new().await;
    for (n, level) in ["repeatable read", "serializable"].into_iter().enumerate() {
        let key = format!("key {n}");
        let begin = async |pool: &PgPool| {
            let mut tx = pool.begin().await.unwrap();
            tx.execute(AssertSqlSafe(format!("set transaction isolation level {level}"))).await.unwrap();
            tx.run("select count(*) from queue.job").await;
            tx
        };
        let mut late = begin(&db.pool).await;
        let first = say("1").enqueue(&db.pool).unique(&key).await.unwrap();
        let error = say("2").enqueue(&mut late).unique(&key).await.unwrap_err();
        assert!(matches!(&error, Error::Database(sqlx::Error::Database(db)) if db.code().as_deref() == Some("40001")), "{error}");
        late.rollback().await.unwrap();

        let mut seen = begin(&db.pool).await;
        assert_eq!(say("3").enqueue(&mut seen).unique(&key).await.unwrap().id(), first.id());
        seen.commit().await.unwrap();

        let mut stale = begin(&db.pool).await;
        first.cancel(&mut db.connect().await).await.unwrap();
        let second = say("4").enqueue(&db.pool).unique(&key).await.unwrap();
        assert_eq!(second.outcome(), EnqueueOutcome::New);
        say("5").enqueue(&mut stale).unique(&key).await.unwrap_err();
        stale.rollback().await.unwrap();
    }
    assert_eq!(jobs(&db).await, 4);
    db.finish().await;
}

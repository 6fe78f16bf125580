//! Tests bulk enqueues, which are atomic and keep the order of the jobs. Covers enqueues by INSERT, in one or several chunks, and by COPY.

mod connections;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use queue_core::{Batch, Context, Error, Handler, Job, JobHandle, JobId, JobResult, JobState, PayloadError, Store, job, migrate};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tests::{Act, Do, TestDb, within};

/// Number of jobs that exceeds two chunks. An enqueue of this size uses COPY if it is given a pool, and otherwise one INSERT per chunk.
const MANY: u32 = 8192 * 2 + 100;

/// Job that records its number when it runs.
#[job(queue = "notes", max_attempts = 2, priority = 7)]
#[derive(Serialize, Deserialize, Clone)]
struct Note {
    n: u32,
    text: String,
}

impl Handler for Note {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Arc<Mutex<Vec<u32>>>>().lock().unwrap().push(self.n);
        Ok(())
    }
}

fn note(n: u32) -> Note {
    Note { n, text: format!("\"é\\{n}") }
}

fn notes(count: u32) -> impl Iterator<Item = Note> + Send {
    (0..count).map(note)
}

/// Creates `count` notes. The note at index `at` cannot be stored, because its text contains a NUL character.
fn notes_with_fault(count: u32, at: u32) -> impl Iterator<Item = Note> + Send {
    notes(count).map(move |good| if good.n == at { Note { text: "\0".to_owned(), ..good } } else { good })
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn jobs(db: &TestDb) -> i64 {
    db.check_invariant().await;
    db.count("select count(*) from queue.job").await
}

/// Returns the waiting jobs in claim order, with their note numbers. Uses two queries instead of a join: after a truncation, the server
/// may choose a join plan for few rows, which is slow for many rows.
async fn waiting(db: &TestDb) -> Vec<(JobId, i32)> {
    let ready: Vec<JobId> = sqlx::query_scalar("select id from queue.ready order by seq").fetch_all(&db.pool).await.unwrap();
    let numbers = sqlx::query_as("select id, (payload->>'n')::int from queue.job").fetch_all(&db.pool).await.unwrap();
    let numbers: HashMap<JobId, i32> = numbers.into_iter().collect();
    ready.into_iter().map(|id| (id, numbers[&id])).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_wait_in_the_order_in_which_they_were_given() {
    let db = TestDb::new().await;
    for count in [1, 3, 8192, MANY] {
        let mut tx = db.pool.begin().await.unwrap();
        let lent = Note::enqueue_all(notes(count), &mut tx).returning_ids().await.unwrap();
        tx.commit().await.unwrap();
        let own = Note::enqueue_all(notes(count), &db.pool).returning_ids().await.unwrap();
        let mut connection = connect(&db).await;
        let bare = Note::enqueue_all(notes(count), &mut connection).returning_ids().await.unwrap();
        let given: Vec<(JobId, i32)> = [lent, own, bare].iter().flat_map(|jobs| jobs.iter().map(JobHandle::id).zip(0..)).collect();
        assert!(waiting(&db).await == given, "{count} jobs");
        let text: String = sqlx::query_scalar("select payload->>'text' from queue.job where id = $1")
            .bind(given[given.len() - 1].0)
            .fetch_one(&db.pool)
            .await
            .unwrap();
        assert_eq!(text, note(count - 1).text);
        db.pool.execute("truncate queue.job, queue.ready").await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_hundred_thousand_jobs_run_once_each() {
    let db = TestDb::new().await;
    assert_eq!(Note::enqueue_all(notes(100_000), &db.pool).await.unwrap(), 100_000);
    let ran = Arc::new(Mutex::new(Vec::<u32>::new()));
    let worker = queue_worker::Worker::new(db.pool.clone()).register::<Note>().state(Arc::clone(&ran));
    db.run_while(worker, within(Duration::from_mins(2), "all have run", async || ran.lock().unwrap().len() >= 100_000)).await;
    let mut ran = ran.lock().unwrap().clone();
    ran.sort_unstable();
    assert!(ran.into_iter().eq(0..100_000));
    assert_eq!(db.count("select count(*) from queue.ready").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_leaves_nothing() {
    let db = TestDb::new().await;
    for count in [3, MANY] {
        let mut tx = db.pool.begin().await.unwrap();
        assert_eq!(Note::enqueue_all(notes(count), &mut tx).await.unwrap(), u64::from(count));
        tx.rollback().await.unwrap();
        assert_eq!(jobs(&db).await, 0);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_payload_that_cannot_be_stored_is_named_and_nothing_is_enqueued() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for (count, at) in [(3, 0), (10, 4), (MANY, 8191), (MANY, 8192), (MANY, MANY - 1)] {
        let own = Note::enqueue_all(notes_with_fault(count, at), &db.pool).await.unwrap_err();
        let bare = Note::enqueue_all(notes_with_fault(count, at), &mut connection).await.unwrap_err();
        let mut tx = db.pool.begin().await.unwrap();
        let lent = Note::enqueue_all(notes_with_fault(count, at), &mut tx).returning_ids().await.unwrap_err();
        tx.rollback().await.unwrap();
        for error in [own, bare, lent] {
            let Error::OneOfMany { index, source } = &error else { panic!("{error:?}") };
            assert_eq!(*index, at as usize);
            assert!(matches!(&**source, Error::Payload { job_type: "note", source: PayloadError::Nul { .. } }), "{error:?}");
            assert!(error.to_string().contains(&format!("job {at} ")) && error.to_string().contains("$.text"), "{error}");
        }
        assert_eq!(jobs(&db).await, 0);
    }
    assert_eq!(Note::enqueue_all(notes(2), &mut connection).await.unwrap(), 2, "the connection is as good as before");
    db.finish().await;
}

#[tokio::test]
async fn a_payload_above_the_stores_own_limit_is_named_too() {
    let db = TestDb::new().await;
    db.pool.execute("create or replace function queue.payload_limit() returns int language sql immutable return 40").await.unwrap();
    for (count, at) in [(10, 7_u32), (MANY, 9000)] {
        let jobs_with_long_one = || notes(count).map(|good| if good.n == at { Note { text: "x".repeat(40), ..good } } else { good });
        let mut tx = db.pool.begin().await.unwrap();
        for error in [Note::enqueue_all(jobs_with_long_one(), &db.pool).await, Note::enqueue_all(jobs_with_long_one(), &mut tx).await] {
            let error = error.unwrap_err();
            let Error::OneOfMany { index, source } = &error else { panic!("{error:?}") };
            assert_eq!(*index, at as usize);
            assert!(matches!(&**source, Error::Payload { source: PayloadError::TooLarge { limit: 40, .. }, .. }), "{error:?}");
        }
    }
    assert_eq!(jobs(&db).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn an_empty_enqueue_does_not_connect() {
    let nowhere = PgPool::connect_lazy("postgres://nobody@localhost:1/nothing").unwrap();
    assert_eq!(Note::enqueue_all([], &nowhere).await.unwrap(), 0);
    assert!(Note::enqueue_all(notes(0), &nowhere).returning_ids().await.unwrap().is_empty());
    assert!(Batch::new().enqueue(&nowhere).await.unwrap().is_empty());
    assert!(matches!(Note::enqueue_all([note(1)], &nowhere).queue("no name").await, Err(Error::InvalidName { .. })));
    assert!(matches!(Note::enqueue_all([note(1)], &nowhere).max_attempts(0).await, Err(Error::OutOfRange { what: "max_attempts", .. })));
    assert!(matches!(Note::enqueue_all([note(1)], &nowhere).after(Duration::MAX).await, Err(Error::OutOfRange { .. })));
}

type StoredNote = (String, String, i16, i16, String, Option<DateTime<Utc>>);

async fn stored_jobs(db: &TestDb) -> Vec<StoredNote> {
    let query = "select distinct queue, job_type, priority, max_attempts, state, run_at from queue.jobs";
    sqlx::query_as(query).fetch_all(&db.pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn options_for_all_apply_to_each_job() {
    let db = TestDb::new().await;
    let at: DateTime<Utc> = "2999-12-31T23:59:59.999999Z".parse().unwrap();
    for count in [2, MANY] {
        let all = || Note::enqueue_all(notes(count), &db.pool);
        let row = |queue: &str, priority, max_attempts, state: &str, run_at| -> StoredNote {
            (queue.to_owned(), "note".to_owned(), priority, max_attempts, state.to_owned(), run_at)
        };
        all().await.unwrap();
        assert_eq!(stored_jobs(&db).await, [row("notes", 7, 2, "ready", None)]);
        db.pool.execute("truncate queue.job, queue.ready").await.unwrap();
        all().queue("other").priority(-3).max_attempts(9).at(DateTime::UNIX_EPOCH).await.unwrap();
        assert_eq!(stored_jobs(&db).await, [row("other", -3, 9, "ready", None)]);
        db.pool.execute("truncate queue.job, queue.ready").await.unwrap();
        all().at(at).await.unwrap();
        assert_eq!(stored_jobs(&db).await, [row("notes", 7, 2, "scheduled", Some(at))]);
        db.pool.execute("truncate queue.job, queue.scheduled").await.unwrap();
        all().after(Duration::from_hours(1)).await.unwrap();
        let about_an_hour = "select count(*) from queue.scheduled where run_at - now() between interval '59 min' and interval '60 min'";
        assert_eq!(db.count(about_an_hour).await, i64::from(count));
        db.pool.execute("truncate queue.job, queue.scheduled").await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn scheduled_jobs_run_when_they_are_due() {
    let db = TestDb::new().await;
    let hour = Duration::from_hours(1);
    let jobs = Do::enqueue_all([quick(), quick()], &db.pool).after(hour).returning_ids().await.unwrap();
    assert_eq!(db.state(jobs[0].id()).await, Some(JobState::Scheduled));
    db.age(hour).await;
    db.run_until_idle(db.worker()).await;
    for job in jobs {
        assert_eq!(db.state(job.id()).await, Some(JobState::Completed));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_batch_takes_jobs_of_any_type_each_with_its_own_options() {
    let db = TestDb::new().await;
    let at: DateTime<Utc> = "2999-01-01T00:00:00Z".parse().unwrap();
    let mut batch = Batch::new();
    batch.add(quick()).unwrap();
    batch.add(note(1)).unwrap().priority(150).queue("urgent").max_attempts(1);
    assert!(matches!(batch.add(Note { n: 2, text: "\0".into() }), Err(Error::Payload { job_type: "note", .. })));
    batch.add(note(3)).unwrap().at(at);
    batch.add(quick()).unwrap().after(Duration::ZERO);
    assert_eq!(batch.len(), 4, "what was refused is not in it");

    let mut tx = db.pool.begin().await.unwrap();
    let ids = batch.enqueue(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!((ids.len(), jobs(&db).await), (4, 0));

    let ids = batch.enqueue(&db.pool).await.unwrap();
    let row = |queue: &str, job_type: &str, priority, max_attempts, state: &str, run_at| -> StoredNote {
        (queue.to_owned(), job_type.to_owned(), priority, max_attempts, state.to_owned(), run_at)
    };
    let expected = [
        row("default", "do", 100, 3, "ready", None),
        row("urgent", "note", 150, 1, "ready", None),
        row("notes", "note", 7, 2, "scheduled", Some(at)),
        row("default", "do", 100, 3, "ready", None),
    ];
    let query = "select queue, job_type, priority, max_attempts, state, run_at from queue.jobs order by id";
    let found: Vec<StoredNote> = sqlx::query_as(query).fetch_all(&db.pool).await.unwrap();
    assert_eq!(found, expected);
    assert!(ids.is_sorted(), "they are claimed in the order in which they were added");
    db.run_while(db.worker(), db.until(ids[3], JobState::Completed)).await;

    batch.add(note(4)).unwrap().queue("no name");
    let error = batch.enqueue(&db.pool).await.unwrap_err();
    assert!(matches!(&error, Error::OneOfMany { index: 4, source } if matches!(**source, Error::InvalidName { .. })), "{error}");
    assert_eq!(jobs(&db).await, 4);
    db.finish().await;
}

#[tokio::test]
async fn a_large_batch_is_copied() {
    let db = TestDb::new().await;
    let mut batch = Batch::new();
    for n in 0..MANY {
        let added = batch.add(note(n)).unwrap();
        let _ = match n % 3 {
            0 => added,
            1 => added.after(Duration::from_hours(1)),
            _ => added.queue(format!("q{}", n % 10)).max_attempts(1),
        };
    }
    let ids = batch.enqueue(&db.pool).await.unwrap();
    let found: Vec<(JobId, i32)> =
        sqlx::query_as("select id, (payload->>'n')::int from queue.job order by id").fetch_all(&db.pool).await.unwrap();
    assert!(found.into_iter().eq(ids.into_iter().zip(0..)));
    let wrong = "select count(*) from queue.jobs where (payload->>'n')::int % 3 <> case
        when state = 'scheduled' then 1 when queue like 'q%' and max_attempts = 1 and queue = 'q' || (payload->>'n')::int % 10 then 2 else 0 end";
    assert_eq!(db.count(wrong).await, 0);
    assert_eq!(jobs(&db).await, i64::from(MANY));
    db.finish().await;
}

#[tokio::test]
async fn jobs_go_to_the_store_that_was_named() {
    let db = TestDb::new().await;
    let other = Store::new("Other.one").unwrap();
    assert!(matches!(Note::enqueue_all(notes(2), &db.pool).store(other).await, Err(Error::NotMigrated { .. })));
    migrate(&mut connect(&db).await, other).await.unwrap();
    for count in [2, MANY] {
        Note::enqueue_all(notes(count), &db.pool).store(other).await.unwrap();
        Note::enqueue_all(notes(count), &db.pool).store(other).after(Duration::from_mins(1)).await.unwrap();
    }
    let mut batch = Batch::new().store(other);
    batch.add(note(0)).unwrap();
    batch.enqueue(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from \"Other.one\".jobs where state = 'ready'").await, i64::from(MANY) + 3);
    assert_eq!(db.count("select count(*) from \"Other.one\".jobs where state = 'scheduled'").await, i64::from(MANY) + 2);
    assert_eq!(jobs(&db).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn each_queue_is_notified_once_and_only_if_a_worker_sleeps() {
    let db = TestDb::new().await;
    let mut listener = db.listen("wake").await;
    let mut batch = Batch::new();
    for n in 0..30 {
        batch.add(note(n)).unwrap().queue(["a", "b", "c"][n as usize % 3]).priority(n as i16);
    }
    batch.enqueue(&db.pool).await.unwrap();
    db.pool
        .execute(
            "insert into queue.idle (queue, worker) values ('a', gen_random_uuid()), ('a', gen_random_uuid()), ('b', gen_random_uuid())",
        )
        .await
        .unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    batch.enqueue(&mut tx).await.unwrap();
    Note::enqueue_all(notes(MANY), &db.pool).queue("b").await.unwrap();
    tx.commit().await.unwrap();
    db.pool.execute("select queue.notify('wake', 'end')").await.unwrap();
    let mut woken = Vec::new();
    while woken.last().is_none_or(|queue| queue != "end") {
        woken.push(listener.recv().await.unwrap().payload().to_owned());
    }
    assert_eq!(woken, ["b", "a", "b", "end"]);
    db.finish().await;
}

#[tokio::test]
async fn a_queue_is_notified_if_a_worker_of_all_queues_sleeps_or_may_sleep_unseen() {
    let db = TestDb::new().await;
    let mut listener = db.listen("wake").await;
    db.pool.execute("insert into queue.idle (queue, worker) values ('*', gen_random_uuid())").await.unwrap();
    Note::enqueue_all(notes(2), &db.pool).queue("a").await.unwrap();
    db.pool.execute("delete from queue.idle").await.unwrap();
    Note::enqueue_all(notes(2), &db.pool).queue("b").await.unwrap();
    let mut old = db.pool.begin().await.unwrap();
    old.execute("set transaction isolation level repeatable read").await.unwrap();
    Note::enqueue_all(notes(2), &mut old).queue("c").await.unwrap();
    quick().enqueue(&mut old).queue("d").await.unwrap();
    old.commit().await.unwrap();
    db.pool.execute("select queue.notify('wake', 'end')").await.unwrap();
    let mut woken = Vec::new();
    while woken.last().is_none_or(|queue| queue != "end") {
        woken.push(listener.recv().await.unwrap().payload().to_owned());
    }
    assert_eq!(woken, ["a", "c", "d", "end"]);
    db.finish().await;
}

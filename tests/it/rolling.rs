//! Tests rolling deployments: two releases use one store at the same time, and neither loses jobs to the other.

use std::time::{Duration, Instant};

use queue_core::{
    Context, Error, Handler, Job as _, JobRef, JobResult, JobState, Store, job, migrate,
    runner::{Migration, migrate_with},
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};
use tokio::time::timeout;

/// Job type in the older release.
#[job(send_only, name = "mail", max_attempts = 3, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OldMail {
    to: String,
}

/// Job type in the newer release.
#[job(send_only, name = "mail", max_attempts = 3, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct NewMail {
    to: String,
    subject: String,
}

impl Handler for OldMail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

impl Handler for NewMail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn old(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<OldMail>()
}

fn new(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<NewMail>()
}

#[tokio::test]
async fn f16_a_payload_of_another_release_is_left_to_workers_that_read_it_and_reported_without_a_value() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    db.run_while(old(&db), async {
        for _ in 0..20 {
            let mail = NewMail { to: "hunter2".into(), subject: "hunter2".into() };
            jobs.push(mail.enqueue(&db.pool).await.unwrap().id());
        }
        for id in &jobs {
            db.until(*id, JobState::Scheduled).await;
        }
    })
    .await;
    let errors: Vec<String> = sqlx::query_scalar("select distinct error from queue.failure").fetch_all(&db.pool).await.unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("unknown field `subject` at `$") && errors[0].contains("OldMail"), "{errors:?}");
    assert!(!errors[0].contains("hunter2"), "{errors:?}");
    let soonest = "select min(extract(epoch from s.run_at - f.at)) >= 9.9 from queue.scheduled s join queue.failure f using (id)";
    let waits: bool = sqlx::query_scalar(soonest).fetch_one(&db.pool).await.unwrap();
    assert!(waits, "a deploy has some time, although the type's backoff is a millisecond");
    db.run_while(new(&db), async {
        for id in &jobs {
            JobRef::from_id(*id).run_now(&db.pool).await.unwrap();
            db.until(*id, JobState::Completed).await;
        }
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.done where attempts = 2").await, 20, "one attempt is charged");
    db.finish().await;
}

#[tokio::test]
async fn f16_a_payload_that_no_worker_reads_is_dead_when_its_attempts_are_used_up() {
    let db = TestDb::new().await;
    let id = sqlx::query_scalar("select queue.enqueue('mail', '{\"to\": \"hunter2\"}', '{\"max_attempts\": 3}')")
        .fetch_one(&db.pool)
        .await
        .unwrap();
    db.run_while(new(&db), async {
        for _ in 0..2 {
            db.until(id, JobState::Scheduled).await;
            JobRef::from_id(id).run_now(&db.pool).await.unwrap();
        }
        db.until(id, JobState::Dead).await;
    })
    .await;
    let (attempts, error): (i16, String) = sqlx::query_as("select attempts, error from queue.dead").fetch_one(&db.pool).await.unwrap();
    assert_eq!(attempts, 3);
    assert!(error.contains("missing field `subject` at `$`") && error.contains("requeue") && !error.contains("hunter2"), "{error}");
    db.finish().await;
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn newer(db: &TestDb, compatible: i32) {
    let row = "insert into queue.migration (version, name, hash, compatible) values (1000, 'from the future', 0, $1)";
    sqlx::query(row).bind(compatible).execute(&db.pool).await.unwrap();
}

#[tokio::test]
async fn f56_an_older_release_works_on_with_a_newer_store_that_is_compatible() {
    let db = TestDb::new().await;
    newer(&db, migrate::COMPATIBLE).await;
    let mut connection = connect(&db).await;
    assert_eq!(migrate(&mut connection, Store::default()).await.unwrap(), [] as [i32; 0], "there is nothing that it could add");
    migrate::verify(&mut connection, Store::default()).await.unwrap();
    let status = migrate::status(&mut connection, Store::default()).await.unwrap();
    assert_eq!(status.last().map(|newest| (newest.version, newest.name.as_str())), Some((1000, "from the future")));
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
async fn f56_the_message_distinguishes_newer_older_and_foreign_stores() {
    let db = TestDb::new().await;
    let refused = async || db.worker().run(std::future::pending()).await.unwrap_err();
    newer(&db, migrate::LATEST + 1).await;
    let error = refused().await;
    let expected = format!("works with releases that know {}", migrate::LATEST + 1);
    assert!(error.to_string().contains(&expected) && error.to_string().contains("deploy the newer release"), "{error}");

    sqlx::query("delete from queue.migration where version >= $1").bind(migrate::LATEST).execute(&db.pool).await.unwrap();
    let error = refused().await;
    assert!(matches!(error, queue_worker::Error::Core(Error::OlderSchema { known: migrate::LATEST, .. })), "{error}");
    assert!(error.to_string().contains("older than this release's") && error.to_string().contains("queue-worker migrate"), "{error}");

    newer(&db, migrate::COMPATIBLE).await;
    let error = refused().await;
    assert!(matches!(error, queue_worker::Error::Core(Error::ForeignSchema { .. })), "it lacks what comes before: {error}");

    sqlx::raw_sql(
        "create schema users; create table users.migration (version text, note text); insert into users.migration values ('a', 'b')",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let (mut connection, users) = (connect(&db).await, Store::new("users").unwrap());
    for error in [migrate(&mut connection, users).await.unwrap_err(), migrate::verify(&mut connection, users).await.unwrap_err()] {
        assert!(matches!(error, Error::ForeignSchema { .. }), "{error}");
        assert!(error.to_string().contains("`users` holds no store") && error.to_string().contains("name another schema"), "{error}");
    }
    assert_eq!(db.count("select count(*) from pg_class where relnamespace = 'users'::regnamespace").await, 1, "left alone");
    db.finish().await;
}

/// Migration of the newer release. It requires an access exclusive lock on a table to which every enqueue writes.
const WIDER: Migration = Migration::new(1000, "wider", "alter table queue.job add column added integer");

/// Runs `count` separate enqueues. Returns the duration of the longest enqueue, and fails if an enqueue hangs.
async fn longest_enqueue(db: &TestDb, count: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let began = Instant::now();
        let enqueued = timeout(Duration::from_secs(30), Do { act: Act::Ok(String::new()) }.enqueue(&db.pool)).await;
        enqueued.expect("an enqueue hangs behind the migration").unwrap();
        longest = longest.max(began.elapsed());
    }
    longest
}

#[tokio::test]
#[ignore = "deep"]
async fn a_migration_behind_a_slow_reader_delays_no_enqueue_and_succeeds_eventually() {
    let db = TestDb::new().await;
    let mut reader = connect(&db).await;
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("select count(*) from queue.job").execute(&mut *reading).await.unwrap();
    let quiet = longest_enqueue(&db, 300).await;

    let mut connection = connect(&db).await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    let migrating = tokio::spawn(async move { migrate_with(&mut connection, Store::default(), &[WIDER], Duration::from_mins(5)).await });
    let (mut behind, mut waits, mut was_waiting) = (0, 0, false);
    let waiting = format!("select count(*) from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'");
    while waits < 5 {
        let longest = longest_enqueue(&db, 5).await;
        behind += i32::from(longest > Duration::from_millis(500) + quiet);
        let now_waiting = db.count(&waiting).await > 0;
        waits += i32::from(was_waiting && !now_waiting);
        was_waiting = now_waiting;
    }
    assert!(!migrating.is_finished());
    // If enqueues queued behind the migration's lock request, each wait of the migration would delay an enqueue. A freeze of the machine
    // may also delay one or two enqueues.
    assert!(behind <= 2, "{behind} enqueues stood behind {waits} waits of the migration");
    reading.rollback().await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap(), [1000]);
    assert_eq!(db.count("select count(*) from queue.migration where version = 1000").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_migration_that_gets_no_lock_names_its_holder_and_changes_nothing() {
    let db = TestDb::new().await;
    let mut reader = connect(&db).await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut reader).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("select count(*) from queue.job").execute(&mut *reading).await.unwrap();
    let mut connection = connect(&db).await;
    let error = migrate_with(&mut connection, Store::default(), &[WIDER], Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(&error, Error::SchemaInUse { .. }), "{error}");
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    reading.rollback().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.migration where version = 1000").await, 0);
    eventually("nothing is left of it", async || {
        db.count("select count(*) from pg_attribute where attrelid = 'queue.job'::regclass and attname = 'added'").await == 0
    })
    .await;
    assert_eq!(migrate_with(&mut connection, Store::default(), &[WIDER], Duration::ZERO).await.unwrap(), [1000]);
    db.finish().await;
}

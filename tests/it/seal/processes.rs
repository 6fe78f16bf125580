//! Tests worker processes with different keys. A worker reports jobs that only other workers can decrypt.

use std::time::Instant;

use queue_core::{Job as _, JobState, Keyring, Secret, use_keyring};
use tests::{
    TestDb, WorkerProcess, eventually,
    release::{first, sealed::Charge},
};

use super::failure;

const BINARY: &str = env!("CARGO_BIN_EXE_test-release-worker");
const OLD: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222222222222222222222222222";

fn charge() -> Charge {
    Charge { card: "4111-hunter2".to_owned() }
}

fn worker(db: &TestDb, keys: &str) -> WorkerProcess {
    let keys = if keys.is_empty() { vec![] } else { vec![("KEYS", keys)] };
    let settings = [&[("RELEASE", "sealed"), ("TTL_MS", "2000"), ("QUEUE_LOG", "info"), ("NO_COLOR", "1")], &*keys].concat();
    WorkerProcess::start_with(BINARY, &db.url, &[], &settings)
}

#[tokio::test]
async fn a_worker_names_the_job_that_it_cannot_open_and_one_with_the_keys_runs_it() {
    let db = TestDb::new().await;
    let since = Instant::now();
    use_keyring("release", Keyring::new("new", Secret::parse(NEW).unwrap()).older("old", Secret::parse(OLD).unwrap())).unwrap();
    let sealed = charge().enqueue(&db.pool).await.unwrap().id();
    let mail = async || first::Mail { to: "ada".to_owned() }.enqueue(&db.pool).await.unwrap().id();

    // Without any key, the worker does not claim the sealed type, reports the missing key, and runs other jobs.
    let keyless = worker(&db, "");
    db.until(mail().await, JobState::Completed).await;
    let left = |line: &String| line.contains("release_charge") && line.contains("keyring") && line.contains("`queue_core::use_keyring`");
    assert!(keyless.log_since(since).iter().any(left), "{:?}", keyless.log_since(since));
    assert_eq!(db.count("select count(*) from queue.ready where attempts = 0").await, 1);
    drop(keyless);

    // With only the old key, the worker tries the job and reports the failure.
    let old = worker(&db, &format!("old={OLD}"));
    db.until(sealed, JobState::Scheduled).await;
    let is_reported =
        |line: &String| line.contains(&sealed.to_string()) && line.contains("the key `new`") && line.contains("`Keyring::older`");
    eventually("it reports the job", async || old.log_since(since).iter().any(is_reported)).await;
    db.until(mail().await, JobState::Completed).await;
    assert!(failure(&db, sealed).await.contains("the key `new`"));

    // With both keys, a worker runs the job, whichever key is current.
    let both = worker(&db, &format!("old={OLD},new={NEW}"));
    queue_core::JobRef::from_id(sealed).run_now(&db.pool).await.unwrap();
    drop(old);
    db.until(sealed, JobState::Completed).await;
    let log = both.log_since(since).join("\n");
    assert!(!log.contains("hunter2") && !log.contains(OLD) && !log.contains(NEW) && !log.contains("queue-sealed"), "{log}");
    drop(both);
    db.finish().await;
}

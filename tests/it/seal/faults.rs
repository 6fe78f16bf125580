//! Tests missing keys, wrong keys, and damaged sealed payloads. Nothing is written in plaintext, and no job is lost. The error names the
//! fix and reveals no payload.

use std::time::Duration;

use queue_core::{
    Batch, Context, Error, Handler, Job as _, JobId, JobResult, JobState, Keyring, Queue,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    registry::RegistryError,
    schedule::Schedule,
    use_keyring,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{Act, Do, TestDb};

use super::{dead, failure, give, sealed, secret, stored, tables_with, tamper};

sealed!(NoKeyring, "seal_no_keyring", "never_given");
sealed!(Later, "seal_later", "given_later");
sealed!(Removed, "seal_removed", "removed");
sealed!(Charge, "seal_charge", "faults");
sealed!(Refund, "seal_refund", "faults");
sealed!(Swapped, "seal_swapped", "swapped");

#[tokio::test]
async fn without_the_keyring_an_enqueue_is_refused_and_nothing_is_written() {
    let db = TestDb::new().await;
    let refused = |error: Error| {
        let error = match error {
            Error::OneOfMany { source, .. } => *source,
            other => other,
        };
        assert!(matches!(error, Error::Sealing { job_type: "seal_no_keyring", .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("`never_given`") && message.contains("`queue_core::use_keyring`") && !message.contains("hunter2"),
            "{message}"
        );
    };
    let mut tx = db.pool.begin().await.unwrap();
    refused(NoKeyring::card().enqueue(&mut tx).await.unwrap_err());
    refused(NoKeyring::card().enqueue(&mut tx).unless_at_capacity().await.unwrap_err());
    refused(NoKeyring::enqueue_all([NoKeyring::card()], &mut tx).await.unwrap_err());
    let mut batch = Batch::new();
    batch.add(NoKeyring::card()).unwrap();
    refused(batch.enqueue(&mut tx).await.unwrap_err());
    let schedule = Schedule::every(Duration::from_hours(1)).job(&NoKeyring::card());
    refused(queue_core::Queue::on(&mut tx).schedule("s").create(&schedule).await.unwrap_err());
    // The caller's transaction is still usable.
    Do { act: Act::Ok(String::new()) }.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    db.run_until_idle(db.worker()).await;
    db.finish().await;
}

#[tokio::test]
async fn a_worker_without_the_keyring_leaves_sealed_jobs_to_others_and_runs_the_rest() {
    let db = TestDb::new().await;
    let alone = Worker::new(db.pool.clone()).register::<NoKeyring>().run(std::future::pending()).await.unwrap_err();
    assert!(
        matches!(alone, queue_worker::Error::Registry(RegistryError::NoKeyring { job_type: "seal_no_keyring", keyring: "never_given" })),
        "{alone}"
    );
    assert!(alone.to_string().contains("`queue_core::use_keyring`"), "{alone}");

    let waits: JobId = sqlx::query_scalar(r#"select queue.enqueue('seal_later', '{"card": "1"}', '{"max_attempts": 1}')"#)
        .fetch_one(&db.pool)
        .await
        .unwrap();
    let runs = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Later>(), async {
        db.until(runs, JobState::Completed).await;
        tests::eventually("the worker sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        let unserved = Queue::new(&db.pool).unserved().await.unwrap();
        assert_eq!(unserved.iter().map(|waits| (&*waits.job_type, waits.jobs)).collect::<Vec<_>>(), [("seal_later", 1)]);
    })
    .await;
    assert_eq!(db.state(waits).await, Some(JobState::Ready));
    assert_eq!(db.count("select count(*) from queue.ready where attempts > 0 or seq <> id").await, 0, "nothing was charged");
    give("given_later", "k", 1);
    db.run_until_idle(db.worker().register::<Later>()).await;
    assert_eq!(db.state(waits).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn a_key_that_was_removed_too_early_costs_attempts_not_jobs() {
    let db = TestDb::new().await;
    give("removed", "old", 1);
    let patient = Removed::card().enqueue(&db.pool).await.unwrap().id();
    let once = Removed::card().enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    give("removed", "new", 2);
    let newer = Removed::card().enqueue(&db.pool).await.unwrap().id();
    let worker = || Worker::new(db.pool.clone()).register::<Removed>();
    db.run_while(worker(), async {
        db.until(newer, JobState::Completed).await;
        db.until(once, JobState::Dead).await;
        db.until(patient, JobState::Scheduled).await;
    })
    .await;
    let (attempts, error) = dead(&db, once).await;
    for message in [error, failure(&db, patient).await] {
        assert!(
            message.contains("the key `old`") && message.contains("the keyring `removed`") && message.contains("`Keyring::older`"),
            "{message}"
        );
        assert!(message.contains("requeue this job") && !message.contains("queue-sealed/1"), "{message}");
    }
    assert_eq!(attempts, 1);
    let soon = "select count(*) from queue.scheduled where run_at > now() + interval '5 seconds' and run_at < now() + interval '1 minute'";
    assert_eq!(db.count(soon).await, 1, "there is time to bring the key back, and no more than that");

    use_keyring("removed", Keyring::new("new", secret(2)).older("old", secret(1))).unwrap();
    queue_core::JobRef::from_id(once).requeue(&db.pool).await.unwrap();
    queue_core::JobRef::from_id(patient).run_now(&db.pool).await.unwrap();
    db.run_until_idle(worker()).await;
    for job in [patient, once] {
        assert_eq!(db.state(job).await, Some(JobState::Completed));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_wrong_key_under_the_right_name_is_a_dead_letter_immediately_and_the_job_is_kept() {
    let db = TestDb::new().await;
    give("swapped", "k", 1);
    let job = Swapped::card().enqueue(&db.pool).await.unwrap().id();
    give("swapped", "k", 2);
    let worker = || Worker::new(db.pool.clone()).register::<Swapped>();
    db.run_until_idle(worker()).await;
    let (attempts, error) = dead(&db, job).await;
    assert!(attempts == 1 && error.contains("the key `k` of the keyring `swapped` differs"), "{error}");
    give("swapped", "k", 1);
    queue_core::JobRef::from_id(job).requeue(&db.pool).await.unwrap();
    db.run_until_idle(worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn a_changed_or_moved_payload_is_a_dead_letter_and_affects_no_other_job() {
    give("faults", "k", 1);
    let db = TestDb::new().await;
    let mut bad = Vec::new();
    for _ in 0..6 {
        bad.push(Charge::card().enqueue(&db.pool).await.unwrap().id());
    }
    let refund = Refund::card().enqueue(&db.pool).await.unwrap().id();
    let fine = Charge::card().enqueue(&db.pool).await.unwrap().id();
    let set = |job: JobId, to: &str| format!("update queue.job set payload = {to} where id = {job}");
    // The first job gets the payload of another job type, sealed with the same key. The other payloads are truncated, have a changed
    // byte, lack the encrypted data, are not base64, or name another keyring.
    tamper(&db, &set(bad[0], &format!("(select payload from queue.job where id = {refund})"))).await;
    tamper(&db, &set(bad[1], "to_jsonb(left(payload #>> '{}', -9))")).await;
    let changed = "case substr(payload #>> '{}', 60, 1) when 'A' then 'B' else 'A' end";
    tamper(&db, &set(bad[2], &format!("to_jsonb(overlay(payload #>> '{{}}' placing {changed} from 60))"))).await;
    tamper(&db, &set(bad[3], "to_jsonb('queue-sealed/1/faults/k'::text)")).await;
    tamper(&db, &set(bad[4], "to_jsonb('queue-sealed/1/faults/k/ hunter2!'::text)")).await;
    tamper(&db, &set(bad[5], "to_jsonb(replace(payload #>> '{}', '/faults/k/', '/removed/k/'))")).await;
    let worker = Worker::new(db.pool.clone()).register::<Charge>().register::<Refund>();
    db.run_while(worker, async {
        for job in [fine, refund] {
            db.until(job, JobState::Completed).await;
        }
        for job in &bad[..5] {
            db.until(*job, JobState::Dead).await;
        }
        // Another test in this process may register the keyring `removed`, so the outcome of the last job is not checked.
        tests::eventually("the last has been tried", async || db.count("select count(*) from queue.failure").await == 6).await;
    })
    .await;
    for job in &bad[..5] {
        let (attempts, error) = dead(&db, *job).await;
        assert_eq!(attempts, 1, "{error}");
        assert!(error.starts_with("the sealed payload cannot be opened: ") && error.contains("requeue this job"), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("queue-sealed/1"), "{error}");
    }
    tamper(&db, &set(bad[4], "'0'")).await;
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    db.finish().await;
}

#[job(send_only, name = "seal_many", seal = "faults", batch = 50)]
#[derive(Serialize, Deserialize)]
struct Many {
    card: String,
}

impl BatchHandler for Many {
    async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        if batch.iter().any(|job| job.payload().card != super::CARD) { Err("another card".into()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn of_a_batch_one_that_cannot_be_opened_is_a_dead_letter_alone() {
    give("faults", "k", 1);
    let db = TestDb::new().await;
    let jobs: Vec<Many> = (0..20).map(|_| Many { card: super::CARD.to_owned() }).collect();
    Many::enqueue_all(jobs, &db.pool).await.unwrap();
    tamper(&db, "update queue.job set payload = to_jsonb(left(payload #>> '{}', -4)) where id = (select min(id) + 0 from queue.job)").await;
    db.run_until_idle(Worker::new(db.pool.clone()).register_batch::<Many>()).await;
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed' and attempts = 1").await, 19);
    assert_eq!(db.count("select count(*) from queue.dead where error like 'the sealed payload cannot be opened%'").await, 1);
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    db.finish().await;
}

/// Job type in a release without `seal`. All fields have defaults, so any object is a valid payload.
#[job(send_only, name = "seal_charge", output = usize)]
#[derive(Serialize, Deserialize)]
struct Unsealing {
    #[serde(default)]
    card: String,
}

impl Handler for Unsealing {
    async fn run(self, _: &Context) -> JobResult<usize> {
        Ok(self.card.len())
    }
}

#[tokio::test]
async fn a_release_without_seal_does_not_read_a_sealed_payload_as_empty_and_retries_it() {
    give("faults", "k", 1);
    let db = TestDb::new().await;
    let job = Charge::card().enqueue(&db.pool).await.unwrap().id();
    let before = Unsealing { card: "12".to_owned() }.enqueue(&db.pool).await.unwrap().id();
    assert_eq!(stored(&db, before).await, r#"{"card": "12"}"#);
    db.run_while(Worker::new(db.pool.clone()).register::<Unsealing>(), db.until(job, JobState::Scheduled)).await;
    let message = failure(&db, job).await;
    assert!(message.contains("it is sealed, but this release defines the type without `seal`"), "{message}");
    queue_core::JobRef::from_id(job).run_now(&db.pool).await.unwrap();
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Charge>()).await;
    for job in [job, before] {
        assert_eq!(db.state(job).await, Some(JobState::Completed));
    }
    db.finish().await;
}

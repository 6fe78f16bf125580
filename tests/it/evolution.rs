//! Tests payload versions. A newer release reads the jobs of an older release, and an older release leaves unknown versions in the queue.

mod operators;
mod releases;
mod sql;

use std::time::Duration;

use queue_core::{Job as _, JobHandle, JobId, JobState, Queue, Store, job, operate, schedule::Schedule, testing};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{
    TestDb,
    release::{first, second, third},
};

fn to(name: &str) -> first::Mail {
    first::Mail { to: name.to_owned() }
}

fn to_all(names: &[&str]) -> second::Mail {
    second::Mail { to: names.iter().map(|&name| name.to_owned()).collect() }
}

fn about(name: &str, subject: &str) -> third::Mail {
    third::Mail { to: vec![name.to_owned()], subject: subject.to_owned() }
}

fn of_first(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<first::Mail>()
}

fn of_second(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<second::Mail>()
}

fn of_third(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<third::Mail>()
}

async fn output(db: &TestDb, id: JobId) -> String {
    let output = "select output #>> '{}' from queue.done where id = $1";
    sqlx::query_scalar(output).bind(id).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_newer_release_reads_what_older_ones_have_enqueued_and_its_own() {
    let db = TestDb::new().await;
    let one = to("ada").enqueue(&db.pool).await.unwrap().id();
    let two = to_all(&["bea", "cid"]).enqueue(&db.pool).key("k").meta("a", 1).await.unwrap().id();
    let three = about("dot", "tea").enqueue(&db.pool).await.unwrap().id();
    let many: Vec<JobId> = first::Mail::enqueue_all((0..3).map(|n| to(&n.to_string())), &db.pool)
        .returning_ids()
        .await
        .unwrap()
        .iter()
        .map(JobHandle::id)
        .collect();
    db.run_until_idle(of_third(&db)).await;
    for (job, expected) in [
        (one, "third: ada about none from 1"),
        (two, "third: bea+cid about none from 2"),
        (three, "third: dot about tea from 3"),
        (many[1], "third: 1 about none from 1"),
    ] {
        assert_eq!(output(&db, job).await, expected);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_refused_upgrade_ends_the_job_immediately_and_the_error_contains_no_value() {
    let db = TestDb::new().await;
    let unfit = sqlx::query_scalar(r#"select queue.enqueue('release_mail', '{"to": ["hunter2", 7]}', '{"version": 2}')"#);
    let unfit: JobId = unfit.fetch_one(&db.pool).await.unwrap();
    let refused = to_all(&["hunter2", ""]).enqueue(&db.pool).await.unwrap().id();
    let by_value = sqlx::query_scalar(r#"select queue.enqueue('release_mail', '{"to": {"hunter2": 1}}')"#);
    let by_value: JobId = by_value.fetch_one(&db.pool).await.unwrap();
    let fine = to("ada").enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(of_third(&db)).await;
    for (job, reason) in [
        (
            unfit,
            "the payload of version 2 does not fit `tests::release::second::Mail`, the type it is upgraded from: invalid type: integer",
        ),
        (unfit, "at `$.to[1]`; deploy a release that reads it, then requeue this job"),
        (refused, "the payload of version 2 cannot be upgraded to version 3: somebody in `to` has no name; deploy a release that can"),
        (by_value, "the payload of version 1 cannot be upgraded to version 3: `to` is no text"),
    ] {
        let (attempts, error): (i16, String) =
            sqlx::query_as("select attempts, error from queue.dead where id = $1").bind(job).fetch_one(&db.pool).await.unwrap();
        assert_eq!(attempts, 1, "it is not tried again: {error}");
        assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
    }
    assert_eq!(output(&db, fine).await, "third: ada about none from 1");
    db.finish().await;
}

#[tokio::test]
async fn the_test_kit_upgrades_as_a_worker_does() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    to("ada").enqueue(&mut *tx).await.unwrap();
    about("bea", "tea").enqueue(&mut *tx).await.unwrap();
    queue_core::assert_enqueued!(&mut tx, third::Mail { to, subject } if to == &["ada"] && subject == "none");
    // The first release knows only the first version. One job has this version.
    let drained = testing::drain(&mut tx).register::<first::Mail>().await.unwrap();
    assert_eq!(drained.outputs::<first::Mail>(), ["first: ada"]);
    let drained = testing::drain(&mut tx).register::<third::Mail>().await.unwrap();
    assert_eq!(drained.outputs::<third::Mail>(), ["third: bea about tea from 3"]);
    let ran = testing::run(about("cid", "tea")).await;
    assert_eq!(ran.output(), "third: cid about tea from 3");
    tx.rollback().await.unwrap();
    db.finish().await;
}

/// Report job whose payload has version 2.
#[job(send_only, name = "evolution_report", version = 2)]
#[derive(Serialize, Deserialize)]
struct Report {
    month: String,
}

#[tokio::test]
async fn a_schedule_enqueues_the_version_of_the_release_that_made_it() {
    let db = TestDb::new().await;
    let schedule = Schedule::every(Duration::from_hours(24)).job(&Report { month: "May".to_owned() });
    queue_core::Queue::new(&db.pool).schedule("report").create(&schedule).await.unwrap();
    let job = queue_core::Queue::new(&db.pool).schedule("report").run_now().await.unwrap();
    let found = Queue::new(&db.pool).jobs().matching(&operate::Filter::default().job_type("evolution_report")).list().await.unwrap();
    let seen: Vec<_> = found.jobs.iter().map(|job| (job.id, job.version, job.state)).collect();
    assert_eq!(seen, [(job, 2, JobState::Ready)]);
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_of_an_unknown_type_names_the_version_of_its_payload() {
    let db = TestDb::new().await;
    let (store, to) = (Store::default(), serde_json::json!({ "to": ["ada"] }));
    let daily = || Schedule::every(Duration::from_hours(24));
    queue_core::Queue::new(&db.pool).store(store).schedule("mail").create(&daily().job_json_version("release_mail", 2, &to)).await.unwrap();
    let job = queue_core::Queue::new(&db.pool).store(store).schedule("mail").run_now().await.unwrap();
    let first = daily().job_json_version("release_mail", 1, &serde_json::json!({ "to": "bea" }));
    queue_core::Queue::new(&db.pool).store(store).schedule("first").create(&first).await.unwrap();
    let other = queue_core::Queue::new(&db.pool).store(store).schedule("first").run_now().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.schedule where options ? 'version'").await, 1, "the first is omitted");
    for version in [0, 10_000] {
        let error = queue_core::Queue::new(&db.pool)
            .store(store)
            .schedule("no")
            .create(&daily().job_json_version("release_mail", version, &to))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&format!("1 to 9999, not {version}")), "{error}");
    }
    let ended = db.run_while(of_third(&db), async {
        db.until(job, JobState::Completed).await;
        db.until(other, JobState::Completed).await;
        (output(&db, job).await, output(&db, other).await)
    });
    assert_eq!(ended.await, ("third: ada about none from 2".to_owned(), "third: bea about none from 1".to_owned()));
    db.finish().await;
}

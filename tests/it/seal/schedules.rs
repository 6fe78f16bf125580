//! Tests schedules of sealed types. The stored payload is sealed, and an identical second declaration does not change the stored payload.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, JobState, Queue, job, schedule::Schedule};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

use super::{give, sealed, stored, tables_with};

sealed!(Report, "seal_report", "schedules");

/// Job type whose schedule is declared by each worker.
#[job(send_only, name = "seal_nightly", seal = "schedules")]
#[derive(Serialize, Deserialize)]
struct Nightly {
    token: String,
}

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn the_payload_of_a_schedule_is_sealed_and_an_identical_declaration_changes_nothing() {
    give("schedules", "k", 1);
    let db = TestDb::new().await;
    let create = async |card: &str| {
        let report = Schedule::every(Duration::from_hours(24)).job(&Report { card: card.to_owned() });
        Queue::new(&db.pool).schedule("report").create(&report).await.unwrap();
        let kept = "select payload::text, definition from queue.schedule where name = 'report'";
        sqlx::query_as::<_, (String, i64)>(kept).fetch_one(&db.pool).await.unwrap()
    };
    let first = create("hunter2").await;
    assert!(first.0.starts_with("\"queue-sealed/1/schedules/k/"), "{first:?}");
    assert_eq!(create("hunter2").await, first);
    assert_ne!(create("hunter3").await, first);
    let job = Queue::new(&db.pool).schedule("report").run_now().await.unwrap();
    assert_eq!(stored(&db, job).await, create("hunter3").await.0, "a tick's job has what the schedule keeps");
    assert_eq!(tables_with(&db, "hunter").await, [""; 0]);
    db.run_while(Worker::new(db.pool.clone()).register::<Report>(), db.until(job, JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
async fn equal_declarations_of_many_workers_are_one_definition() {
    give("schedules", "k", 1);
    let db = TestDb::new().await;
    let worker = || {
        let nightly = Schedule::cron("0 4 * * *").job(&Nightly { token: "hunter2".to_owned() });
        Worker::new(db.pool.clone()).register::<Nightly>().schedule("seal_nightly", nightly)
    };
    db.run_while(worker(), async {
        db.run_while(worker(), async {
            let declared = "select count(*) from queue.declaration where name = 'seal_nightly'";
            eventually("both have declared it", async || {
                db.count(declared).await >= 1 && db.count("select count(*) from queue.worker").await == 2
            })
            .await;
            eventually("it is in force", async || db.count("select count(*) from queue.schedule").await == 1).await;
        })
        .await;
    })
    .await;
    assert_eq!(db.count("select count(distinct definition) from queue.declaration").await, 1);
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    db.finish().await;
}

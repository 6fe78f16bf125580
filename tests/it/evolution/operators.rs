//! Tests that operations on a job type apply to all of its versions.

use std::time::Duration;

use queue_core::{
    Context, Handler, Job as _, JobResult, JobState, Queue, Store, job,
    operate::{Filter, Scope},
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

use super::{about, of_second, of_third, to, to_all};

#[tokio::test]
async fn filters_statistics_and_operations_cover_all_versions_of_a_type() {
    let db = TestDb::new().await;
    let store = Store::default();
    to("ada").enqueue(&db.pool).await.unwrap();
    to_all(&["bea"]).enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap();
    let last = about("cid", "tea").enqueue(&db.pool).await.unwrap().id();
    let of_type = || Filter::default().job_type("release_mail");
    let listed = Queue::new(&db.pool).store(store).jobs().matching(&of_type()).list().await.unwrap();
    let seen: Vec<_> = listed.jobs.iter().map(|job| (job.job_type.as_str(), job.version)).collect();
    assert_eq!(seen, [("release_mail", 3), ("release_mail", 2), ("release_mail", 1)]);
    let found = queue_core::JobRef::from_id(last).find(&db.pool).await.unwrap();
    assert_eq!((found.job_type.as_str(), found.version), ("release_mail", 3));
    let counts = Queue::new(&db.pool).store(store).counts().await.unwrap();
    let counts: Vec<_> = counts.iter().map(|count| (count.job_type.as_str(), count.state, count.jobs)).collect();
    assert_eq!(counts, [("release_mail", JobState::Scheduled, 1), ("release_mail", JobState::Ready, 2)]);
    assert_eq!(Queue::new(&db.pool).store(store).job_types().await.unwrap(), ["release_mail"]);
    Queue::new(&db.pool).store(store).jobs().matching(&of_type()).cancel().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 3);
    db.finish().await;
}

#[tokio::test]
async fn a_pause_of_a_type_covers_all_its_versions() {
    let db = TestDb::new().await;
    let (store, scope) = (Store::default(), Scope::job_type("release_mail"));
    db.run_while(of_third(&db), async {
        Queue::new(&db.pool).store(store).pause(&scope).await.unwrap();
        eventually("nothing of it begins", async || {
            Queue::new(&db.pool).store(store).pause_awaits(&scope).await.unwrap().is_some_and(|it| it.is_empty())
        })
        .await;
        let jobs = [to("ada").enqueue(&db.pool).await.unwrap().id(), to_all(&["bea"]).enqueue(&db.pool).await.unwrap().id()];
        let pauses = Queue::new(&db.pool).store(store).pauses().await.unwrap();
        assert_eq!(pauses.iter().map(|pause| pause.ready).collect::<Vec<_>>(), [2], "both wait for it");
        let other = Beside.enqueue(&db.pool).await.unwrap().id();
        db.run_while(Worker::new(db.pool.clone()).register::<Beside>(), db.until(other, JobState::Completed)).await;
        for job in jobs {
            assert_eq!(db.state(job).await, Some(JobState::Ready));
        }
        Queue::new(&db.pool).store(store).resume(&scope).await.unwrap();
        for job in jobs {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

/// Job type that the operations must not affect.
#[job(send_only, name = "evolution_beside", version = 2)]
#[derive(Serialize, Deserialize)]
struct Beside;

impl Handler for Beside {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn a_requeued_job_keeps_its_version() {
    let db = TestDb::new().await;
    let refused = to_all(&[""]).enqueue(&db.pool).await.unwrap();
    db.run_while(of_third(&db), db.until(refused.id(), JobState::Dead)).await;
    let dead = Queue::new(&db.pool).jobs().matching(&Filter { state: Some(JobState::Dead), ..Filter::default() }).list().await.unwrap();
    assert_eq!(dead.jobs[0].version, 2);
    refused.requeue(&db.pool).await.unwrap();
    db.run_while(of_second(&db), db.until(refused.id(), JobState::Completed)).await;
    db.finish().await;
}

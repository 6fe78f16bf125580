//! Tests operations on jobs in every state: on all jobs of a type, under any name of the type, and on all jobs with the same metadata.

use std::time::Duration;

use queue_core::{
    Context, Handler, Job as _, JobId, JobResult, JobState, Queue, Store, job,
    operate::{Filter, Operation},
    registry::Registry,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tests::{
    Do, TestDb,
    protocol::{claim, register, settle},
};

use super::{connect, enqueue, ok};

/// Job type with two earlier names.
#[job(name = "renamed", aliases = ["renamed_from", "renamed_first"])]
#[derive(Serialize, Deserialize)]
struct Renamed;

impl Handler for Renamed {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

async fn stored_as(db: &TestDb, name: &str) -> JobId {
    sqlx::query_scalar("select queue.enqueue($1, 'null')").bind(name).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn jobs_under_any_name_of_their_type_are_listed_counted_and_changed_together() {
    let db = TestDb::new().await;
    let jobs = [
        stored_as(&db, "renamed_first").await,
        stored_as(&db, "renamed_from").await,
        Renamed.enqueue(&db.pool).await.unwrap().id(),
        stored_as(&db, "renamed_not").await,
    ];
    let store = Store::default();
    let list = async |name| {
        let page = Queue::new(&db.pool).store(store).jobs().matching(&Filter::default().job_type(name)).list().await.unwrap();
        page.jobs.into_iter().map(|job| (job.id, job.job_type)).collect::<Vec<_>>()
    };
    let all = ["renamed", "renamed_from", "renamed_first"].into_iter().zip([jobs[2], jobs[1], jobs[0]]);
    let all: Vec<_> = all.map(|(name, id)| (id, name.to_owned())).collect();
    for name in ["renamed", "renamed_from", "renamed_first"] {
        assert_eq!(list(name).await, all, "requested as {name}, and shown as they are stored");
    }
    assert_eq!(list("renamed_not").await, [(jobs[3], "renamed_not".to_owned())], "no name of a type that is linked");

    let counts = Queue::new(&db.pool).store(store).counts().await.unwrap();
    let counts: Vec<_> = counts.iter().map(|count| (count.job_type.as_str(), count.state, count.jobs)).collect();
    assert_eq!(counts, [("renamed", JobState::Ready, 3), ("renamed_not", JobState::Ready, 1)]);

    let both = Filter::default().job_type("renamed").job_type("renamed_not");
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&both).apply(Operation::Cancel).count().await.unwrap(), 4);
    let one = Filter::default().job_type("renamed_from");
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&one).snooze(Duration::from_hours(1)).await.unwrap().done, 3);
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&one).run_now().await.unwrap().done, 3);
    // No worker has registered the type of this job, so the job would wait forever.
    assert_eq!(
        Queue::new(&db.pool).store(store).jobs().matching(&Filter::default().job_type("renamed_not")).cancel().await.unwrap().done,
        1
    );
    db.run_until_idle(db.worker().register::<Renamed>()).await;
    let counts = Queue::new(&db.pool).store(store).counts().await.unwrap();
    let finished = counts.iter().filter(|count| count.state == JobState::Completed).map(|count| (count.job_type.as_str(), count.jobs));
    assert_eq!(finished.collect::<Vec<_>>(), [("renamed", 3)]);
    assert!(Registry::linked().unwrap().get("renamed_first").is_some(), "otherwise this test proves nothing");
    db.finish().await;
}

/// Enqueues a job of a tenant in the queue `queue`.
async fn of(on: &mut PgConnection, tenant: &str, queue: &str, key: Option<&str>) -> JobId {
    let options = serde_json::json!({ "queue": queue, "key": key, "meta": { "tenant": tenant, "tags": ["a", "b"] } });
    let payload = serde_json::to_value(Do { act: ok() }).unwrap();
    let enqueue = sqlx::query_scalar("select queue.enqueue('do', $1, $2)").bind(payload).bind(options);
    enqueue.fetch_one(on).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn metadata_choose_jobs_in_every_state() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    let mut acme = Vec::new();
    for tenant in ["acme", "other"] {
        let mut jobs = Vec::new();
        for verdict in ["plain", "complete", "dead", "cancel", "retry", "park", ""] {
            jobs.push(of(&mut on, tenant, "default", None).await);
            let lease = claim(&mut on, worker, 1).await.unwrap();
            if verdict == "park" {
                assert_eq!(tests::signals::park_held(&mut on, &lease.all("snooze")).await.unwrap(), []);
            } else if !verdict.is_empty() {
                assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), []);
            }
        }
        let late = of(&mut on, tenant, "default", None).await;
        let back = "update queue.job set system = queue.with_expiry(system, now() - interval '1 s') where id = $1";
        sqlx::query(back).bind(late).execute(&mut on).await.unwrap();
        sqlx::query("select queue.expire_all(array[$1])").bind(late).execute(&mut on).await.unwrap();
        jobs.push(late);
        // One job is the head of a key, and the other is blocked behind it.
        jobs.push(of(&mut on, tenant, "default", Some(tenant)).await);
        jobs.push(of(&mut on, tenant, "default", Some(tenant)).await);
        if tenant == "acme" {
            acme = jobs;
            let taken = claim(&mut on, worker, 10).await.unwrap();
            assert_eq!(taken.ids(), [acme[8]], "so that it is not claimed instead of the next");
        }
    }
    enqueue(&db, ok()).await;
    let store = Store::default();
    let filter = Filter::default().meta("tenant", "acme").meta("tags", serde_json::json!(["b"]));
    let listed = Queue::new(&db.pool).store(store).jobs().matching(&filter).list().await.unwrap();
    let mut ids: Vec<JobId> = listed.jobs.iter().map(|job| job.id).collect();
    ids.sort();
    assert_eq!(ids, acme);
    assert!(listed.jobs.iter().all(|job| job.meta.as_ref().is_some_and(|meta| meta.get().contains(r#""tenant": "acme""#))));
    for state in JobState::ALL {
        let found =
            Queue::new(&db.pool).store(store).jobs().matching(&Filter { state: Some(state), ..filter.clone() }).list().await.unwrap();
        let want = listed.jobs.iter().filter(|job| job.state == state).count();
        assert_eq!(found.jobs.len(), want, "{state}");
        assert!(want > 0 || state == JobState::Ready, "{state}");
    }
    // One job is blocked, one scheduled, one parked, and two are running.
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&filter).apply(Operation::Cancel).count().await.unwrap(), 5);
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&filter).requeue().await.unwrap().done, 1);
    let swept = Queue::new(&db.pool).store(store).jobs().matching(&filter).cancel().await.unwrap();
    assert_eq!((swept.done, swept.cancelling), (4, 2), "with the one that was requeued");
    let none = Filter::default().meta("tenant", serde_json::json!({ "name": "acme" }));
    assert!(Queue::new(&db.pool).store(store).jobs().matching(&none).list().await.unwrap().jobs.is_empty());
    assert_eq!(Queue::new(&db.pool).store(store).jobs().matching(&none).cancel().await.unwrap().done, 0);
    db.finish().await;
}

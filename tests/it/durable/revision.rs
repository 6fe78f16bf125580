//! Tests the code revision under which a job began. The first attempt that reads the revision stores it permanently.

use queue_core::{Handler, Job as _, JobId, JobResult, JobState, durable::Durable, job, testing};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

use super::{db, done, effect, journal, pairs};

/// Durable job that reads its revision and waits for a signal. The payload contains the release.
#[job(name = "durable_revised", durable, max_attempts = 3, backoff = fixed("1ms"), output = Vec<u32>)]
#[derive(Serialize, Deserialize)]
struct Revised {
    release: u32,
}

impl Handler for Revised {
    async fn run(self, cx: &Durable) -> JobResult<Vec<u32>> {
        let checkout = cx.revision("checkout", self.release).await?;
        let mail = cx.revision(("mail", 1), 7).await?;
        let name = if checkout < 4 { "old" } else { "new" };
        cx.step(name, effect(cx, name)).await?;
        let _: String = cx.receive("go").await;
        Ok(vec![checkout, mail])
    }
}

/// Simulates the deployment of another release.
async fn deploy(db: &TestDb, release: i64) {
    sqlx::query("update queue.job set payload = jsonb_build_object('release', $1)").bind(release).execute(&db.pool).await.unwrap();
}

async fn failures(db: &TestDb, job: JobId) -> Vec<String> {
    db.all(&format!("select error from queue.failure where id = {job}")).await
}

#[tokio::test]
async fn a_job_stays_under_the_revision_that_it_began_under_and_new_ones_begin_under_the_current() {
    let db = db().await;
    let job = Revised { release: 3 }.enqueue(&db.pool).await.unwrap();
    let worker = || db.worker().register::<Revised>();
    db.run_while(worker(), db.until(job.id(), JobState::Parked)).await;
    assert_eq!(journal(&db, job.id()).await, ["checkout", "mail/1", "old"]);
    deploy(&db, 4).await;
    let _ = job.signal(&db.pool, "go", "now").await.unwrap();
    let new = Revised { release: 4 }.enqueue(&db.pool).await.unwrap();
    let _ = new.signal(&db.pool, "go", "now").await.unwrap();
    db.run_while(worker(), async {
        db.until(job.id(), JobState::Completed).await;
        db.until(new.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!((db.output(job.id()).await, db.output(new.id()).await), (serde_json::json!([3, 7]), serde_json::json!([4, 7])));
    assert_eq!((done(&db, job.id()).await, done(&db, new.id()).await), (pairs(&[("old", 1)]), pairs(&[("new", 1)])));
    db.finish().await;
}

#[tokio::test]
async fn a_rolled_back_release_does_not_run_its_jobs_until_it_is_deployed_again() {
    let db = db().await;
    let job = Revised { release: 4 }.enqueue(&db.pool).await.unwrap();
    let worker = || db.worker().register::<Revised>();
    db.run_while(worker(), db.until(job.id(), JobState::Parked)).await;
    deploy(&db, 3).await;
    let _ = job.signal(&db.pool, "go", "now").await.unwrap();
    db.run_while(worker(), async {
        eventually("an attempt has failed", async || !failures(&db, job.id()).await.is_empty()).await;
        deploy(&db, 4).await;
        eventually("it has finished", async || matches!(db.state(job.id()).await, Some(JobState::Completed | JobState::Dead))).await;
    })
    .await;
    let errors = failures(&db, job.id()).await;
    assert!(
        errors[0].contains("`checkout`") && errors[0].contains("started with revision 4") && errors[0].contains("up to 3"),
        "{errors:?}"
    );
    assert_eq!(done(&db, job.id()).await, pairs(&[("new", 1)]));
    db.finish().await;
}

#[tokio::test]
async fn a_test_sets_the_revision_under_which_a_job_began() {
    let db = db().await;
    let began = |release: u32| testing::run(Revised { release }).pool(&db.pool);
    let ran = began(4).journaled("checkout", &2).signal("go", "now").await;
    assert_eq!((ran.output(), ran.journaled()), (vec![2, 7], vec!["checkout", "mail/1", "old", "go"]));
    assert_eq!(began(4).signal("go", "now").await.output(), [4, 7]);
    let late = began(1).journaled("checkout", &2).await;
    assert!(late.retried_after().is_some(), "{:?}", late.error);
    db.finish().await;
}

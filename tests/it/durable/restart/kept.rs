//! Tests which data a restarted job keeps, and how its new payload is stored.

use queue_core::{EnqueueOutcome, Handler, Job as _, JobResult, JobState, Keyring, Secret, durable::Durable, job, testing};
use serde::{Deserialize, Serialize};

use super::{Act, Round, db, payload, rounds};

/// Job type as defined by an older release.
#[job(send_only, name = "durable_pages", durable)]
#[derive(Serialize, Deserialize)]
struct Old {
    page: u32,
}

/// Job type as defined by this release.
#[job(name = "durable_pages", durable, version = 2, upgrade = from_old, output = String)]
#[derive(Serialize, Deserialize)]
struct Pages {
    pages: Vec<u32>,
}

fn from_old(Old { page }: Old) -> Pages {
    Pages { pages: vec![page] }
}

impl Handler for Pages {
    async fn run(mut self, cx: &Durable) -> JobResult<String> {
        let stored: String = sqlx::query_scalar("select job_type from queue.lane l join queue.job j on j.lane = l.lane where j.id = $1")
            .bind(cx.id())
            .fetch_one(cx.pool())
            .await?;
        if self.pages.len() < 3 {
            self.pages.push(0);
            cx.restart(self).await;
        }
        Ok(stored)
    }
}

/// Durable job whose sealed payload grows with each restart.
#[job(name = "durable_secret", durable, seal = "durable_restart", output = usize)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sealed {
    card: String,
}

impl Handler for Sealed {
    async fn run(self, cx: &Durable) -> JobResult<usize> {
        if self.card.len() < 30 {
            cx.restart(Self { card: format!("{0}{0}", self.card) }).await;
        }
        Ok(self.card.len())
    }
}

#[tokio::test]
async fn a_payload_of_an_older_version_is_stored_in_the_current_version() {
    let db = db().await;
    let job = Old { page: 7 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Pages>(), db.until(job, JobState::Completed)).await;
    assert_eq!(payload(&db, job).await, serde_json::json!({ "pages": [7, 0, 0] }));
    assert_eq!(db.output(job).await, "durable_pages@2", "older releases skip it");
    db.finish().await;
}

#[tokio::test]
async fn a_sealed_payload_is_sealed_again() {
    let keys = Keyring::new("first", Secret::new([7; 32])).hashing(Secret::new([8; 32]));
    queue_core::use_keyring("durable_restart", keys).unwrap();
    let db = db().await;
    let card = || Sealed { card: "4111-hunter2".to_owned() };
    let job = card().enqueue(&db.pool).await.unwrap();
    let before = payload(&db, job.id()).await;
    db.run_while(db.worker().register::<Sealed>(), db.until(job.id(), JobState::Completed)).await;
    let after = payload(&db, job.id()).await;
    assert!(after != before && !after.to_string().contains("hunter2"), "{after}");
    assert_eq!(db.output(job.id()).await, 48);
    let ran = testing::run(card()).await;
    assert_eq!(ran.restarted_with::<Sealed>().unwrap().card, "4111-hunter24111-hunter2");
    db.finish().await;
}

#[tokio::test]
async fn a_uniqueness_key_is_kept_and_so_are_queue_and_priority() {
    let db = db().await;
    let waiting = || rounds(2, Act::Receive);
    let first = waiting().enqueue(&db.pool).unique("k").queue("slow").priority(7).await.unwrap();
    let _ = first.signal(&db.pool, "go", "once").await.unwrap();
    let second = db
        .run_while(db.worker().register::<Round>().queue("slow", 4), async {
            db.until(first.id(), JobState::Parked).await;
            assert_eq!(payload(&db, first.id()).await["number"], 2);
            waiting().enqueue(&db.pool).unique("k").queue("slow").await.unwrap()
        })
        .await;
    assert_eq!((second.id(), second.outcome()), (first.id(), EnqueueOutcome::Kept));
    let kept = "select count(*) from queue.jobs where queue = 'slow' and priority = 7";
    assert_eq!(db.count(kept).await, 1);
    first.cancel(&db.pool).await.unwrap();
    db.finish().await;
}

//! Tests metrics of paused queues. The jobs of a paused queue wait on purpose, so no metric reports that more workers or an operator are
//! needed.

use std::collections::BTreeSet;

use queue_core::{Job as _, Queue, Store, operate::Scope};
use tests::{Act, Do, TestDb, eventually, within};

use super::{REMEMBERED, Scrape};
use crate::health::{free_address, get};

/// Number of paused queues, which exceeds the maximum number of queues with separate metrics.
const PAUSED: usize = 55;

/// Returns the queues with a reported waiting time.
fn waiting(scrape: &Scrape) -> BTreeSet<&str> {
    let oldest = scrape.values.iter().filter(|(name, ..)| name == "queue_ready_oldest_seconds");
    oldest.flat_map(|(_, labels, _)| labels).map(|(_, queue)| queue.as_str()).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_of_a_paused_queue_are_not_reported_as_waiting_and_those_of_a_paused_type_are() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let (paused, store) = ((0..PAUSED).map(|nth| format!("paused-{nth}")), Store::default());
    for queue in paused {
        Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue(&queue).await.unwrap();
        Queue::new(&db.pool).store(store).pause(&Scope::queue(&queue)).await.unwrap();
    }
    for queue in ["unserved", "of-a-type"] {
        Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue(queue).await.unwrap();
    }
    let of_a_type = Scope { job_type: Some("do".to_owned()), ..Scope::queue("of-a-type") };
    Queue::new(&db.pool).store(store).pause(&of_a_type).await.unwrap();
    db.run_while(db.worker().queue("default", 5).health(address), async {
        eventually("it listens", async || get(address, "/livez").await.is_some()).await;
        let until_reported = async |expected: &[&str]| {
            let expected: BTreeSet<&str> = expected.iter().copied().collect();
            within(6 * REMEMBERED, "it reports these and no others", async || waiting(&Scrape::of(address).await) == expected).await;
        };
        until_reported(&["of-a-type", "unserved"]).await;
        assert_eq!(Scrape::of(address).await.sum("queue_jobs", &[]), Some((PAUSED + 2) as f64), "they are counted as ready all the same");
        Queue::new(&db.pool).store(store).resume(&Scope::queue("paused-7")).await.unwrap();
        until_reported(&["of-a-type", "paused-7", "unserved"]).await;
        Queue::new(&db.pool).store(store).pause(&Scope::EVERYTHING).await.unwrap();
        until_reported(&[]).await;
    })
    .await;
    db.finish().await;
}

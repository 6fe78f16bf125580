//! What a worker says of itself with its heartbeat.

use std::time::Duration;

use queue_core::{Job as _, Store, operate};
use tests::{TestDb, UntilGo, eventually};

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_says_how_many_of_its_slots_are_busy_and_how_much_memory_it_has() {
    let db = TestDb::new().await;
    for _ in 0..3 {
        UntilGo {}.enqueue(&db.pool).queue("slow").await.unwrap();
    }
    let worker = db.worker().register::<UntilGo>().queue("slow", 2).queue("other", 5).lease_ttl(Duration::from_secs(3));
    let said = async || operate::workers(&db.pool, Store::default()).await.unwrap();
    db.run_while(worker, async {
        eventually("two of seven slots are busy", async || {
            said().await.first().is_some_and(|worker| (worker.busy, worker.slots) == (Some(2), Some(7)))
        })
        .await;
        let memory = said().await[0].memory.unwrap();
        assert!((1 << 20..1 << 40).contains(&memory), "{memory} bytes");
        sqlx::raw_sql("create table if not exists go ()").execute(&db.pool).await.unwrap();
        eventually("none is", async || said().await.first().is_some_and(|worker| worker.busy == Some(0))).await;
    })
    .await;
    db.finish().await;
}

//! Tests the load that a worker reports with its heartbeat.

use std::time::Duration;

use queue_core::{Job as _, Queue};
use tests::{TestDb, UntilGo, eventually};

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_reports_its_busy_slots_and_its_memory() {
    let db = TestDb::new().await;
    for _ in 0..3 {
        UntilGo {}.enqueue(&db.pool).queue("slow").await.unwrap();
    }
    let worker = db.worker().register::<UntilGo>().queue("slow", 2).queue("other", 5).lease_ttl(Duration::from_secs(3));
    let workers = async || Queue::new(&db.pool).workers().await.unwrap();
    db.run_while(worker, async {
        eventually("two of seven slots are busy", async || {
            workers().await.first().is_some_and(|worker| (worker.busy, worker.slots) == (Some(2), Some(7)))
        })
        .await;
        let memory = workers().await[0].memory.unwrap();
        assert!((1 << 20..1 << 40).contains(&memory), "{memory} bytes");
        sqlx::raw_sql("create table if not exists go ()").execute(&db.pool).await.unwrap();
        eventually("none is", async || workers().await.first().is_some_and(|worker| worker.busy == Some(0))).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_has_no_busy_slots_and_no_memory() {
    let db = TestDb::new().await;
    let load = "insert into queue.worker (id, name, host, pid, version, queues, ttl, expires_at, busy, slots, memory)
      values (gen_random_uuid(), 'gone', 'here', 7, '0', '{}', '30 s', now() + interval '30 s', 2, 7, 1048576)";
    sqlx::raw_sql(load).execute(&db.pool).await.unwrap();
    for (expiry, expected) in [("30 s", (true, Some(2), Some(1_048_576))), ("-1 s", (false, None, None))] {
        let moved = sqlx::query("update queue.worker set expires_at = now() + $1::interval").bind(expiry);
        moved.execute(&db.pool).await.unwrap();
        let worker = Queue::new(&db.pool).workers().await.unwrap().remove(0);
        assert_eq!((worker.alive, worker.busy, worker.memory), expected, "{expiry}");
    }
    db.finish().await;
}

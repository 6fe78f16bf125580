//! Tests that an operator's open transaction does not block workers.

use std::time::Duration;

use queue_core::JobId;
use sqlx::{AssertSqlSafe, Executor as _};
use tests::eventually;

use super::RoledStore;
use crate::locked_tables::{ALL_BEGUN, BEGUN, enqueue, gate, left, worker};

#[tokio::test]
#[ignore = "deep"]
async fn an_uncommitted_requeue_of_a_parent_stops_nothing() {
    let store = RoledStore::new().await;
    let pool = &store.db.pool;
    let jobs = enqueue(pool, "left open", "left open").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker(&store.pool("runner")).grace(Duration::from_secs(2)).run(async { drop(stopped.await) }));
    eventually("all have begun", async || sqlx::query_scalar::<_, i64>(BEGUN).fetch_one(pool).await.unwrap() == ALL_BEGUN).await;
    let child: JobId = sqlx::query_scalar("select id from queue.child where parent = $1").bind(jobs.fallen).fetch_one(pool).await.unwrap();
    let mut operator = store.connect("ops").await;
    operator.execute(AssertSqlSafe(format!("begin; select queue.requeue({})", jobs.fallen))).await.unwrap();
    gate("left open").add_permits(1000);
    assert_eq!((left(pool, &[child]).await, left(pool, &jobs.all).await, left(pool, &jobs.others).await), (0, 0, 0));
    let completed = "select count(*) from queue.child where id = $1 and state = 'completed'";
    eventually("its end is noted", async || sqlx::query_scalar::<_, i64>(completed).bind(child).fetch_one(pool).await.unwrap() == 1).await;
    operator.execute("commit").await.unwrap();
    assert_eq!(left(pool, &[jobs.fallen]).await, 0, "it has ended again");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    store.server.stop().unwrap();
}

//! Tests a failover: the node that owns a store is killed, and its synchronous standby is promoted. `QUEUE_TEST_CITUS_NODES` is the path
//! of the program that kills and promotes nodes: `tests/citus/cluster.sh`.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{Store, migrate};
use queue_worker::Worker;
use sqlx::{AssertSqlSafe, PgPool};
use tests::{skipped, within};

use super::{
    cluster,
    moves::{Counted, longest_gap, port, produce, ran},
    pool,
};

fn order(words: &[String]) {
    let command = std::env::var("QUEUE_TEST_CITUS_NODES").unwrap();
    assert!(Command::new(&command).args(words).status().unwrap().success(), "{command} {words:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_store_is_killed_and_nothing_acknowledged_is_lost() {
    let what = "the node of a store is killed";
    if std::env::var_os("QUEUE_TEST_CITUS_NODES").is_none() {
        return skipped(what, "QUEUE_TEST_CITUS_NODES is not set, so no node can be killed");
    }
    let Some(db) = cluster(what).await else { return };
    // The second store must be on a node that does not own the first store. If necessary, the second store is moved.
    let other = Store::new("other").unwrap();
    let mut connection = db.pool.acquire().await.unwrap();
    migrate(&mut connection, other).await.unwrap();
    let node = port(&db).await;
    let elsewhere: (String, i32) =
        sqlx::query_as("select nodename::text, nodeport from pg_dist_node where groupid > 0 and nodeport <> $1 limit 1")
            .bind(i32::from(node))
            .fetch_one(&mut *connection)
            .await
            .unwrap();
    let on_other: Option<i32> = sqlx::query_scalar(
        "select n.nodeport from pg_dist_shard s join pg_dist_placement p using (shardid) join pg_dist_node n using (groupid)
         where s.logicalrelid = 'other.place'::regclass and n.nodeport <> $1",
    )
    .bind(i32::from(node))
    .fetch_optional(&mut *connection)
    .await
    .unwrap();
    if on_other.is_none() {
        let moving = format!("select citus_schema_move('other', '{}', {})", elsewhere.0, elsewhere.1);
        sqlx::raw_sql(AssertSqlSafe(moving)).execute(&mut *connection).await.unwrap();
    }
    let standby = node + 100;
    order(&["standby".to_owned(), node.to_string(), standby.to_string()]);
    let any: PgPool = pool(&db.urls()[0]);
    let worker = || Worker::new(any.clone()).register::<Counted>().lease_ttl(Duration::from_secs(5)).grace(Duration::from_secs(2));
    let beside = tokio::spawn(worker().store(other).run(std::future::pending()));
    db.run_while(worker(), async {
        let stop = Arc::new(AtomicBool::new(false));
        let first = tokio::spawn(produce(any.clone(), Store::default(), 0, Arc::clone(&stop)));
        let second = tokio::spawn(produce(any.clone(), other, 1_000_000, Arc::clone(&stop)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        order(&["kill".to_owned(), node.to_string()]);
        order(&["promote".to_owned(), standby.to_string()]);
        let led = format!(
            "select citus_update_node(n.nodeid, '127.0.0.1', {standby}, force => true, lock_cooldown => 100) from pg_dist_node n where n.nodeport = {node}"
        );
        sqlx::raw_sql(AssertSqlSafe(led)).execute(&mut *connection).await.unwrap();
        eprintln!("killed, promoted and named in {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_secs(8)).await;
        stop.store(true, Relaxed);
        let (acknowledged, times, refused) = first.await.unwrap();
        eprintln!("its store: {} acknowledged, longest gap {:?}, {} refused, as {:?}", acknowledged.len(), longest_gap(&times), refused.len(), refused.last());
        let (beside_acknowledged, beside_times, beside_refused) = second.await.unwrap();
        eprintln!(
            "the other: {} acknowledged, longest gap {:?}, {} refused, as {:?}",
            beside_acknowledged.len(),
            longest_gap(&beside_times),
            beside_refused.len(),
            beside_refused.last()
        );
        within(Duration::from_secs(90), "all that was acknowledged ran", async || acknowledged.iter().chain(&beside_acknowledged).all(|n| ran(*n))).await;
        assert!(beside_refused.is_empty() && longest_gap(&beside_times) < Duration::from_secs(2), "the other store was not touched");
    })
    .await;
    beside.abort();
    any.close().await;
    drop(connection);
    db.leave().await;
}

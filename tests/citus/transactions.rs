//! Tests REPEATABLE READ and read-only transactions through each node.

use queue_core::{Job as _, Queue};

use super::{cluster, kinds::Echo, owner, pool};

#[tokio::test(flavor = "multi_thread")]
async fn isolation_levels_are_refused_only_on_the_stores_own_node() {
    let Some(db) = cluster("transactions over every node").await else { return };
    let own = owner(&db).await;
    for url in db.urls() {
        let on = pool(&url);
        let mut tx = on.begin_with("begin isolation level repeatable read").await.unwrap();
        let enqueued = Echo { n: 1 }.enqueue(&mut tx).await;
        if url == own {
            let error = enqueued.unwrap_err().to_string();
            assert!(error.contains("read committed only"), "{error}");
            tx.rollback().await.unwrap();
        } else {
            let id = enqueued.unwrap().id();
            tx.commit().await.unwrap();
            assert_eq!(db.count(&format!("select count(*) from queue.job where id = {id}")).await, 1);
        }
        // Read-only operations work in a read-only transaction, although the called functions could write.
        let mut tx = on.begin_with("begin read only").await.unwrap();
        Queue::on(&mut tx).limits().await.unwrap();
        Queue::on(&mut tx).pauses().await.unwrap();
        tx.rollback().await.unwrap();
        on.close().await;
    }
    db.finish().await;
}

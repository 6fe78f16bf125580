//! Tests that jobs claimed under limits do not start before their claim is durable, and that the worker sends its next claim before the
//! previous claim is durable.

use queue_core::{Job as _, Queue, operate::Scope, options::Limit};
use queue_worker::Config;
use tests::Sql as _;

use super::{Unlimited, fresh, held_equals_the_leases, most_at_once, set, worker};

#[tokio::test]
async fn the_next_claim_does_not_wait_for_the_disk_and_no_job_begins_before() {
    let db = fresh().await;
    set(&db, "queue:default", Limit::new().concurrency(25)).await;
    let mut config = Config::default();
    (config.concurrency, config.batch) = (100, 10);
    let test = async {
        // The first claim under a limit reads the table `job` in order to count the running jobs, so it must run before the table is
        // locked.
        Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
        let ended = "select count(*) from effect_span where ended is not null";
        db.until_count(ended, 1).await;
        let all = Scope::default();
        Queue::new(&db.pool).pause(&all).await.unwrap();
        Queue::new(&db.pool).until_paused(&all).await.unwrap();
        Unlimited::enqueue_all((0..100).map(|_| Unlimited { ms: 5 }), &db.pool).await.unwrap();
        // The confirmation of a claim reads the jobs, so the lock blocks it. The lock does not block the claim itself.
        let mut held = db.pool.begin().await.unwrap();
        held.run("lock table queue.job in access exclusive mode").await;
        assert!(Queue::new(&db.pool).resume(&all).await.unwrap());
        db.until_count("select count(*) from queue.lease where cardinality(ids) = 10", 2).await;
        assert_eq!(db.count("select count(*) from effect_span").await, 1, "nothing begins before");
        held.rollback().await.unwrap();
        db.until_count(ended, 101).await;
    };
    db.run_while(worker(&db).config(config).register::<Unlimited>(), test).await;
    assert_eq!(db.count("select count(distinct job) from effect_span").await, 101, "each once");
    let most = most_at_once(&db, "true").await;
    assert!(most <= 25, "{most} concurrently");
    held_equals_the_leases(&db).await;
    db.finish().await;
}

//! Tests the cost that keys without permits add to claims of other keys. The cost does not depend on the number of keys without permits,
//! or on the number of their waiting jobs.

use std::collections::BTreeMap;
use tests::Sql as _;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::claim_steps::{claim_from, claim_keyed as claim, counts, fill, with};

/// Enqueues `each` jobs for each key that the query `keys` returns, in one statement.
async fn pour(on: &mut PgConnection, keys: &str, each: i32) {
    let filled = format!(
        "with fresh as (
           select queue.next_id() as id, queue.fair_id_of(k) as fair_id, k from ({keys}) k (k) cross join generate_series(1, {each})
         ), jobs as (
           insert into queue.job (id, lane, max_attempts, payload, fair_id)
           select id, queue.lane_id('default', 't', 100, false), 3, jsonb_build_object('k', k), fair_id from fresh
         )
         insert into queue.ready (lane, seq, id, fair_id)
         select queue.paired_lane(queue.lane_id('default', 't', 100, false)), queue.next_id(), id, fair_id from fresh"
    );
    on.execute(AssertSqlSafe(filled)).await.unwrap();
}

/// Returns the number of buffers that a claim of ten jobs touches. The claim is rolled back.
pub(super) async fn buffers(on: &mut PgConnection, worker: Uuid) -> i64 {
    let mut tx = on.begin().await.unwrap();
    let explain = format!(
        "explain (analyze, buffers, format json) select * from queue.claim_keyed(gen_random_uuid(), '{worker}', array[queue.hash('type:t')],
           array[queue.lane_id('default', 't', 100, false)], array[0], array[true], array[10], 10, '{{}}', 0, null)"
    );
    let plan: Value = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_behind_a_key_without_permits_cost_the_next_key_nothing() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "a", "b"]).await;
    on.run("select queue.set_limit('type:t', 1, keyed => true)").await;
    claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    fill(&mut on, "default", ["c"; 1]).await;
    buffers(&mut on, worker).await;
    let few = buffers(&mut on, worker).await;
    pour(&mut on, "values ('a')", 100_000).await;
    on.run("analyze queue.ready").await;
    buffers(&mut on, worker).await;
    let many = buffers(&mut on, worker).await;
    let some = claim(&mut on, worker, &["type:t"], 10, &[]).await.unwrap();
    assert_eq!(some.of, counts([("c", 1)]));
    assert!(many <= 2 * few, "{few} buffers, and then {many}");
    db.finish().await;
}

#[tokio::test]
async fn of_thousands_of_keys_without_permits_the_one_with_permits_is_found_from_any_start() {
    let (db, mut on, worker) = with(1).await;
    on.run("select queue.set_limit('type:t', 1, keyed => true)").await;
    fill(&mut on, "default", ["k0"]).await;
    pour(&mut on, "select 'k' || n from generate_series(1, 2500) n", 1).await;
    let mut taken = 0;
    while taken < 2501 {
        taken += claim(&mut on, worker, &["type:t"], 500, &[]).await.unwrap().ids.len();
    }
    pour(&mut on, "select 'k' || n from generate_series(1, 2500) n", 2).await;
    // No claim has recorded yet which keys have no permits, so the first claims read these keys without finding a job.
    for after in [i64::MIN, -1 << 62, 0, 1 << 62, i64::MAX] {
        let mut tx = on.begin().await.unwrap();
        fill(&mut tx, "default", ["free"]).await;
        let (mut after, mut claims, mut of) = (after, 0, BTreeMap::new());
        while of.is_empty() {
            let claimed = claim_from(&mut tx, (worker, "default", after), &["type:t"], 10, &[]).await.unwrap();
            claims += 1;
            assert!(!claimed.of.is_empty() || claimed.closed.as_deref() == Some("more"), "{claimed:?}");
            (after, of) = (claimed.reached.unwrap(), claimed.of);
            assert!(claims <= 5, "after {claims} claims from {after} nothing is found");
        }
        assert_eq!(of, counts([("free", 1)]));
        tx.rollback().await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn the_last_key_is_found_by_the_next_claim_whichever_keys_have_no_permit() {
    let (db, mut on, worker) = with(0).await;
    on.run("select queue.set_limit('type:t', null, 1, '1 h', keyed => true)").await;
    fill(&mut on, "default", ["k0"]).await;
    pour(&mut on, "select 'k' || n from generate_series(1, 20000) n", 1).await;
    let begun = "insert into queue.rate (limit_id, fair_id, at_ms, n, total) select queue.hash('type:t'), fair_id, queue.clock_ms(), 1, 1 from queue.ready";
    on.run(begun).await;
    for after in [i64::MIN, -1 << 62, 0, 1 << 62, i64::MAX] {
        let none = claim_from(&mut on, (worker, "default", after), &["type:t"], 10, &[]).await.unwrap();
        assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("more")));
        let mut tx = on.begin().await.unwrap();
        fill(&mut tx, "default", ["new"; 3]).await;
        let some = claim_from(&mut tx, (worker, "default", after), &["type:t"], 10, &[]).await.unwrap();
        assert_eq!(some.of, counts([("new", 1)]));
        assert!(some.reached.unwrap().abs_diff(none.reached.unwrap()) < 1 << 52, "and it continues where it was, give or take a key");
        tx.rollback().await.unwrap();
    }
    db.finish().await;
}

//! Tests a claim in progress while its limit becomes keyed or unkeyed. The claim takes no job under the old kind of limit.

use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Sql as _, TestDb, protocol::settle_leases};
use uuid::Uuid;

use super::claim_steps::{claim, claim_keyed, connect, fill, with};

/// Runs a claim until it has locked its limits and waits for a permit that another session has locked. Then runs `meanwhile` and lets the
/// claim continue.
async fn held_up<T: Send + 'static>(
    db: &TestDb,
    freed: Uuid,
    under_way: impl Future<Output = T> + Send + 'static,
    meanwhile: impl AsyncFnOnce(&mut PgConnection),
) -> T {
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    open.run(&format!("select from queue.permit where token = '{freed}' for update")).await;
    let under_way = tokio::spawn(under_way);
    let waits =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_%'";
    db.until_count(waits, 1).await;
    let mut operator = connect(&db.url).await;
    meanwhile(&mut operator).await;
    open.rollback().await.unwrap();
    under_way.await.unwrap()
}

/// Returns a connection with a long lock timeout.
async fn patient(db: &TestDb) -> PgConnection {
    let mut on = connect(&db.url).await;
    on.run("set lock_timeout = '30s'").await;
    on
}

#[tokio::test]
async fn a_claim_in_progress_while_a_limit_becomes_keyed_or_unkeyed_takes_nothing_by_the_old_meaning() {
    const TWO: &str = "select queue.set_limit('type:t', 1, keyed => true), queue.set_limit('queue:default', 1, keyed => true)";
    const OF_ALL: &str = "set statement_timeout = '20s'; select queue.set_limit('type:t', 1, keyed => false)";
    // `taken` is the expected result of the claim in progress, and `next` that of the next claim. A result is the number of claimed jobs,
    // and the reason why the limit is closed afterwards.
    for (name, keys, limits, set, is_freed, turns, taken, next) in [
        (
            "neither two in all nor two of their key, which is that of those without one",
            &[][..],
            &["type:t"][..],
            "select queue.set_limit('type:t', 2)",
            true,
            "select queue.set_limit('type:t', 2, keyed => true)",
            (0, "unknown"),
            (2, "exhausted"),
        ),
        (
            "not one of each key, but one in all",
            &["a", "b", "c", "d", "e"],
            &["type:t", "queue:default"],
            TWO,
            true,
            OF_ALL,
            (1, "full"),
            (0, "full"),
        ),
        // The claim first reads whether its limits are keyed, and then reads all leases. The operator does not wait for the claim.
        (
            "nothing where no worker reports what has ended",
            &["a"; 3],
            &["type:t", "queue:default"],
            TWO,
            false,
            OF_ALL,
            (0, "unknown"),
            (1, "full"),
        ),
    ] {
        let by_key = !keys.is_empty();
        let (db, mut on, worker) = with(if by_key { 0 } else { 10 }).await;
        fill(&mut on, "default", keys.iter().copied()).await;
        on.run(set).await;
        let claims = async move |on: &mut PgConnection, by_key: bool, most, freed: &[Uuid]| {
            if by_key {
                claim_keyed(on, worker, limits, most, freed).await.unwrap()
            } else {
                claim(on, worker, limits, &["default"], most, freed).await.unwrap()
            }
        };
        let first = claims(&mut on, by_key, if by_key { 1 } else { 2 }, &[]).await;
        settle_leases(&mut on, &[first.token]).await.unwrap();
        let (mut two, freed) = (patient(&db).await, if is_freed { vec![first.token] } else { vec![] });
        let under_way = async move { claims(&mut two, by_key, 9, &freed).await };
        let claimed = held_up(&db, first.token, under_way, async |operator| operator.run(turns).await).await;
        assert_eq!((claimed.ids.len(), claimed.closed.as_deref()), (taken.0, Some(taken.1)), "{name}");
        tests::fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
        let claimed = claims(&mut on, true, 9, &[]).await;
        assert_eq!((claimed.ids.len(), claimed.closed.as_deref()), (next.0, Some(next.1)), "{name}");
        db.finish().await;
    }
}

/// Under an isolation level above read committed, an operator may still see a limiter row that another operator has deleted.
#[tokio::test]
async fn a_limit_that_is_set_again_while_it_is_unset_has_a_limiter() {
    let (db, mut on, worker) = with(1).await;
    on.run("select queue.set_limit('type:t', 1)").await;
    let mut one = on.begin().await.unwrap();
    one.run("select queue.unset_limit('type:t')").await;
    let mut other = connect(&db.url).await;
    other.run("set default_transaction_isolation = 'repeatable read'").await;
    let sets = tokio::spawn(async move { other.execute("select queue.set_limit('type:t', 1)").await.map(|_| ()) });
    db.until_waiting(1).await;
    one.commit().await.unwrap();
    if sets.await.unwrap().is_err() {
        // The second operator may get a serialization error and then has to retry.
        on.run("select queue.set_limit('type:t', 1)").await;
    }
    let claimed = claim(&mut on, worker, &["type:t"], &["default"], 1, &[]).await.unwrap();
    assert_eq!((claimed.ids.len(), claimed.closed), (1, None));
    db.finish().await;
}

/// A worker whose lease has expired claims as if the limit were still unkeyed.
#[tokio::test]
async fn a_late_claim_of_all_does_not_change_permits_of_keys() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b", "a"]).await;
    on.run("select queue.set_limit('type:t', 1, keyed => true)").await;
    let first = claim_keyed(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!(first.ids.len(), 2);
    on.run("update queue.lease set ids = ids[2:], attempts = attempts[2:], crashes = crashes[2:]").await;
    let late = claim(&mut on, worker, &["type:t"], &["default"], 9, &[first.token]).await.unwrap();
    assert_eq!((late.ids.len(), late.closed.as_deref()), (0, Some("unknown")));
    let next = claim_keyed(&mut on, worker, &["type:t"], 9, &[first.token]).await.unwrap();
    assert_eq!(next.ids.len(), 1, "the key whose job has ended has room");
    on.run(&format!("delete from queue.job where id = {}", first.ids[0])).await;
    db.finish().await;
}

//! A claim under way while what a limit counts changes, of all jobs or of each key: it takes nothing by what was meant before.

use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{TestDb, eventually, protocol::settle_leases};
use uuid::Uuid;

use super::{
    key_claims,
    statements::{claim, connect, run, with},
};

/// Somebody whose claim is under way: it has its limits locked, and waits for a permit that somebody else has.
async fn held_up<T: Send + 'static>(
    db: &TestDb,
    freed: Uuid,
    under_way: impl Future<Output = T> + Send + 'static,
    meanwhile: impl AsyncFnOnce(&mut PgConnection),
) -> T {
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    sqlx::query("select from queue.permit where token = $1 for update").bind(freed).execute(&mut *open).await.unwrap();
    let under_way = tokio::spawn(under_way);
    let waits =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_%'";
    eventually("the claim waits", async || db.count(waits).await == 1).await;
    let mut operator = connect(&db.url).await;
    meanwhile(&mut operator).await;
    open.rollback().await.unwrap();
    under_way.await.unwrap()
}

async fn patient(db: &TestDb) -> PgConnection {
    let mut on = connect(&db.url).await;
    on.execute("set lock_timeout = '30s'").await.unwrap();
    on
}

#[tokio::test]
async fn a_claim_of_two_in_all_takes_nothing_once_the_limit_is_of_each_key() {
    let (db, mut on, worker) = with(10).await;
    run(&mut on, "select queue.set_limit('type:t', 2)").await;
    let first = claim(&mut on, worker, &["type:t"], &["default"], 2, &[]).await.unwrap();
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let (mut two, ended) = (patient(&db).await, first.token);
    let under_way = async move { claim(&mut two, worker, &["type:t"], &["default"], 9, &[ended]).await.unwrap() };
    let said =
        held_up(&db, ended, under_way, async |operator| run(operator, "select queue.set_limit('type:t', 2, keyed => true)").await).await;
    assert_eq!((said.ids.len(), said.closed.as_deref()), (0, Some("unknown")), "neither two in all nor two of their key");
    tests::lines::line_up(&mut on, 100).await.unwrap();
    let next = key_claims::claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!((next.ids.len(), next.closed.as_deref()), (2, Some("lines")), "they have no key, which is one");
    db.finish().await;
}

#[tokio::test]
async fn a_claim_of_one_of_each_key_takes_one_in_all_once_the_limit_is_of_all_beside_another_by_key() {
    let (db, mut on, worker) = with(0).await;
    key_claims::fill(&mut on, "default", ["a", "b", "c", "d", "e"]).await;
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true), queue.set_limit('queue:default', 1, keyed => true)").await;
    let limits = &["type:t", "queue:default"];
    let first = key_claims::claim(&mut on, worker, limits, 1, &[]).await.unwrap();
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let (mut two, ended) = (patient(&db).await, first.token);
    let under_way = async move { key_claims::claim(&mut two, worker, &["type:t", "queue:default"], 9, &[ended]).await.unwrap() };
    let said =
        held_up(&db, ended, under_way, async |operator| run(operator, "select queue.set_limit('type:t', 1, keyed => false)").await).await;
    assert_eq!((said.ids.len(), said.closed.as_deref()), (1, Some("full")), "not one of each key");
    let next = key_claims::claim(&mut on, worker, limits, 9, &[]).await.unwrap();
    assert_eq!((next.ids.len(), next.closed.as_deref()), (0, Some("full")));
    db.finish().await;
}

/// Nobody says what has ended: it reads all leases, once it knows what its limits mean.
#[tokio::test]
async fn a_claim_that_knows_its_limits_takes_nothing_once_one_is_of_all_and_no_operator_waits_for_it() {
    let (db, mut on, worker) = with(0).await;
    key_claims::fill(&mut on, "default", ["a", "a", "a"]).await;
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true), queue.set_limit('queue:default', 1, keyed => true)").await;
    let limits = &["type:t", "queue:default"];
    let first = key_claims::claim(&mut on, worker, limits, 1, &[]).await.unwrap();
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let mut two = patient(&db).await;
    let under_way = async move { key_claims::claim(&mut two, worker, &["type:t", "queue:default"], 9, &[]).await.unwrap() };
    let said = held_up(&db, first.token, under_way, async |operator| {
        run(operator, "set statement_timeout = '2s'").await;
        run(operator, "select queue.set_limit('type:t', 1, keyed => false)").await;
    })
    .await;
    assert_eq!((said.ids.len(), said.closed.as_deref()), (0, Some("unknown")));
    let next = key_claims::claim(&mut on, worker, limits, 9, &[]).await.unwrap();
    assert_eq!((next.ids.len(), next.closed.as_deref()), (1, Some("full")));
    db.finish().await;
}

#[tokio::test]
async fn once_an_operators_word_is_gone_what_was_counted_by_it_counts_by_key_again() {
    let (db, mut on, worker) = with(1).await;
    key_claims::fill(&mut on, "default", ["a", "a", "a"]).await;
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true)").await;
    // Code's word from now on.
    run(&mut on, "update queue.bound set by_operator = false where name = 'type:t'").await;
    let first = key_claims::claim(&mut on, worker, &["type:t"], 1, &[]).await.unwrap();
    assert_eq!(first.ids.len(), 1);
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => false)").await;
    let second = claim(&mut on, worker, &["type:t"], &["default"], 2, &[]).await.unwrap();
    assert_eq!(second.ids.len(), 1, "all that runs is counted, whichever key it is of");
    // Nobody claims by this word.
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => true)").await;
    run(&mut on, "select queue.unset_limit('type:t')").await;
    let third = key_claims::claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!((third.ids.len(), third.closed.as_deref()), (0, Some("lines")), "one of its key runs already");
    db.finish().await;
}

/// Above read committed, an operator sees a gate that another one takes away meanwhile.
#[tokio::test]
async fn a_limit_that_is_set_again_while_it_is_unset_has_a_gate() {
    let (db, mut on, worker) = with(1).await;
    run(&mut on, "select queue.set_limit('type:t', 1)").await;
    let mut one = on.begin().await.unwrap();
    run(&mut one, "select queue.unset_limit('type:t')").await;
    let mut other = connect(&db.url).await;
    other.execute("set default_transaction_isolation = 'repeatable read'").await.unwrap();
    let sets = tokio::spawn(async move { other.execute("select queue.set_limit('type:t', 1)").await.map(|_| ()) });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("the other waits", async || db.count(waits).await == 1).await;
    one.commit().await.unwrap();
    if sets.await.unwrap().is_err() {
        // It may be told to try again, and does.
        run(&mut on, "select queue.set_limit('type:t', 1)").await;
    }
    let said = claim(&mut on, worker, &["type:t"], &["default"], 1, &[]).await.unwrap();
    assert_eq!((said.ids.len(), said.closed), (1, None));
    db.finish().await;
}

/// A claim of a worker that was silent: it has not heard that the limit is by key now.
#[tokio::test]
async fn a_late_claim_of_all_leaves_alone_what_keys_hold() {
    let (db, mut on, worker) = with(0).await;
    key_claims::fill(&mut on, "default", ["a", "b", "a"]).await;
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true)").await;
    let first = key_claims::claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!(first.ids.len(), 2);
    let ended = "update queue.lease set ids = ids[2:], attempts = attempts[2:], crashes = crashes[2:] where token = $1";
    sqlx::query(ended).bind(first.token).execute(&mut on).await.unwrap();
    let late = claim(&mut on, worker, &["type:t"], &["default"], 9, &[first.token]).await.unwrap();
    assert_eq!((late.ids.len(), late.closed.as_deref()), (0, Some("unknown")));
    let next = key_claims::claim(&mut on, worker, &["type:t"], 9, &[first.token]).await.unwrap();
    assert_eq!(next.ids.len(), 1, "the key whose job has ended has room");
    sqlx::query("delete from queue.job where id = $1").bind(first.ids[0]).execute(&mut on).await.unwrap();
    db.finish().await;
}

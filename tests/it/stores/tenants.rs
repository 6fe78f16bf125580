//! Tests the assignment of tenants to stores, and producers with outdated assignments.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    Batch, Error, Job as _, JobState, Store,
    flow::Flow,
    migrate,
    operate::{Filter, Operation},
    stores::{MoveState, Rule, StoreJob, Stores},
};
use sqlx::postgres::PgPoolOptions;
use tests::{Act, Do, TestDb, eventually};

use super::{RunningWorker, make, state, worker_over};

/// Creates a registry of stores as a first process would, and adds the stores in `names`.
pub(super) async fn stores(db: &TestDb, names: &[&str]) -> Stores {
    let stores = another(db);
    stores.migrate().await.unwrap();
    for name in names {
        let store = Store::new(name).unwrap();
        migrate(&db.pool, store).await.unwrap();
        stores.add(name, "main", store).await.unwrap();
    }
    stores
}

/// Opens the registry of stores again, as a second process would.
pub(super) fn another(db: &TestDb) -> Stores {
    Stores::new(&db.pool, Store::new("homes").unwrap()).database("main", &db.pool).unwrap()
}

pub(super) fn job(note: &str) -> Do {
    Do { act: Act::Ok(note.to_owned()) }
}

pub(super) async fn until_over(stores: &Stores, key: &str) {
    eventually("the move has finished", async || stores.go_on(key).await.unwrap() == MoveState::Over).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn concurrent_callers_see_a_tenant_in_one_store_and_all_its_jobs_go_there() {
    let db = TestDb::new().await;
    let first = stores(&db, &["one", "two", "three"]).await;
    let mut asking = tokio::task::JoinSet::new();
    for nth in 0..40 {
        let stores = another(&db);
        asking.spawn(async move { (nth % 10, stores.of(&format!("t{}", nth % 10)).await.unwrap().member().name().to_owned()) });
    }
    let found: BTreeSet<(i32, String)> = asking.join_all().await.into_iter().collect();
    assert_eq!(found.len(), 10, "each is in one store: {found:?}");
    let used: BTreeSet<&String> = found.iter().map(|(_, store)| store).collect();
    assert!(used.len() > 1, "they are not all in one store");

    let tenant = first.of("t0").await.unwrap();
    let mut tx = tenant.begin().await.unwrap();
    let one = job("one").enqueue(&mut tx).await.unwrap().id();
    Do::enqueue_all([job("two"), job("three")], &mut tx).await.unwrap();
    let mut batch = Batch::new();
    batch.add(job("four")).unwrap();
    batch.enqueue(&mut tx).await.unwrap();
    let mut flow = Flow::new("flow");
    flow.add("five", job("five"));
    flow.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let filter = Filter::default().meta("of_tenant", "t0");
    for of in first.roster().list(&filter).await {
        let here = of.member.name() == tenant.member().name();
        assert_eq!(of.answer.unwrap().jobs.len(), if here { 5 } else { 0 }, "{}", of.member.name());
    }
    let named = StoreJob::new(tenant.member().name(), one).unwrap();
    assert_eq!(first.roster().find(&named.to_string().parse().unwrap()).await.unwrap().id, one);
    assert!(first.roster().why(&named).await.unwrap().first().message.len() > 5);
    assert!(matches!(first.roster().find(&StoreJob::new("nowhere", one).unwrap()).await, Err(Error::NoStore { .. })));
    let swept: u64 = first.roster().apply(&filter, Operation::Cancel).await.into_iter().map(|of| of.answer.unwrap().done).sum();
    assert_eq!(swept, 5);
    let cancelled: i64 = first.roster().counts().await.into_iter().map(|of| of.answer.unwrap().of(JobState::Cancelled)).sum();
    assert_eq!(cancelled, 5);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn new_tenants_are_placed_by_the_rule_and_not_in_closed_stores() {
    let db = TestDb::new().await;
    let stores = stores(&db, &["one", "two"]).await.rule(Rule::Fewest);
    for nth in 0..6 {
        stores.of(&format!("t{nth}")).await.unwrap();
    }
    let tenants = async || stores.records().await.unwrap().into_iter().map(|record| record.tenants).collect::<Vec<_>>();
    assert_eq!(tenants().await, [3, 3]);
    stores.close("one").await.unwrap();
    stores.of("late").await.unwrap();
    assert_eq!(tenants().await, [3, 4]);
    assert!(matches!(stores.place("later", "one").await, Err(Error::NoStore { .. })));
    assert!(matches!(stores.move_tenant("late", "one").await, Err(Error::CannotMove { .. })));
    assert!(stores.remove("one").await.is_err(), "tenants are in it");
    let explicit = another(&db).rule(Rule::Explicit);
    assert!(matches!(explicit.of("nobody").await, Err(Error::NotPlaced { .. })));
    assert!(explicit.place("somebody", "two").await.unwrap() && !explicit.place("somebody", "two").await.unwrap());
    assert_eq!(explicit.of("somebody").await.unwrap().member().name(), "two");
    // An invalid registry row that an operator inserted manually is reported, and affects no other store.
    sqlx::raw_sql("insert into homes.store (name, database, schema) values ('a_wrong', 'main', 'no schema\"')")
        .execute(&db.pool)
        .await
        .unwrap();
    let (hurried, late) = (another(&db), make(&db.pool, "zulu").await);
    stores.add("zulu", "main", late.store()).await.unwrap();
    assert!(matches!(hurried.refresh().await, Err(Error::InvalidName { .. })));
    assert_eq!(hurried.roster().all().len(), 3);
    hurried.place("somewhere", "two").await.unwrap();
    assert_eq!(another(&db).of("somewhere").await.unwrap().member().name(), "two");
    another(&db).move_tenant("somewhere", "zulu").await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_with_an_outdated_home_of_a_tenant_cannot_enqueue_there() {
    let db = TestDb::new().await;
    let (here, there) = (stores(&db, &["one", "two"]).await, another(&db));
    here.place("acme", "one").await.unwrap();
    let (stale, open) = (there.of("acme").await.unwrap(), here.of("acme").await.unwrap());
    let mut slow = open.begin().await.unwrap();
    let first = job("slow").enqueue(&mut slow).await.unwrap();
    here.move_tenant("acme", "two").await.unwrap();
    assert!(matches!(here.move_tenant("acme", "one").await, Err(Error::CannotMove { .. })), "it moves already");
    assert_eq!(here.go_on("acme").await.unwrap(), MoveState::Fencing, "it waits for who enqueues there");
    slow.commit().await.unwrap();
    eventually("the tenant has left the old store", async || here.go_on("acme").await.unwrap() == MoveState::Draining(1)).await;
    assert_eq!(here.moves().await.unwrap().iter().map(|moving| moving.key.as_str()).collect::<Vec<_>>(), ["acme"]);
    let mut own = db.pool.begin().await.unwrap();
    assert!(matches!(stale.enter(&mut own).await, Err(Error::Moved { .. })));
    own.rollback().await.unwrap();
    let mut tx = stale.begin().await.unwrap();
    assert_eq!(tx.store().schema(), "two");
    let second = job("new").enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    // The process that began the move is gone, so another process continues the move.
    drop(here);
    let running = RunningWorker::start(worker_over(there.roster()));
    until_over(&there, "acme").await;
    let (one, two) = (there.roster().get("one").unwrap(), there.roster().get("two").unwrap());
    assert_eq!(state(&one, first.id()).await, Some(JobState::Completed));
    super::until_done(&two, second.id()).await;
    assert!(there.moves().await.unwrap().is_empty());
    // After the tenant has moved back, the first store rejects the assignment from before the moves, because the epoch of this assignment
    // is older.
    there.move_tenant("acme", "one").await.unwrap();
    until_over(&there, "acme").await;
    let mut own = db.pool.begin().await.unwrap();
    assert!(matches!(open.enter(&mut own).await, Err(Error::Moved { .. })), "it was there by another epoch");
    there.of("acme").await.unwrap().enter(&mut own).await.unwrap();
    own.rollback().await.unwrap();
    running.stop().await;
    db.finish().await;
}

/// Maintenance may abandon a move at any point if a store hangs. The abandoned move must not leave an open transaction in the program's
/// pool.
#[tokio::test]
#[ignore = "deep"]
async fn a_step_of_a_move_that_is_abandoned_anywhere_leaves_no_open_transaction() {
    let db = TestDb::new().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&db.url).await.unwrap();
    let own = Stores::new(&db.pool, Store::new("homes").unwrap()).database("main", &pool).unwrap();
    let all = stores(&db, &["one", "two"]).await;
    all.place("acme", "one").await.unwrap();
    let mut tx = all.of("acme").await.unwrap().begin().await.unwrap();
    job("stays").enqueue(&mut tx).key("its key").await.unwrap();
    tx.commit().await.unwrap();
    own.refresh().await.unwrap();
    own.move_tenant("acme", "two").await.unwrap();
    sqlx::raw_sql("create table public.written (round int)").execute(&db.pool).await.unwrap();
    for round in 0..120 {
        let _ = tokio::time::timeout(Duration::from_micros(100 * round), own.go_on("acme")).await;
        sqlx::query("insert into public.written values (1)").execute(&pool).await.unwrap();
    }
    assert_eq!(db.count("select count(*) from public.written").await, 120, "some were written into a transaction that is never committed");
    eventually("the tenant has left the old store", async || all.go_on("acme").await.unwrap() == MoveState::Draining(1)).await;
    assert_eq!(db.count("select count(*) from two.jobs where job_type = 'tenant:move'").await, 1, "each key is held once");
    pool.close().await;
    db.finish().await;
}

/// Several producers enqueue, each with its own cache of assignments, and occasionally roll back. Meanwhile the tenant moves back and
/// forth.
#[tokio::test]
#[ignore = "deep"]
async fn nothing_is_lost_or_left_behind_while_a_tenant_moves_back_and_forth_under_load() {
    let db = TestDb::new().await;
    let here = stores(&db, &["one", "two"]).await;
    here.place("acme", "one").await.unwrap();
    let running = RunningWorker::start(worker_over(here.roster()));
    let (stop, mut producing) = (Arc::new(AtomicBool::new(false)), tokio::task::JoinSet::new());
    for nth in 0..3 {
        let (stores, stop) = (another(&db), Arc::clone(&stop));
        producing.spawn(async move {
            let (mut enqueued, mut round) = (0, 0);
            while !stop.load(Relaxed) {
                let mut tx = stores.of("acme").await.unwrap().begin().await.unwrap();
                job(&format!("{nth}.{round}")).enqueue(&mut tx).await.unwrap();
                round += 1;
                match round % 7 {
                    // Of every seven transactions, one is slow and one is rolled back.
                    0 => tokio::time::sleep(Duration::from_millis(100)).await,
                    3 => continue,
                    _ => {}
                }
                tx.commit().await.unwrap();
                enqueued += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            enqueued
        });
    }
    let (began, mut moves) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(12) {
        let (to, from) = if moves % 2 == 0 { ("two", "one") } else { ("one", "two") };
        here.move_tenant("acme", to).await.unwrap();
        let other = another(&db);
        other.refresh().await.unwrap();
        // Two processes continue the move concurrently.
        eventually("the move has finished", async || {
            let (one, two) = tokio::join!(here.go_on("acme"), other.go_on("acme"));
            one.unwrap() == MoveState::Over && two.unwrap() == MoveState::Over
        })
        .await;
        let from = here.roster().get(from).unwrap();
        let left = from.store().sql("select count(*) from queue.jobs where state not in ('completed', 'cancelled', 'expired', 'dead')");
        for _ in 0..3 {
            let left: i64 = sqlx::query_scalar(left).fetch_one(&db.pool).await.unwrap();
            assert_eq!(left, 0, "nothing comes to the store that it has left");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        moves += 1;
    }
    stop.store(true, Relaxed);
    let enqueued: i64 = producing.join_all().await.into_iter().sum();
    let completed = async || {
        let counts = here.roster().counts().await;
        counts.into_iter().map(|of| of.answer.unwrap().of(JobState::Completed)).sum::<i64>()
    };
    eventually("all have run", async || completed().await >= enqueued).await;
    assert_eq!((completed().await, db.count("select count(*) from public.effect").await), (enqueued, enqueued));
    assert!(enqueued > 100 && moves >= 2, "{enqueued} jobs, {moves} moves");
    running.stop().await;
    db.finish().await;
}

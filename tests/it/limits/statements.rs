//! The claim under limits, on connections of our own: what it takes, what it waits for, and what it says.

use std::time::Duration;

use queue_core::{Store, operate};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tests::{
    TestDb,
    protocol::{register, settle_leases, silence},
};
use uuid::Uuid;

const CLAIM: &str = include_str!("../../../queue-worker/sql/claim_limited.sql");

/// What a claim took, and what it said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) token: Uuid,
    pub(super) ids: Vec<i64>,
    pub(super) closed: Option<String>,
    pub(super) wait_ms: Option<f64>,
    within_ms: Option<i64>,
    pub(super) floors: Option<Vec<i64>>,
}

pub(super) async fn connect(url: &str) -> PgConnection {
    let mut on = PgConnection::connect(url).await.unwrap();
    on.execute("set synchronous_commit = off; set lock_timeout = '1s'; set enable_seqscan = off").await.unwrap();
    on
}

/// Up to `most` jobs of the type `t` in the queues named, under these limits.
pub(super) async fn claim(
    on: &mut PgConnection,
    worker: Uuid,
    limits: &[&str],
    queues: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<Said> {
    claim_with(on, worker, (limits, queues, most), freed, (0, None)).await
}

/// The same of a worker that needs so many ms until they begin, and knows from where on to read permits.
pub(super) async fn claim_with(
    on: &mut PgConnection,
    worker: Uuid,
    (limits, queues, most): (&[&str], &[&str], i32),
    freed: &[Uuid],
    (slack, floors): (i64, Option<&[i64]>),
) -> sqlx::Result<Said> {
    let token = Uuid::new_v4();
    let gates: Vec<i64> =
        sqlx::query_scalar("select queue.hash(n) from unnest($1::text[]) n order by 1").bind(limits).fetch_all(&mut *on).await?;
    let lanes: Vec<i64> =
        sqlx::query_scalar("select queue.lane_id(q, 't', 100, false) from unnest($1::text[]) q").bind(queues).fetch_all(&mut *on).await?;
    let rows = sqlx::query(Store::default().sql(CLAIM))
        .bind(token)
        .bind(worker)
        .bind(gates)
        .bind(&lanes)
        .bind(vec![0_i64; lanes.len()])
        .bind(vec![false; lanes.len()])
        .bind(vec![most; lanes.len()])
        .bind(most)
        .bind(freed)
        .bind(slack)
        .bind(floors)
        .fetch_all(on)
        .await?;
    let mut said = Said { token, ids: Vec::new(), closed: None, wait_ms: None, within_ms: None, floors: None };
    for row in rows {
        if let Some(id) = row.get::<Option<i64>, _>("id") {
            said.ids.push(id);
        } else {
            (said.closed, said.wait_ms, said.within_ms) = (row.get("closed"), row.get("wait_ms"), row.get("within_ms"));
            said.floors = row.get("permit_floors");
        }
    }
    Ok(said)
}

/// One job under the limit of its type, of a worker that needs so many ms until it begins.
async fn claim_within(on: &mut PgConnection, worker: Uuid, slack: i64) -> Said {
    claim_with(on, worker, (&["type:t"], &["default"], 1), &[], (slack, None)).await.unwrap()
}

/// A database with so many jobs of the type `t`, and a worker that knows every limit set so far and later.
pub(super) async fn with(jobs: i32) -> (TestDb, PgConnection, Uuid) {
    let db = TestDb::new().await;
    let mut on = connect(&db.url).await;
    sqlx::query("select queue.enqueue('t', '{}') from generate_series(1, $1)").bind(jobs).execute(&mut on).await.unwrap();
    let worker = register(&mut on).await.unwrap();
    knows(&mut on, worker).await;
    (db, on, worker)
}

async fn knows(on: &mut PgConnection, worker: Uuid) {
    sqlx::query("update queue.worker set paused_seen = 9223372036854775807 where id = $1").bind(worker).execute(on).await.unwrap();
}

pub(super) async fn run(on: &mut PgConnection, statement: &'static str) {
    on.execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

async fn held(db: &TestDb) -> i64 {
    db.count("select coalesce(sum(n), 0)::bigint from queue.permit").await
}

pub(super) async fn refused(on: &mut PgConnection, statement: &'static str) -> String {
    let error = on.execute(statement).await.unwrap_err();
    error
        .as_database_error()
        .and_then(|error| error.constraint().or(error.code().as_deref().map(|_| "none")))
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn a_claim_takes_no_more_than_there_are_permits_and_one_that_waits_sees_what_the_first_took() {
    let (db, mut one, worker) = with(10).await;
    let mut two = connect(&db.url).await;
    run(&mut one, "select queue.set_limit('type:t', 3)").await;
    let mut open = one.begin().await.unwrap();
    let first = claim(&mut open, worker, &["type:t"], &["default"], 2, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed), (2, None));
    let error = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("55P03"), "it waits for the first one");
    open.commit().await.unwrap();
    let second = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap();
    assert_eq!((second.ids.len(), second.closed.as_deref(), second.wait_ms), (1, Some("full"), None));
    assert!(first.ids.iter().all(|id| *id < second.ids[0]), "in the order of their places");
    assert_eq!(held(&db).await, 3);
    assert_eq!(db.count("select count(*) from queue.lease where lane is not null and attempts[1] = 1").await, 2);
    // Permits come back with the leases, whoever says so: who ended jobs at once, others within a second.
    settle_leases(&mut one, &[first.token]).await.unwrap();
    let third = claim(&mut two, worker, &["type:t"], &["default"], 5, &[first.token]).await.unwrap();
    assert_eq!((third.ids.len(), held(&db).await), (2, 3));
    let part = "with cut as (update queue.lease set ids = ids[1:1], attempts = attempts[1:1], crashes = crashes[1:1] where cardinality(ids) = 2 returning 1)
        insert into queue.ready (lane, seq, id) select l.lane, l.ids[2], l.ids[2] from queue.lease l, cut where cardinality(l.ids) = 2";
    run(&mut one, part).await;
    let none = claim(&mut two, worker, &["type:t"], &["default"], 5, &[first.token]).await.unwrap();
    assert_eq!(none.ids.len(), 0, "nobody has said so yet");
    run(&mut one, "update queue.gate set read_at = '-infinity'").await;
    let fourth = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap();
    assert_eq!((fourth.ids.len(), held(&db).await), (1, 3));
    db.finish().await;
}

#[tokio::test]
async fn only_a_living_worker_takes_jobs_and_of_its_lanes_only() {
    let (db, mut on, worker) = with(3).await;
    run(&mut on, "select queue.enqueue('t', '{}', '{\"queue\": \"other\"}')").await;
    run(&mut on, "select queue.set_limit('type:t', 9)").await;
    let none = claim(&mut on, Uuid::new_v4(), &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(none.ids.is_empty() && held(&db).await == 0 && db.count("select count(*) from queue.lease").await == 0);
    let some = claim(&mut on, worker, &["type:t"], &["other"], 9, &[]).await.unwrap();
    assert_eq!(some.ids.len(), 1);
    silence(&mut on, worker).await.unwrap();
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(none.ids.is_empty());
    db.finish().await;
}

#[tokio::test]
async fn a_new_limit_waits_until_every_living_worker_knows_it_and_counts_in_what_runs() {
    let (db, mut on, worker) = with(9).await;
    let lease = tests::protocol::claim(&mut on, worker, 4).await.unwrap();
    assert_eq!(lease.ids().len(), 4);
    let other = register(&mut on).await.unwrap();
    run(&mut on, "select queue.set_limit('type:t', 5)").await;
    let awaits = async || operate::limits(&db.pool, Store::default()).await.unwrap()[0].awaits;
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref(), awaits().await), (0, Some("unknown"), 1));
    knows(&mut on, other).await;
    let one = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((one.ids.len(), one.closed.as_deref(), awaits().await), (1, Some("full"), 0));
    let found = operate::limits(&db.pool, Store::default()).await.unwrap();
    assert_eq!((found[0].name.as_str(), found[0].used, found[0].waiting, found[0].by_operator), ("type:t", 5, 4, true));
    // Other figures are no other lanes: nobody is waited for.
    register(&mut on).await.unwrap();
    run(&mut on, "select queue.set_limit('type:t', 6)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap().ids.len(), 1);
    run(&mut on, "select queue.unset_limit('type:t')").await;
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((none.closed.as_deref(), held(&db).await), (Some("gone"), 0));
    db.finish().await;
}

#[tokio::test]
async fn of_several_limits_every_one_must_have_room() {
    let (db, mut on, worker) = with(9).await;
    run(&mut on, "select queue.set_limit('type:t', 5), queue.set_limit('queue:default', 2), queue.set_limit('queue:other', 1)").await;
    let both = ["type:t", "queue:default"];
    let some = claim(&mut on, worker, &both, &["default"], 9, &[]).await.unwrap();
    assert_eq!((some.ids.len(), some.closed.as_deref()), (2, Some("full")));
    assert_eq!(db.count("select count(*) from queue.gate where wanted").await, 1, "only the one that has no permit is wanted");
    run(&mut on, "select queue.enqueue('t', '{}', '{\"queue\": \"other\"}') from generate_series(1, 3)").await;
    let other = claim(&mut on, worker, &["type:t", "queue:other"], &["other"], 9, &[]).await.unwrap();
    assert_eq!((other.ids.len(), held(&db).await), (1, 6));
    db.finish().await;
}

#[tokio::test]
async fn who_found_no_permit_is_told_of_one_that_nobody_else_needs() {
    let (db, mut on, worker) = with(2).await;
    let mut listener = db.listen("wake").await;
    run(&mut on, "select queue.set_limit('shared', 2), queue.set_limit('type:t', 9)").await;
    let first = claim(&mut on, worker, &["shared", "type:t"], &["default"], 2, &[]).await.unwrap();
    run(&mut on, "select queue.enqueue('t', '{}', '{\"queue\": \"other\"}')").await;
    let none = claim(&mut on, worker, &["shared"], &["other"], 2, &[]).await.unwrap();
    assert_eq!((first.ids.len(), none.ids.len()), (2, 0));
    settle_leases(&mut on, &[first.token]).await.unwrap();
    claim(&mut on, worker, &["shared", "type:t"], &["default"], 2, &[first.token]).await.unwrap();
    claim(&mut on, worker, &["shared", "type:t"], &["default"], 2, &[first.token]).await.unwrap();
    let gate = db.count("select queue.hash('shared')").await;
    let mut told = 0;
    while let Ok(Ok(one)) = tokio::time::timeout(Duration::from_millis(500), listener.recv()).await {
        told += i32::from(one.payload() == format!("!room {gate}"));
    }
    assert_eq!(told, 1, "once");
    db.finish().await;
}

#[tokio::test]
async fn no_window_has_more_starts_than_its_rate_nor_a_short_one_more_than_its_burst() {
    let (db, mut on, worker) = with(30).await;
    run(&mut on, "select queue.set_limit('type:t', null, 6, '600 ms', 2)").await;
    let (mut taken, began) = (0, std::time::Instant::now());
    while taken < 20 {
        let said = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
        assert_eq!((said.closed.as_deref(), said.within_ms), (Some("rate"), Some(10)));
        taken += said.ids.len();
        // Not a moment before it says so is there another one.
        let wait = said.wait_ms.unwrap();
        tokio::time::sleep(Duration::from_secs_f64(wait.max(0.0) / 1000.0) + Duration::from_millis(1)).await;
    }
    eprintln!("20 starts of 6 in 600 ms took {:?}", began.elapsed());
    let most = "select max(n)::bigint from (select sum(n) over (order by at_ms range between 599 preceding and current row) as n from queue.rate) w";
    assert!(db.count(most).await <= 6);
    let most = "select max(n)::bigint from (select sum(n) over (order by at_ms range between 199 preceding and current row) as n from queue.rate) w";
    assert!(db.count(most).await <= 2);
    db.finish().await;
}

#[tokio::test]
async fn a_start_is_counted_no_earlier_than_it_may_be_and_the_later_the_longer_its_worker_needs() {
    let (db, mut on, worker) = with(4).await;
    // Times are noted to the thousandth of the window, which is 3.6 seconds.
    run(&mut on, "select queue.set_limit('type:t', null, 100, '1 h')").await;
    for (slack, counted) in [(0, 250), (2000, 2000)] {
        let before = db.count("select queue.clock_ms()").await;
        let said = claim_within(&mut on, worker, slack).await;
        assert_eq!((said.ids.len(), said.within_ms), (1, Some(counted)));
        let latest = db.count("select max(at_ms) from queue.rate").await;
        assert!((before + counted..before + counted + 8000).contains(&latest), "{latest} of {before}");
        run(&mut on, "delete from queue.rate").await;
    }
    // Without a rate there is no such time.
    run(&mut on, "select queue.set_limit('type:t', 9)").await;
    assert_eq!(claim_within(&mut on, worker, 2000).await.within_ms, None);
    db.finish().await;
}

#[tokio::test]
async fn a_limit_that_was_slowed_down_lets_nothing_begin_until_then_and_never_sooner_than_said_before() {
    let (db, mut on, worker) = with(3).await;
    run(&mut on, "select queue.set_limit('type:t', 3), queue.set_limit('other', 3)").await;
    let slow = Store::default().sql(include_str!("../../../queue-worker/sql/slow_down.sql"));
    for ms in [60_000.0, 10.0] {
        let gates = vec![db.count("select queue.hash('type:t')").await];
        sqlx::query(slow).bind(gates).bind(ms).execute(&mut on).await.unwrap();
    }
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(none.ids.is_empty() && none.closed.as_deref() == Some("rate") && none.wait_ms.unwrap() > 30_000.0, "{none:?}");
    assert_eq!(claim(&mut on, worker, &["other"], &["default"], 9, &[]).await.unwrap().ids.len(), 3);
    db.finish().await;
}

#[tokio::test]
async fn limits_are_checked_and_become_visible_in_the_order_of_their_numbers() {
    let (db, mut on, _) = with(0).await;
    for (statement, constraint) in [
        ("select queue.set_limit('a b', 1)", "bound_name_is_a_name"),
        ("select queue.set_limit('x', -1)", "bound_concurrency_in_range"),
        ("select queue.set_limit('x', null, 0, '1 s')", "bound_rate_in_range"),
        ("select queue.set_limit('x', null, 1, '10 ms')", "bound_rate_in_range"),
        ("select queue.set_limit('x', null, 1)", "bound_rate_is_whole"),
        ("select queue.set_limit('x', null, 3, '1 s', 4)", "bound_burst_in_range"),
        ("select queue.set_limit('x', 1, reason => repeat('x', 1001))", "bound_reason_is_short"),
        ("insert into queue.gate (gate) values (1), (1)", "gate_pkey"),
        (
            "insert into queue.permit (gate, place, token, n) select 1, 1, '00000000-0000-0000-0000-000000000000', 1 from generate_series(1, 2)",
            "permit_pkey",
        ),
        ("insert into queue.rate (gate, at_ms, n) values (1, 1, 1), (1, 1, 1)", "rate_pkey"),
        ("insert into queue.bound_type values ('t', 'x'), ('t', 'x')", "bound_type_pkey"),
        ("insert into queue.bound (name, by_operator, number, revision) values ('x', true, 1, 1), ('x', true, 1, 1)", "bound_pkey"),
    ] {
        assert_eq!(refused(&mut on, statement).await, constraint, "{statement}");
    }
    let mut other = connect(&db.url).await;
    let mut open = on.begin().await.unwrap();
    open.execute("select queue.set_limit('x', 1)").await.unwrap();
    other.execute("set lock_timeout = 0").await.unwrap();
    let waits = tokio::time::timeout(Duration::from_secs(1), other.execute("select queue.pause('mail')")).await;
    assert!(waits.is_err(), "whoever comes later waits, but not for ever");
    drop(other);
    open.commit().await.unwrap();
    let mut listener = db.listen("wake").await;
    for statement in ["select queue.set_limit('x', 2)", "select queue.unset_limit('x')"] {
        on.execute(statement).await.unwrap();
        let told = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await.unwrap().unwrap();
        assert_eq!(told.payload(), "!control", "{statement}");
    }
    assert_eq!(db.count("select count(*) from queue.gate").await, 0, "nothing is left of it");
    db.finish().await;
}

#[tokio::test]
async fn starts_are_forgotten_once_no_window_reaches_back_to_them() {
    let (db, mut on, worker) = with(3).await;
    run(&mut on, "select queue.set_limit('type:t', null, 100, '1 h')").await;
    claim(&mut on, worker, &["type:t"], &["default"], 3, &[]).await.unwrap();
    let prune = include_str!("../../../queue-worker/sql/prune_rates.sql");
    sqlx::query(Store::default().sql(prune)).execute(&mut on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.rate").await, 1);
    run(&mut on, "update queue.rate set at_ms = at_ms - 3607000").await;
    sqlx::query(Store::default().sql(prune)).execute(&mut on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.rate").await, 0);
    db.finish().await;
}

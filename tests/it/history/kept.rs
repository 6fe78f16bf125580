//! Tests that statistics are stored once, despite repeated writes, concurrent roll-ups and kills.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{
    TestDb,
    tallies::{self, Tally},
};
use uuid::Uuid;

use super::{apart, check_totals, together, write_tallies};

const MINUTE: Duration = Duration::from_mins(1);

/// Connects with a statement timeout, so that a statement that waits forever fails.
async fn connect(db: &TestDb) -> PgConnection {
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    on.execute("set statement_timeout = '20s'").await.unwrap();
    on
}

async fn completed(db: &TestDb) -> u64 {
    together(db).await.map_or(0, |sum| sum.completed)
}

#[tokio::test]
async fn statistics_sent_twice_under_a_number_are_written_once_even_after_aggregation() {
    let db = TestDb::new().await;
    let (mut on, source) = (connect(&db).await, Uuid::new_v4());
    let tallies = [Tally::one("a"), Tally::one("b")];
    assert_eq!(tallies::write(&mut on, (source, 1), 60.0, &tallies).await.unwrap(), 2);
    assert_eq!(tallies::write(&mut on, (source, 1), 61.0, &tallies).await.unwrap(), 0, "the answer was lost");
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (2, 0));
    assert_eq!(tallies::write(&mut on, (source, 1), 90.0, &tallies).await.unwrap(), 0, "its rows are gone, and it is not counted again");
    assert_eq!(tallies::write(&mut on, (source, 2), 60.0, &tallies[..1]).await.unwrap(), 1, "the next number");
    assert_eq!(tallies::write(&mut on, (Uuid::new_v4(), 1), 60.0, &tallies[..1]).await.unwrap(), 1, "another process");
    assert_eq!(completed(&db).await, 4);
    tallies::roll_up(&mut on, 100).await.unwrap();
    assert_eq!((completed(&db).await, db.count("select count(*) from queue.tallied").await), (4, 0));
    check_totals(&db, 4).await;
    db.finish().await;
}

#[tokio::test]
async fn statistics_that_arrive_after_their_minute_was_aggregated_are_counted_once_in_it() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for ago in [1, 1, 3, 50, 2, 55] {
        write_tallies(&mut on, ago * MINUTE, &[Tally::one("a")]).await;
        tallies::roll_up(&mut on, 100).await.unwrap();
    }
    check_totals(&db, 6).await;
    let past = queue_core::operate::HistoryRange { step: Some(MINUTE), ..queue_core::operate::HistoryRange::default() };
    let steps = queue_core::Queue::new(&db.pool).history(&past).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.completed).collect::<Vec<_>>(), [1, 1, 1, 1, 2], "{steps:?}");
    db.finish().await;
}

#[tokio::test]
async fn recent_statistics_wait_for_others_of_their_minute_and_are_already_readable() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    write_tallies(&mut on, Duration::from_secs(5), &[Tally::one("a")]).await;
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (0, 0));
    assert_eq!((completed(&db).await, apart(&db, MINUTE).await.len()), (1, 1));
    write_tallies(&mut on, MINUTE, &[Tally::one("a")]).await;
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (2, 0));
    assert_eq!(completed(&db).await, 2);
    db.finish().await;
}

#[tokio::test]
async fn totals_are_written_in_the_order_of_their_names_so_that_housekeepers_do_not_deadlock() {
    const IN_ORDER: &str = "
      select (array_agg(t.ctid order by t.ctid) = array_agg(t.ctid order by t.step, t.queue, t.job_type, t.at))::int::int8
      from queue.tally_total t";
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let queues: Vec<String> = (0..200).map(|nth| format!("q{}", nth * 79 % 200)).collect();
    let tallies: Vec<Tally<'_>> = queues.iter().map(|queue| Tally::one(queue)).collect();
    write_tallies(&mut on, 2 * MINUTE, &tallies).await;
    assert_eq!(tallies::roll_up(&mut on, 1000).await.unwrap(), (200, 0));
    assert_eq!(db.count("select count(*) from queue.tally_total").await, 4 * 201);
    assert_eq!(db.count(IN_ORDER).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn concurrent_housekeepers_aggregate_everything_once() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let queues: Vec<String> = (0..20).map(|nth| format!("q{nth}")).collect();
    for minute in 1..=30 {
        let tallies: Vec<Tally<'_>> = queues.iter().map(|queue| Tally::one(queue)).collect();
        write_tallies(&mut on, minute * MINUTE, &tallies).await;
    }
    let keepers = (0..6).map(|_| {
        let url = db.url.clone();
        tokio::spawn(async move {
            let mut on = PgConnection::connect(&url).await.unwrap();
            let mut added = 0;
            for _ in 0..40 {
                let (some, refused) = tallies::roll_up(&mut on, 25).await.unwrap();
                assert_eq!(refused, 0, "no session waits for a second");
                added += some;
            }
            added
        })
    });
    let mut added = 0;
    for keeper in keepers.collect::<Vec<_>>() {
        added += keeper.await.unwrap();
    }
    assert_eq!((added, db.count("select count(*) from queue.tallied").await), (600, 0));
    check_totals(&db, 600).await;
    db.finish().await;
}

#[tokio::test]
async fn a_killed_housekeeper_has_changed_nothing_and_another_skips_its_locked_rows() {
    let db = TestDb::new().await;
    let (mut on, mut killed) = (connect(&db).await, connect(&db).await);
    write_tallies(&mut on, MINUTE, &[Tally::one("a"), Tally::one("b")]).await;
    killed.execute("begin").await.unwrap();
    assert_eq!(tallies::roll_up(&mut killed, 1).await.unwrap(), (1, 0));
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (0, 1), "what is left shares totals with it, and is tried again");
    assert_eq!(completed(&db).await, 2, "and is seen");
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut killed).await.unwrap();
    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&mut on).await.unwrap();
    tests::eventually("it can be added up", async || tallies::roll_up(&mut connect(&db).await, 100).await.unwrap() == (0, 0)).await;
    check_totals(&db, 2).await;
    assert_eq!(completed(&db).await, 2);
    db.finish().await;
}

#[tokio::test]
async fn locked_totals_stop_no_others() {
    let db = TestDb::new().await;
    let (mut on, mut open) = (connect(&db).await, connect(&db).await);
    write_tallies(&mut on, 2 * MINUTE, &[Tally::one("a"), Tally::one("b")]).await;
    tallies::roll_up(&mut on, 100).await.unwrap();
    write_tallies(&mut on, 2 * MINUTE, &[Tally::one("a"), Tally::one("b"), Tally::one("c")]).await;
    open.execute("begin; select from queue.tally_total where queue = 'b' for update").await.unwrap();
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (2, 1));
    assert_eq!(completed(&db).await, 5, "what waits is read from where it is");
    open.execute("rollback").await.unwrap();
    assert_eq!(tallies::roll_up(&mut on, 100).await.unwrap(), (1, 0));
    check_totals(&db, 5).await;
    db.finish().await;
}

#[tokio::test]
async fn a_bounded_number_of_queues_a_day_have_names_and_the_others_share_one() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let queues: Vec<String> = (0..1200).map(|nth| format!("q{nth:04}")).collect();
    for some in queues.chunks(100) {
        let tallies: Vec<Tally<'_>> = some.iter().map(|queue| Tally::one(queue)).collect();
        write_tallies(&mut on, MINUTE, &tallies).await;
        tallies::roll_up(&mut on, 1000).await.unwrap();
    }
    let named = "select count(distinct queue) from queue.tally_total where step = 86400 and queue <> '' and queue <> '*'";
    assert_eq!(db.count(named).await, 500);
    assert_eq!(db.count("select sum(completed)::bigint from queue.tally_total where step = 60 and queue = '*'").await, 700);
    check_totals(&db, 1200).await;
    write_tallies(&mut on, MINUTE, &[Tally::one("q0000"), Tally::one("q1199")]).await;
    tallies::roll_up(&mut on, 1000).await.unwrap();
    assert_eq!(
        db.count("select sum(completed)::bigint from queue.tally_total where step = 60 and queue = 'q0000'").await,
        2,
        "it has its name"
    );
    assert_eq!(db.count("select sum(completed)::bigint from queue.tally_total where step = 3600 and queue = '*'").await, 701);
    db.finish().await;
}

#[tokio::test]
async fn totals_are_retained_for_as_long_as_their_resolution_is_read() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let row = "insert into queue.tally_total
        select s.step, now() - $1 * interval '1 hour', 'a', 'do', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1 from unnest('{10,60,3600,86400}'::int[]) s (step)";
    for hours in [0.5, 1.5, 24.0, 26.0, 24.0 * 30.0, 24.0 * 31.5, 24.0 * 33.0] {
        sqlx::query(row).bind(hours).execute(&mut on).await.unwrap();
    }
    write_tallies(&mut on, MINUTE, &[Tally::one("a")]).await;
    on.execute("insert into queue.tally_source values (gen_random_uuid(), 1, now() - interval '25 hours')").await.unwrap();
    let mut open = connect(&db).await;
    open.execute("begin; select from queue.tally_total where step = 10 and at > now() - interval '2 hours' and at < now() - interval '1 hour' for update")
        .await
        .unwrap();
    assert_eq!(tallies::prune_totals(&mut on, 2).await.unwrap(), 2);
    while tallies::prune_totals(&mut on, 2).await.unwrap() > 0 {}
    let left: Vec<(i32, i64)> =
        sqlx::query_as("select step, count(*) from queue.tally_total group by 1 order by 1").fetch_all(&mut on).await.unwrap();
    assert_eq!(left, [(10, 2), (60, 3), (3600, 5), (86400, 6)], "one of ten seconds is locked");
    open.execute("rollback").await.unwrap();
    assert_eq!(tallies::prune_totals(&mut on, 2).await.unwrap(), 1);
    assert_eq!(db.count("select count(*) from queue.tally_source").await, 1, "a process that has spoken may speak again");
    db.finish().await;
}

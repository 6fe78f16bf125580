//! Tests statistics queries, with time steps and as one total, for all or some queues and types. Also tests the corresponding SQL
//! functions.

use std::time::Duration;

use queue_core::{
    Queue,
    operate::{AttemptStatistics, Histogram, HistoryRange},
};
use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb,
    tallies::{self, Tally},
};

use super::{apart, together, write_tallies};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

async fn read(db: &TestDb, past: HistoryRange) -> Vec<AttemptStatistics> {
    Queue::new(&db.pool).history(&past).await.unwrap()
}

/// Creates two days of statistics: two types in one queue, one type in a second queue, and occasional counts in a third queue.
async fn fill(db: &TestDb) {
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for hours in 0..48 {
        let (a, b) = (Tally { completed: 10, ..Tally::one("a") }, Tally { job_type: "other", completed: 5, ..Tally::one("a") });
        let tallies = [a, b, Tally { completed: 2, ..Tally::one("b") }, Tally { completed: 1, ..Tally::one("rare") }];
        write_tallies(&mut on, hours * HOUR + MINUTE, if hours % 8 == 0 { &tallies } else { &tallies[..3] }).await;
    }
    while tallies::roll_up(&mut on, 50).await.unwrap().0 > 0 {}
}

#[tokio::test]
async fn history_is_read_for_all_or_some_together_or_separately() {
    let db = TestDb::new().await;
    fill(&db).await;
    let (day, of) = (HOUR * 24, |text: &str| Some(text.to_owned()));
    let sum = |figures: &[AttemptStatistics]| figures.iter().map(|one| one.completed).sum::<u64>();
    let whole = read(&db, HistoryRange { last: day, ..HistoryRange::default() }).await;
    assert_eq!((whole.len(), whole[0].completed), (1, 24 * 17 + 3));
    assert_eq!((whole[0].queue.clone(), whole[0].left_out), (None, 0));
    let lasted = whole[0].lasted;
    assert!(lasted >= day && lasted <= day + MINUTE, "{lasted:?}");
    assert!((whole[0].rate() - 411.0 / lasted.as_secs_f64()).abs() < 1e-9);

    let queue = read(&db, HistoryRange { last: day, queue: of("a"), ..HistoryRange::default() }).await;
    assert_eq!((sum(&queue), queue[0].queue.clone(), queue[0].job_type.clone()), (24 * 15, of("a"), None));
    let job_type = read(&db, HistoryRange { last: day, job_type: of("do"), ..HistoryRange::default() }).await;
    assert_eq!(sum(&job_type), 24 * 12 + 3);
    let both = read(&db, HistoryRange { last: day, queue: of("a"), job_type: of("other"), ..HistoryRange::default() }).await;
    assert_eq!(sum(&both), 24 * 5);
    assert!(read(&db, HistoryRange { queue: of("none"), ..HistoryRange::default() }).await.is_empty());

    let each = read(&db, HistoryRange { last: day, apart: true, ..HistoryRange::default() }).await;
    let of_each: Vec<(Option<&str>, Option<&str>, u64)> =
        each.iter().map(|one| (one.queue.as_deref(), one.job_type.as_deref(), one.completed)).collect();
    let expected = [("a", "do", 240), ("a", "other", 120), ("b", "do", 48), ("rare", "do", 3)];
    assert_eq!(of_each, expected.map(|(queue, job_type, jobs)| (Some(queue), Some(job_type), jobs)));
    db.finish().await;
}

#[tokio::test]
async fn steps_have_the_requested_length_and_lose_nothing() {
    let db = TestDb::new().await;
    fill(&db).await;
    for (last, step, jobs) in [(48, 1, 48 * 17 + 6), (48, 5, 48 * 17 + 6), (47, 24, 47 * 17 + 6), (1, 1, 18), (24 * 365, 24, 48 * 17 + 6)] {
        let steps = read(&db, HistoryRange { last: HOUR * last, step: Some(HOUR * step), ..HistoryRange::default() }).await;
        let sum: u64 = steps.iter().map(|one| one.completed).sum();
        // Each step begins at a multiple of its length, so the first step may begin before the requested time.
        assert!((jobs..=jobs + 17 * u64::from(step)).contains(&sum), "{last} h by {step} h: {sum}");
        for one in &steps {
            assert_eq!(one.at.timestamp() % (3600 * i64::from(step)), 0, "{one:?}");
            assert!(one.lasted <= HOUR * step);
        }
        assert!(steps.is_sorted_by_key(|one| one.at));
    }
    let short = read(&db, HistoryRange { last: HOUR * 24, step: Some(Duration::from_secs(1)), ..HistoryRange::default() }).await;
    assert!(short.iter().all(|one| one.lasted <= MINUTE && one.at.timestamp() % 60 == 0), "a minute is the least");
    assert_eq!(short.iter().map(|one| one.completed).sum::<u64>(), 24 * 17 + 3);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn at_most_two_thousand_rows_are_read_and_omitted_ones_are_reported() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let queues: Vec<String> = (0..300).map(|nth| format!("q{nth:03}")).collect();
    for minute in 1..=30 {
        let tallies: Vec<Tally<'_>> =
            queues.iter().enumerate().map(|(nth, queue)| Tally { completed: 300 - nth as i64, ..Tally::one(queue) }).collect();
        write_tallies(&mut on, minute * MINUTE, &tallies).await;
        while tallies::roll_up(&mut on, 5000).await.unwrap().0 > 0 {}
    }
    let steps = read(&db, HistoryRange { step: Some(MINUTE), apart: true, ..HistoryRange::default() }).await;
    assert!(steps.len() <= 2000 && steps.len() >= 30 * 30, "{}", steps.len());
    let named: std::collections::BTreeSet<&str> = steps.iter().filter_map(|one| one.queue.as_deref()).collect();
    assert_eq!(named.len() + steps[0].left_out as usize, 300);
    assert!(named.contains("q000") && !named.contains("q299"), "the busiest are there");
    assert_eq!(steps.iter().filter(|one| one.queue.as_deref() == Some("q000")).count(), 30, "in each step");
    let long = read(&db, HistoryRange { last: HOUR * 24, step: Some(HOUR / 2), apart: true, ..HistoryRange::default() }).await;
    let named: std::collections::BTreeSet<&str> = long.iter().filter_map(|one| one.queue.as_deref()).collect();
    assert_eq!((named.len(), long[0].left_out), (13, 287), "a day of a queue is 1,440 rows of totals");
    assert_eq!(apart(&db, HOUR).await.len(), 300);
    let fine = read(&db, HistoryRange { last: HOUR * 24 * 30, step: Some(Duration::from_secs(10)), ..HistoryRange::default() }).await;
    assert!(fine.len() <= 2000);
    assert_eq!(fine.iter().map(|one| one.completed).sum::<u64>(), 30 * 300 * 301 / 2);
    db.finish().await;
}

#[tokio::test]
async fn sql_returns_the_same_including_its_quantiles() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut ran = Histogram::default();
    for ms in (0..4000).map(|nth: u64| nth * nth) {
        ran.record(Duration::from_millis(ms));
    }
    ran.record(Duration::from_hours(30));
    let packed = ran.packed();
    write_tallies(&mut on, MINUTE, &[Tally { histogram: &packed, ..Tally::one("a") }]).await;
    write_tallies(&mut on, MINUTE, &[Tally { histogram: &packed, ..Tally::one("b") }]).await;
    tallies::roll_up(&mut on, 100).await.unwrap();
    let mut twice = ran;
    twice.add(&ran);
    assert_eq!(together(&db).await.unwrap().run, twice);
    let (completed, run): (i64, Vec<i64>) = sqlx::query_as("select completed, run from queue.history()").fetch_one(&mut on).await.unwrap();
    assert_eq!((completed, run), (2, twice.buckets().iter().map(|jobs| *jobs as i64).collect()));
    for share in [0.0, 0.001, 0.1, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0] {
        let found: Option<f64> =
            sqlx::query_scalar("select queue.quantile(run, $1) from queue.history()").bind(share).fetch_one(&mut on).await.unwrap();
        let (found, ours) = (found.unwrap(), twice.quantile(share).unwrap().as_secs_f64() * 1000.0);
        assert!((found - ours).abs() <= ours * 1e-6 + 1e-6, "{share}: {found} and {ours}");
    }
    let none: Option<f64> = sqlx::query_scalar("select queue.quantile('{0,0}', 0.5)").fetch_one(&mut on).await.unwrap();
    assert_eq!(none, None);
    for wrong in ["queue.history(interval '0')", "queue.history(null)", "queue.history(step => interval '-1 s')"] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(format!("select * from {wrong}"))).execute(&mut on).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("22023"), "{wrong}");
    }
    db.finish().await;
}

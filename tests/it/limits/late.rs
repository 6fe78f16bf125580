//! How long it takes from the end of a job to the begin of the next that waited for its permit.

use std::time::Duration;

use queue_core::{Job as _, Limit};
use tests::{TestDb, within};

use super::{SharedOne, SharedTwo, fresh, set, worker};

/// How often a permit is handed on.
const TIMES: i64 = 300;

const ENDED: &str = "select count(*) from effect_span where ended is not null";

/// Prints how long after the end of the job before it each job of this type began; returns the 99th of 100, in ms. A permit is given back some time
/// after that end: once it is on the disk.
async fn late(db: &TestDb, job_type: &str, by: &str) -> f64 {
    let all = "select extract(epoch from s.began - s.before)::float8 * 1000
        from (select job_type, began, lag(ended) over (order by began) as before from effect_span) s
        where s.before is not null and s.job_type = $1 order by 1";
    let all: Vec<f64> = sqlx::query_scalar(all).bind(job_type).fetch_all(&db.pool).await.unwrap();
    let at = |share: usize| all[(all.len() - 1) * share / 100];
    println!("{by}: {} permits, the next start after p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", all.len(), at(50), at(99), at(100));
    assert!(at(0) >= 0.0, "one at a time");
    at(99)
}

/// `cargo test -p tests --test it limits::late -- --ignored --nocapture`, on a machine that is idle.
#[tokio::test]
#[ignore = "by hand: measures, and wants a machine for itself"]
async fn of_100_permits_that_are_freed_99_lead_to_the_next_start_within_20_ms() {
    let db = fresh().await;
    set(&db, "shared", Limit::new().concurrency(1)).await;
    let patience = Duration::from_mins(2);
    let both = db.run_while(worker(&db).queue("two", 5), async {
        for n in 0..TIMES {
            SharedOne { ms: 20 }.enqueue(&db.pool).queue("one").await.unwrap();
            within(patience, "one of them runs", async || db.count("select count(*) from effect_span").await > 2 * n).await;
            SharedTwo { ms: 0 }.enqueue(&db.pool).queue("two").await.unwrap();
            within(patience, "both have ended", async || db.count(ENDED).await == 2 * n + 2).await;
        }
    });
    db.run_while(worker(&db).queue("one", 5), both).await;
    let others = late(&db, "shared_two", "of another worker").await;
    sqlx::raw_sql("truncate effect_span").execute(&db.pool).await.unwrap();
    SharedOne::enqueue_all((0..TIMES).map(|_| SharedOne { ms: 5 }), &db.pool).await.unwrap();
    db.run_while(worker(&db), within(patience, "all", async || db.count(ENDED).await == TIMES)).await;
    let own = late(&db, "shared_one", "of its own").await;
    assert!(others <= 20.0 && own <= 20.0, "{others} and {own} ms");
    db.finish().await;
}

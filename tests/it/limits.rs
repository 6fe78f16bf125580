//! Limits: no more run at once, or begin in a time, than a limit says, whatever becomes of workers; and what there is room for begins at once.

mod ahead;
mod among;
mod apart;
mod attacks;
mod behind;
mod beside;
mod floors;
mod key_claims;
mod key_costs;
mod key_edges;
mod key_rates;
mod keys;
mod late;
mod rates;
mod settings;
mod statements;
mod suspects;
mod takes;
mod turned;
mod turns;

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobResult, Limit, Store, job, operate};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::TestDb;

/// Writes when it begins and ends, by the database's clock.
#[job(limit(concurrency = 3), backoff = fixed("50ms"), aliases = ["limited_before"])]
#[derive(Serialize, Deserialize)]
struct Limited {
    ms: u64,
}

impl Handler for Limited {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, self.ms).await
    }
}

/// Two types under one limit of their names.
#[job(limit(name = "shared", concurrency = 2))]
#[derive(Serialize, Deserialize)]
struct SharedOne {
    ms: u64,
}

#[job(limit(name = "shared"), limit(concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct SharedTwo {
    ms: u64,
}

/// Without any limit in its code.
#[job(backoff = fixed("50ms"))]
#[derive(Serialize, Deserialize)]
struct Unlimited {
    ms: u64,
}

impl Handler for SharedOne {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, self.ms).await
    }
}

impl Handler for SharedTwo {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, self.ms).await
    }
}

impl Handler for Unlimited {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, self.ms).await
    }
}

/// The span of one attempt.
async fn span(cx: &Context, ms: u64) -> JobResult {
    span_of(cx, cx.job_type(), ms).await
}

/// The same, of whatever is counted.
async fn span_of(cx: &Context, what: &str, ms: u64) -> JobResult {
    // When it began, not when the database came to hear of it.
    let now = chrono::Utc::now();
    let begun = "insert into effect_span (job, job_type, began) values ($1, $2, $3) returning n";
    let n: i64 = sqlx::query_scalar(begun).bind(cx.id().to_string().parse::<i64>()?).bind(what).bind(now).fetch_one(cx.pool()).await?;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    sqlx::query("update effect_span set ended = clock_timestamp() where n = $1").bind(n).execute(cx.pool()).await?;
    Ok(())
}

async fn fresh() -> TestDb {
    let db = TestDb::new().await;
    sqlx::raw_sql(
        "create table effect_span (n bigint generated always as identity, job bigint not null, job_type text not null,
           began timestamptz not null default clock_timestamp(), ended timestamptz)",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    db
}

/// The most that ran at once of these types, among those that ended.
async fn most_at_once(db: &TestDb, types: &[&str]) -> i64 {
    sqlx::query_scalar(
        "select coalesce(max(n), 0) from (
           select sum(e.step) over (order by e.at, e.step) as n from (
             select began as at, 1 as step from effect_span where job_type = any ($1)
             union all select coalesce(ended, 'infinity'), -1 from effect_span where job_type = any ($1)) e) s",
    )
    .bind(types)
    .fetch_one(&db.pool)
    .await
    .unwrap()
}

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone())
        .register::<Limited>()
        .register::<SharedOne>()
        .register::<SharedTwo>()
        .register::<Unlimited>()
        .lease_ttl(Duration::from_secs(5))
        .grace(Duration::from_secs(2))
}

async fn set(db: &TestDb, name: &str, limit: Limit) {
    operate::set_limit(&db.pool, Store::default(), name, limit, None).await.unwrap();
}

/// Every row of `permit` is of a lease, and counts no less than that lists under the limit.
async fn held_equals_the_leases(db: &TestDb) {
    let wrong = "select count(*) from queue.permit h full join (
        select b.gate, l.token, count(*) as n from queue.lease l cross join unnest(l.ids) u (id) join queue.job j on j.id = u.id
        join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d on true
        join queue.bound_in_force b on queue.covers(b.name, d.queue, d.job_type) group by 1, 2
      ) l on l.gate = h.gate and l.token = h.token where l.n is not null and h.n is distinct from greatest(h.n, l.n)";
    assert_eq!(db.count(wrong).await, 0, "a lease that holds permits is missing in held");
}

#[tokio::test]
async fn no_more_run_at_once_than_the_limit_of_their_type_and_all_run() {
    let db = fresh().await;
    for _ in 0..40 {
        Limited { ms: 20 }.enqueue(&db.pool).await.unwrap();
        Unlimited { ms: 20 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db), worker(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    assert_eq!(most_at_once(&db, &["limited"]).await, 3);
    assert!(most_at_once(&db, &["unlimited"]).await > 3);
    assert_eq!(db.count("select count(*) from effect_span").await, 80);
    held_equals_the_leases(&db).await;
    db.finish().await;
}

//! Tests limits. A limit bounds the number of jobs that run concurrently or that start within a window, even if workers crash. Jobs within
//! the limit start immediately.

mod ahead;
mod apart;
mod attacks;
mod behind;
mod beside;
mod claim_steps;
mod floors;
mod key_claims;
mod key_costs;
mod key_edges;
mod keys;
mod rates;
mod settings;
mod statements;
mod quarantined;
mod turned;
mod turns;

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobResult, Queue, job, options::Limit};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

/// Defines job types that record when each attempt begins and ends.
macro_rules! spans {
    ($($(#[$attribute:meta])* $name:ident;)*) => {$(
        $(#[$attribute])*
        #[derive(Serialize, Deserialize)]
        struct $name {
            ms: u64,
        }

        impl Handler for $name {
            async fn run(self, cx: &Context) -> JobResult {
                span(cx, self.ms).await
            }
        }
    )*};
}

spans! {
    #[job(limit(concurrency = 3), backoff = fixed("50ms"), aliases = ["limited_before"])]
    Limited;
    /// First of two job types that share a limit by name.
    #[job(limit(name = "shared", concurrency = 2))]
    SharedOne;
    #[job(limit(name = "shared"), limit(concurrency = 1))]
    SharedTwo;
    /// Job type without a limit in its code.
    #[job(backoff = fixed("50ms"))]
    Unlimited;
}

/// Duration of a job that runs until the table `go` exists.
const UNTIL_GO: u64 = u64::MAX;

/// Records the span of one attempt under the name of the job type.
async fn span(cx: &Context, ms: u64) -> JobResult {
    span_of(cx, cx.job_type(), ms).await
}

/// Records the span of one attempt under the name `what`.
async fn span_of(cx: &Context, what: &str, ms: u64) -> JobResult {
    // The start time is taken from the clock of the test process, because the insert may be delayed.
    let now = chrono::Utc::now();
    let begun = "insert into effect_span (job, job_type, began) values ($1, $2, $3) returning n";
    let n: i64 = sqlx::query_scalar(begun).bind(cx.id()).bind(what).bind(now).fetch_one(cx.pool()).await?;
    if ms == UNTIL_GO {
        while !sqlx::query_scalar::<_, bool>("select to_regclass('go') is not null").fetch_one(cx.pool()).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    } else {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    sqlx::query("update effect_span set ended = clock_timestamp() where n = $1").bind(n).execute(cx.pool()).await?;
    Ok(())
}

/// Creates a database with a table for spans. The view `span` adds the queue, priority, ordering key and fair key of each job.
async fn fresh() -> TestDb {
    let db = TestDb::new().await;
    db.run(
        "create table effect_span (n bigint generated always as identity, job bigint not null, job_type text not null,
           began timestamptz not null default clock_timestamp(), ended timestamptz);
         create view span as select s.*, l.queue, l.priority, j.key, j.fair_id from effect_span s join queue.job j on j.id = s.job
           join lateral (select d.queue, d.priority from queue.lane d where d.lane = j.lane limit 1) l on true",
    )
    .await;
    db
}

const BEGUN: &str = "select count(*) from effect_span";
const ENDED: &str = "select count(*) from effect_span where ended is not null";

/// Returns a query for the number of spans that match `of`.
fn begun(of: &str) -> String {
    format!("select count(*) from span where {of}")
}

/// Returns the maximum number of concurrent spans that match `of`.
async fn most_at_once(db: &TestDb, of: &str) -> i64 {
    let most = format!(
        "select coalesce(max(n), 0) from (select sum(e.step) over (order by e.at, e.step) as n from (
           select began as at, 1 as step from span where {of} union all select coalesce(ended, 'infinity'), -1 from span where {of}) e) s"
    );
    db.count(&most).await
}

/// Returns the maximum number of spans that began within `ms` milliseconds of each other and have the same value of the expression `each`.
async fn most_within(db: &TestDb, each: &str, ms: u64) -> i64 {
    let most = format!(
        "select coalesce(max(n), 0) from (select count(*) over (partition by {each} order by began
           range between interval '{ms} ms' - interval '1 us' preceding and current row) as n from span) w"
    );
    db.count(&most).await
}

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<Limited>().register::<SharedOne>().register::<SharedTwo>().register::<Unlimited>()
}

/// Returns a worker that has this number of slots and claims up to two jobs at a time.
fn narrow(db: &TestDb, slots: usize) -> Worker {
    let mut config = Config::default();
    (config.concurrency, config.batch) = (slots, 2);
    worker(db).config(config)
}

async fn set(db: &TestDb, name: &str, limit: Limit) {
    Queue::new(&db.pool).set_limit(name, limit, None).await.unwrap();
}

/// Replaces the claim functions so that the sequence `claims` counts the claims under limits.
async fn count_claims(db: &TestDb) {
    let counted = "create sequence public.claims; create schema counted;
        do $do$ declare f record; begin
          for f in select p.oid, p.proname::text as name, p.pronargs, pg_get_function_identity_arguments(p.oid) as identity,
              pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
            from pg_proc p where p.pronamespace = 'queue'::regnamespace and p.proname in ('claim_limited', 'claim_keyed') loop
            execute format('alter function queue.%I(%s) set schema counted', f.name, f.identity);
            execute format('create function queue.%I(%s) returns %s language plpgsql as $f$ begin
              perform nextval(''public.claims''); return query select * from counted.%I(%s); end $f$', f.name, f.arguments, f.result, f.name,
              (select string_agg('$' || n, ', ' order by n) from generate_series(1, f.pronargs) n));
          end loop;
        end $do$";
    db.run(counted).await;
}

/// Query for the number of claims under limits.
const CLAIMS: &str = "select case when is_called then last_value else 0 end from claims";

/// Checks that each lease with jobs under a limit has a row in `permit`, and that the row counts at least these jobs.
async fn held_equals_the_leases(db: &TestDb) {
    let wrong = "select count(*) from queue.permit h full join (
        select b.limit_id, l.token, count(*) as n from queue.lease l cross join unnest(l.ids) u (id) join queue.job j on j.id = u.id
        join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d on true
        join queue.bound_in_force b on queue.covers(b.name, d.queue, d.job_type) group by 1, 2
      ) l on l.limit_id = h.limit_id and l.token = h.token where l.n is not null and h.n is distinct from greatest(h.n, l.n)";
    assert_eq!(db.count(wrong).await, 0, "a lease that holds permits is missing in held");
}

/// Tests four limits: the limit of one type, the limit that two types share by name, an additional limit of one of the two types, and the
/// limit of a queue, which only one worker declares. Each limit is used fully and is never exceeded.
#[tokio::test]
async fn each_limit_is_used_fully_and_never_exceeded_and_all_jobs_run() {
    let db = fresh().await;
    let ms = UNTIL_GO;
    let (one, two) = (worker(&db).limit("render", Limit::queue().concurrency(2)), worker(&db));
    let test = async {
        // Wait for the limit, because jobs that begin before it is published may exceed it.
        eventually("the limit in code is published", async || {
            db.count("select count(*) from queue.bound where name = 'queue:render'").await > 0
        })
        .await;
        for n in 0..10 {
            for queue in ["default", "render"] {
                Limited { ms }.enqueue(&db.pool).queue(queue).await.unwrap();
                Unlimited { ms }.enqueue(&db.pool).queue(queue).await.unwrap();
            }
            SharedOne { ms }.enqueue(&db.pool).queue(if n % 2 == 0 { "a" } else { "b" }).await.unwrap();
            SharedTwo { ms }.enqueue(&db.pool).await.unwrap();
        }
        let limits = [("job_type = 'limited'", 3), ("job_type like 'shared%'", 2), ("job_type = 'shared_two'", 1), ("queue = 'render'", 2)];
        let others = "job_type = 'unlimited' and queue = 'default'";
        db.run_while(two, async {
            for (of, most) in [limits[0], limits[1], limits[3], (others, 10)] {
                db.until_count(&begun(of), most).await;
            }
            db.run("create table go ()").await;
            db.until_count("select count(*) from queue.jobs where state <> 'completed'", 0).await;
        })
        .await;
        for (of, most) in limits {
            assert!(most_at_once(&db, of).await <= most, "{of}");
        }
    };
    db.run_while(one, Box::pin(test)).await;
    assert_eq!(db.count(BEGUN).await, 60, "each once");
    held_equals_the_leases(&db).await;
    db.finish().await;
}

/// Each released permit leads to the next start without a poll. A start that waited for a poll would take a second.
#[tokio::test]
async fn a_released_permit_leads_to_the_next_start_in_every_worker_also_by_key() {
    const JOBS: u64 = 100;
    for (name, limit) in [("of all", Limit::new().concurrency(1)), ("by key", Limit::new().concurrency(1).keyed())] {
        let db = fresh().await;
        set(&db, "type:limited", limit).await;
        set(&db, "type:unlimited", Limit::new().concurrency(9)).await;
        db.run_while(
            worker(&db).queue("one", 4),
            db.run_while(worker(&db).queue("two", 4), async {
                for n in 0..JOBS {
                    let queue = if n % 3 == 0 { "one" } else { "two" };
                    Limited { ms: 0 }.enqueue(&db.pool).queue(queue).fair("k").await.unwrap();
                }
                db.until_count(ENDED, JOBS.cast_signed()).await;
            }),
        )
        .await;
        assert_eq!(most_at_once(&db, "true").await, 1, "{name}");
        db.finish().await;
    }
}

//! What goes wrong under one limit stops nothing else; and what is ready under a limit is found, however it came to be so.

use std::time::{Duration, Instant};

use queue_core::{Context, Failure, Handler, Job as _, JobResult, JobState, job};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{TestDb, eventually, within};

use super::{Limited, Unlimited, fresh, span, turns::narrow, worker};

/// How long jobs without a limit take, one after the other, for so long.
async fn free_jobs(db: &TestDb, time: Duration) -> Vec<Duration> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let asked = Instant::now();
        let free = Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(free, JobState::Completed).await;
        took.push(asked.elapsed());
    }
    took.sort();
    eprintln!("{} jobs: median {:?}, worst {:?}", took.len(), took[took.len() / 2], took[took.len() - 1]);
    took
}

#[tokio::test]
#[ignore = "deep"]
async fn claims_that_fail_under_one_limit_stop_nothing_else() {
    let db = fresh().await;
    let mut quiet = Vec::new();
    db.run_while(worker(&db), async { quiet = free_jobs(&db, Duration::from_secs(2)).await }).await;
    // As a full disk or a broken page would have it, of this limit alone.
    db.pool.execute("alter table queue.permit add constraint broken check (gate <> queue.hash('type:limited'))").await.unwrap();
    db.run_while(worker(&db), async {
        let waits = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        let took = free_jobs(&db, Duration::from_secs(6)).await;
        let most = Duration::from_millis(400) + 4 * quiet[quiet.len() / 2];
        assert!(took[took.len() / 2] < most, "jobs without a limit wait, too: {took:?}, and without the fault {quiet:?}");
        assert_eq!(db.state(waits).await, Some(JobState::Ready));
        db.pool.execute("alter table queue.permit drop constraint broken").await.unwrap();
        db.until(waits, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// Is told to slow down at its first attempt.
#[job(name = "limits_refused", send_only, limit(concurrency = 5))]
#[derive(Serialize, Deserialize)]
struct Refused;

impl Handler for Refused {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 1000).await?;
        Err(Failure::slow_down(Duration::from_secs(30), "429"))
    }
}

/// The limit of those that are refused waits.
const TOLD: &str = "select count(*) from queue.gate where gate = queue.hash('type:limits_refused') and not_before > now() + interval '5 s'";

/// Nobody can say so: each try is counted, and fails.
const UNTELLABLE: &str = "create sequence tries;
    create function refuse() returns trigger language plpgsql as $$ begin perform nextval('public.tries'); raise exception 'not now'; end $$;
    create trigger refuse before update of not_before on queue.gate for each row execute function refuse()";
const TRIES: &str = "select case when is_called then last_value else 0 end from tries";

#[tokio::test]
#[ignore = "deep"]
async fn a_claim_on_its_way_when_a_handler_was_told_to_slow_down_begins_nothing() {
    const WAITS: &str = "select count(*) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and application_name = 'queue-worker limits'";
    let db = fresh().await;
    db.pool.execute(UNTELLABLE).await.unwrap();
    let mut holder = PgConnection::connect(&db.url).await.unwrap();
    db.run_while(worker(&db).register::<Refused>(), async {
        let refused = Refused.enqueue(&db.pool).await.unwrap().id();
        eventually("it runs", async || db.count("select count(*) from effect_span").await == 1).await;
        let mut open = holder.begin().await.unwrap();
        open.execute("select from queue.gate where gate = queue.hash('type:limits_refused') for update").await.unwrap();
        for _ in 0..4 {
            Refused.enqueue(&db.pool).await.unwrap();
        }
        eventually("a claim waits for the limit", async || db.count(WAITS).await > 0).await;
        db.until(refused, JobState::Scheduled).await;
        open.rollback().await.unwrap();
        eventually("somebody tries to say so", async || db.count(TRIES).await > 2).await;
        assert_eq!(db.count("select count(*) from effect_span").await, 1, "what it took goes back");
        assert_eq!(db.count("select count(*) from queue.jobs where state = 'ready' and attempts > 0").await, 0, "uncharged");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_limit_that_cannot_be_told_to_slow_down_is_left_alone_by_the_worker_that_knows() {
    let db = fresh().await;
    db.pool.execute(UNTELLABLE).await.unwrap();
    db.run_while(worker(&db).register::<Refused>(), async {
        Refused.enqueue(&db.pool).await.unwrap();
        eventually("somebody tries to say so", async || db.count(TRIES).await > 0).await;
        for _ in 0..4 {
            Refused.enqueue(&db.pool).await.unwrap();
        }
        eventually("and tries again", async || db.count(TRIES).await > 3).await;
        assert_eq!(db.count("select count(*) from effect_span").await, 1, "none begins under a limit that is to wait");
        db.pool.execute("drop trigger refuse on queue.gate").await.unwrap();
        within(Duration::from_secs(8), "it is told", async || db.count(TOLD).await == 1).await;
        assert_eq!(db.count("select count(*) from effect_span").await, 1);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn what_comes_due_is_made_ready_while_all_slots_of_a_worker_with_limits_are_taken() {
    let db = fresh().await;
    db.run_while(narrow(&db, 1).grace(Duration::from_millis(100)), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await > 0).await;
        Unlimited { ms: 600_000 }.enqueue(&db.pool).await.unwrap();
        eventually("it runs", async || db.count("select count(*) from effect_span").await == 2).await;
        // When the next ones are due is known only to who looks.
        let mut later = Vec::new();
        for n in 1..=4 {
            later.push(Unlimited { ms: 0 }.enqueue(&db.pool).after(Duration::from_millis(400 * n)).await.unwrap().id());
        }
        for job in later {
            within(Duration::from_secs(8), "it is ready", async || db.state(job).await == Some(JobState::Ready)).await;
        }
        assert_eq!(db.count("select count(*) from effect_span").await, 2, "the slot was taken all the time");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn what_is_committed_late_under_a_limit_is_found_at_once_by_a_worker_that_sleeps() {
    let db = fresh().await;
    let mut worst = Duration::ZERO;
    db.run_while(worker(&db).poll_interval(Duration::from_millis(20)), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await > 0).await;
        for _ in 0..8 {
            let mut tx = db.pool.begin().await.unwrap();
            let late = Limited { ms: 0 }.enqueue(&mut tx).await.unwrap().id();
            let above = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
            db.until(above, JobState::Completed).await;
            // It looks, finds nothing, and rests.
            tokio::time::sleep(Duration::from_millis(150)).await;
            tx.commit().await.unwrap();
            let committed = Instant::now();
            db.until(late, JobState::Completed).await;
            worst = worst.max(committed.elapsed());
        }
    })
    .await;
    eprintln!("committed late: found within {worst:?}");
    assert!(worst < Duration::from_secs(3), "one waited for {worst:?}");
    db.finish().await;
}

/// Takes turns under a limit, and fails at first.
#[job(name = "limits_fair_retried", send_only, fair = self.tenant, limit(concurrency = 5), max_attempts = 12, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
struct FairRetried {
    tenant: u32,
}

impl Handler for FairRetried {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 0).await?;
        if cx.attempt() < 12 { Err("again".into()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn retries_of_jobs_that_take_turns_under_a_limit_begin_as_soon_as_others() {
    let db = fresh().await;
    db.run_until_idle(worker(&db).register::<FairRetried>()).await;
    let job = FairRetried { tenant: 1 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(worker(&db).register::<FairRetried>(), db.until(job, JobState::Completed)).await;
    let gaps =
        "select (extract(epoch from began - lag(ended) over (order by n)) * 1000)::float8 as ms from effect_span order by 1 nulls last";
    let gaps: Vec<f64> = sqlx::query_scalar::<_, Option<f64>>(gaps).fetch_all(&db.pool).await.unwrap().into_iter().flatten().collect();
    eprintln!("from a failure to the retry, due after 20 ms: median {:.0} ms, worst {:.0} ms", gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    // Who waits for a look of somebody else waits for a second and more.
    assert!(gaps[gaps.len() / 4] < 250.0 && gaps[gaps.len() / 2] < 400.0, "{gaps:?}");
    db.finish().await;
}

//! Limits by key: no more of one key than the limit says, whatever the others do, and what waits for one key delays no other.

use std::time::{Duration, Instant};

use queue_core::{Context, Failure, Handler, Job as _, JobResult, JobState, Limit, Store, job, operate};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{Act, Do, TestDb, WorkerProcess, eventually, within};

use super::{fresh, held_equals_the_leases, most_at_once, span_of};

/// Two types that share a limit by account.
#[job(limit(name = "account", key = self.account, concurrency = 2), backoff = fixed("20ms"), max_attempts = 20)]
#[derive(Serialize, Deserialize)]
pub(super) struct OfAccount {
    pub(super) account: u32,
    pub(super) ms: u64,
    /// How often it fails, is put off, or panics first.
    pub(super) fails: u32,
}

#[job(limit(name = "account", key = self.of))]
#[derive(Serialize, Deserialize)]
struct AlsoOfAccount {
    of: u32,
    ms: u64,
}

/// Ten starts in half a second of each key.
#[job(limit(key = self.key, rate = "6/600ms", burst = 3))]
#[derive(Serialize, Deserialize)]
struct RatedByKey {
    key: String,
}

impl Handler for OfAccount {
    async fn run(self, cx: &Context) -> JobResult {
        span_of(cx, &format!("account {}", self.account), self.ms).await?;
        let job: i64 = cx.id().to_string().parse()?;
        let tries: i64 = sqlx::query_scalar("select count(*) from effect_span where job = $1").bind(job).fetch_one(cx.pool()).await?;
        match (tries > i64::from(self.fails), tries % 3) {
            (true, _) => Ok(()),
            (false, 0) => Err(Failure::snooze(Duration::from_millis(20))),
            (false, 1) => Err(Failure::retry_in(Duration::from_millis(10), "again")),
            (false, _) => panic!("in the middle of it"),
        }
    }
}

impl Handler for AlsoOfAccount {
    async fn run(self, cx: &Context) -> JobResult {
        span_of(cx, &format!("account {}", self.of), self.ms).await
    }
}

impl Handler for RatedByKey {
    async fn run(self, cx: &Context) -> JobResult {
        span_of(cx, &self.key, 0).await
    }
}

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone())
        .register::<OfAccount>()
        .register::<AlsoOfAccount>()
        .register::<RatedByKey>()
        .lease_ttl(Duration::from_secs(5))
        .grace(Duration::from_secs(2))
}

async fn most_of_account(db: &TestDb, account: u32) -> i64 {
    most_at_once(db, &[&format!("account {account}")]).await
}

#[tokio::test]
#[ignore = "deep"]
async fn no_more_of_a_key_run_at_once_than_the_limit_and_keys_do_not_wait_for_each_other() {
    let db = fresh().await;
    for n in 0..60 {
        OfAccount { account: n % 5, ms: 20, fails: n % 4 }.enqueue(&db.pool).await.unwrap();
        AlsoOfAccount { of: n % 5, ms: 20 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db), worker(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    for account in 0..5 {
        assert_eq!(most_of_account(&db, account).await, 2, "of account {account}");
    }
    assert!(most_at_once(&db, &["account 0", "account 1", "account 2", "account 3", "account 4"]).await > 4);
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed'").await, 120);
    assert_eq!(db.count("select count(*) from effect_span").await, 60 + 15 * (1 + 2 + 3 + 4), "each attempt once");
    held_equals_the_leases(&db).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_window_has_more_starts_of_a_key_than_its_rate_and_none_is_wasted() {
    let db = fresh().await;
    for n in 0..48 {
        RatedByKey { key: format!("key {}", n % 3) }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db), worker(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    for (ms, most) in [(600, 6), (300, 3)] {
        // By the handlers' own times: they are those of this machine's clock, as the database's are.
        let over = format!(
            "select max(n) from (select count(*) over (partition by job_type order by began
               range between interval '{ms} ms' - interval '1 us' preceding and current row) as n from effect_span) w"
        );
        let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(over)).fetch_one(&db.pool).await.unwrap();
        assert!(found <= most, "{found} of a key in {ms} ms");
    }
    assert_eq!(db.count("select count(*) from effect_span").await, 48);
    let took = "select (extract(epoch from max(began) - min(began)) * 1000)::bigint from effect_span";
    eprintln!("16 starts of each of three keys at 6/600ms took {} ms", db.count(took).await);
    db.finish().await;
}

/// How long jobs of an account of their own take, one after the other.
async fn waits_of_another(db: &TestDb) -> Vec<Duration> {
    let mut waits = Vec::new();
    for n in 0..30 {
        // Those that arrive while the worker is asleep, and while it is awake.
        tokio::time::sleep(Duration::from_millis(n % 3 * 40)).await;
        let asked = Instant::now();
        let job = OfAccount { account: 2, ms: 0, fails: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(job, JobState::Completed).await;
        waits.push(asked.elapsed());
    }
    waits.sort_unstable();
    waits
}

#[tokio::test]
#[ignore = "deep"]
async fn a_key_whose_jobs_stand_still_delays_no_other_and_an_operator_lets_more_of_it_run() {
    let db = fresh().await;
    db.run_while(worker(&db), async {
        let quiet = waits_of_another(&db).await[15];
        for _ in 0..40 {
            OfAccount { account: 1, ms: 600_000, fails: 0 }.enqueue(&db.pool).await.unwrap();
        }
        eventually("two of them run", async || db.count("select count(*) from effect_span where job_type = 'account 1'").await == 2).await;
        let waits = waits_of_another(&db).await;
        eprintln!("beside a key without room the next one took {:?} p50, {:?} at worst, {quiet:?} without it", waits[15], waits[29]);
        let most = Duration::from_millis(400) + 4 * quiet;
        assert!(waits[15] < most, "not when it is looked for anyway: {waits:?}, and {quiet:?} without it");
        for (concurrency, run) in [(Some(5), 5), (Some(1), 5), (None, 5), (Some(7), 7)] {
            operate::set_limit_key(&db.pool, Store::default(), "account", "1", concurrency).await.unwrap();
            within(Duration::from_secs(5), "as many run as are let", async || {
                db.count("select count(*) from effect_span where job_type = 'account 1'").await == run
            })
            .await;
        }
        let keys = operate::limit_keys(&db.pool, Store::default(), "account").await.unwrap();
        let first = &keys[0];
        assert_eq!((first.key.as_deref(), first.concurrency, first.used, first.waiting), (Some("1"), Some(7), 7, 33), "{keys:?}");
        let all = operate::limits(&db.pool, Store::default()).await.unwrap();
        assert!(all.iter().any(|limit| limit.name == "account" && limit.keyed && limit.used == 7), "{all:?}");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_of_which_something_was_said_is_shown_while_nothing_waits() {
    let db = TestDb::new().await;
    operate::set_limit_key(&db.pool, Store::default(), "account", "1", Some(3)).await.unwrap();
    let keys = operate::limit_keys(&db.pool, Store::default(), "account").await.unwrap();
    let shown: Vec<_> = keys.iter().map(|key| (key.key.as_deref(), key.concurrency, key.used, key.waiting, key.partial)).collect();
    assert_eq!(shown, [(Some("1"), Some(3), 0, 0, false)]);
    db.finish().await;
}

fn start(url: &str) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), url, &[])
}

#[tokio::test]
#[ignore = "deep"]
async fn what_killed_and_stopped_workers_hold_of_a_key_counts_until_it_is_recovered_and_other_keys_go_on() {
    let db = TestDb::new().await;
    set_by_key(&db, "type:do", 1).await;
    let (killed, stopped) = (start(&db.url), start(&db.url));
    let hang = || Do { act: Act::First(Box::new(Act::Hang), Box::new(Act::Ok(String::new()))) };
    for (key, count) in [("a", 1), ("b", 2)] {
        hang().enqueue(&db.pool).fair(key).await.unwrap();
        eventually("it runs", async || db.count("select count(*) from effect").await == count).await;
    }
    let mut next = Vec::new();
    for key in ["a", "b"] {
        next.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).fair(key).await.unwrap().id());
    }
    let other = start(&db.url);
    eventually("all live", async || db.count("select count(*) from queue.worker").await == 3).await;
    killed.signal("KILL");
    stopped.signal("STOP");
    for _ in 0..5 {
        let free = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).fair("c").await.unwrap().id();
        within(Duration::from_secs(10), "others go on", async || db.state(free).await == Some(JobState::Completed)).await;
        for job in &next {
            assert_eq!(db.state(*job).await, Some(JobState::Ready), "its permit is held, and others did not wait for it");
        }
    }
    db.expire_worker(&killed).await;
    db.expire_worker(&stopped).await;
    within(Duration::from_secs(15), "the next of both keys run", async || {
        db.state(next[0]).await == Some(JobState::Completed) && db.state(next[1]).await == Some(JobState::Completed)
    })
    .await;
    stopped.signal("CONT");
    within(Duration::from_secs(20), "the first ones, too", async || {
        db.count("select count(*) from queue.jobs where state <> 'completed'").await == 0
    })
    .await;
    drop((stopped, other));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_permit_of_a_key_that_is_freed_in_another_queue_leads_to_the_next_start_at_once() {
    let db = fresh().await;
    let serves = |queue: &str| worker(&db).queue(queue, 4);
    db.run_while(
        serves("one"),
        db.run_while(serves("two"), async {
            for n in 0..60 {
                let queue = if n % 2 == 0 { "one" } else { "two" };
                AlsoOfAccount { of: 7, ms: 5 }.enqueue(&db.pool).queue(queue).await.unwrap();
            }
            eventually("all have run", async || db.count("select count(*) from effect_span where ended is not null").await == 60).await;
        }),
    )
    .await;
    let waits = "select coalesce(max(gap), 0)::bigint from (
        select extract(epoch from began - max(ended) over (order by began rows between unbounded preceding and 1 preceding)) * 1000 as gap
        from effect_span) g";
    eprintln!("the longest that nothing of the key ran: {} ms", db.count(waits).await);
    assert!(db.count(waits).await < 900, "somebody was told");
    assert_eq!(most_of_account(&db, 7).await, 2);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_key_with_room_is_found_behind_a_hundred_thousand_without_and_a_new_one_does_not_wait_for_that() {
    let db = fresh().await;
    let once = Limit::new().rate(1, Duration::from_hours(1)).keyed();
    operate::set_limit(&db.pool, Store::default(), "type:rated_by_key", once, None).await.unwrap();
    RatedByKey { key: "first".into() }.enqueue(&db.pool).await.unwrap();
    let begun = "with lane as (select queue.lane_id('default', 'rated_by_key', 100, false) as lane),
        fresh as materialized (select queue.next_id() as id, 'k' || n as key, queue.line_id('k' || n) as line from generate_series(1, 100000) n),
        jobs as (insert into queue.job (id, lane, max_attempts, payload, line)
          select id, lane, 3, jsonb_build_object('key', key), line from fresh cross join lane),
        rates as (insert into queue.rate (gate, line, at_ms, n, total)
          select queue.hash('type:rated_by_key'), line, queue.clock_ms(), 1, 1 from fresh)
        insert into queue.ready (lane, seq, id, line) select queue.twin_of(lane), queue.next_id(), id, line from fresh cross join lane";
    sqlx::raw_sql(begun).execute(&db.pool).await.unwrap();
    let ran = async |count| db.count("select count(*) from effect_span").await == count;
    db.run_while(worker(&db), async {
        let began = Instant::now();
        within(Duration::from_secs(90), "the first one runs", async || ran(1).await).await;
        let first = began.elapsed();
        let mut waits = Vec::new();
        for n in 0..9 {
            let asked = Instant::now();
            RatedByKey { key: format!("new {n}") }.enqueue(&db.pool).await.unwrap();
            within(Duration::from_secs(30), "a new one runs", async || ran(2 + n).await).await;
            waits.push(asked.elapsed());
        }
        waits.sort_unstable();
        eprintln!(
            "behind 100,000 keys one with room was found after {first:?}, new ones after {:?} p50, {:?} at worst",
            waits[4], waits[8]
        );
        assert!(waits[4] < Duration::from_secs(5), "{waits:?}");
    })
    .await;
    db.finish().await;
}

async fn set_by_key(db: &TestDb, name: &str, concurrency: u32) {
    operate::set_limit(&db.pool, Store::default(), name, Limit::new().concurrency(concurrency).keyed(), None).await.unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn suspects_whose_key_has_room_are_tried_beside_a_key_that_has_none_and_those_of_that_key_wait() {
    let db = TestDb::new().await;
    set_by_key(&db, "type:do", 1).await;
    db.run_while(db.worker(), async {
        Do { act: Act::Hang }.enqueue(&db.pool).fair("a").await.unwrap();
        eventually("it runs", async || db.count("select count(*) from effect").await == 1).await;
        let ok = || Do { act: Act::Ok(String::new()) };
        let (mut tx, mut ids) = (db.pool.begin().await.unwrap(), Vec::new());
        for key in ["a", "a", "b", "a"] {
            ids.push(ok().enqueue(&mut tx).fair(key).await.unwrap().id());
        }
        let suspected = "with taken as (delete from queue.ready returning id, seq)
            insert into queue.ready (lane, seq, id, crashes)
            select queue.meet_lane('default', 'do', 100::smallint, true), queue.next_id(), id, 1 from taken order by seq";
        sqlx::raw_sql(suspected).execute(&mut *tx).await.unwrap();
        sqlx::raw_sql("select queue.wake('default')").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        db.until(ids[2], JobState::Completed).await;
        for n in [0, 1, 3] {
            assert_eq!(db.state(ids[n]).await, Some(JobState::Ready), "its key has no room");
        }
        operate::set_limit_key(&db.pool, Store::default(), "type:do", "a", Some(4)).await.unwrap();
        for n in [0, 1, 3] {
            db.until(ids[n], JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

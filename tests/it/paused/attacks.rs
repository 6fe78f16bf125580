//! Tests pauses under load. Workers are killed or frozen, operators leave transactions uncommitted, and the server crashes.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Job as _, JobState, Queue, operate::Scope};
use sqlx::{Connection as _, PgPool};
use tests::{Marked, TestDb, WorkerProcess, eventually, server::TestServer, within};

use super::{announced, connect, enqueue, pause, pause_and_wait, quick, resume, stopped};

pub(super) fn start(url: &str, settings: &[(&str, &str)]) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), url, settings)
}

/// Enqueues `jobs` jobs in a queue. The handler of each job runs for `ms` milliseconds.
async fn fill(pool: &PgPool, queue: &str, jobs: usize, ms: u64) {
    Marked::enqueue_all((0..jobs).map(|_| Marked { ms }), pool).queue(queue).await.unwrap();
}

/// Counts the handlers that began between `from` and `until` for jobs of the queue.
async fn begun(pool: &PgPool, queue: &str, from: DateTime<Utc>, until: DateTime<Utc>) -> i64 {
    let query = "select count(*) from effect e join queue.job j on j.id = e.job join queue.lane l on l.lane = j.lane
      where l.queue = $1 and e.at >= $2 and e.at < $3";
    sqlx::query_scalar(query).bind(queue).bind(from).bind(until).fetch_one(pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn between_the_acknowledgements_and_the_end_of_a_pause_no_handler_begins_under_load() {
    let db = TestDb::new().await;
    let mail = Scope::queue("mail");
    let workers = [start(&db.url, &[("TTL_MS", "3000")]), start(&db.url, &[("TTL_MS", "3000"), ("CONCURRENCY", "3")])];
    announced(&db, 2).await;
    let mut spans = Vec::new();
    for round in 0..6 {
        fill(&db.pool, "mail", 1500, round % 3).await;
        fill(&db.pool, "other", 400, 1).await;
        let before = db.count("select count(*) from effect").await;
        eventually("they are at it", async || db.count("select count(*) from effect").await > before + 50).await;
        pause_and_wait(&db, &mail).await;
        let from = Utc::now();
        let others = async || begun(&db.pool, "other", from, Utc::now()).await;
        fill(&db.pool, "other", 200, 1).await;
        within(Duration::from_secs(30), "the other queue goes on", async || others().await >= 100).await;
        let mails = "select count(*) from queue.lease l cross join lateral unnest(l.ids) u (id) join queue.job j on j.id = u.id
          join queue.lane n on n.lane = j.lane where n.queue = 'mail'";
        within(Duration::from_secs(30), "what ran has ended, and the rest is back", async || db.count(mails).await == 0).await;
        let waiting = db.count("select count(*) from queue.ready r join queue.lane l on l.lane = r.lane where l.queue = 'mail'").await;
        let until = Utc::now();
        resume(&db, &mail).await;
        spans.push((from, until, waiting));
    }
    let all = async || db.count("select count(*) from queue.jobs where state = 'completed'").await;
    within(Duration::from_mins(2), "all are completed", async || all().await == 6 * 2100).await;
    for (from, until, waiting) in &spans {
        let (mails, others) = (begun(&db.pool, "mail", *from, *until).await, begun(&db.pool, "other", *from, *until).await);
        eprintln!("{:?} paused with {waiting} waiting: {mails} begun, {others} of the other queue", *until - *from);
        assert_eq!(mails, 0, "begun under a pause");
        assert!(others >= 100);
    }
    assert!(spans.iter().any(|span| span.2 > 0), "some were waiting");
    assert_eq!(db.count("select count(*) from effect where attempt <> 1").await, 0, "what went back was not charged");
    assert_eq!(db.count("select count(*) from effect").await, 6 * 2100, "each ran once");
    drop(workers);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_pause_outlives_its_workers_and_a_crash_of_the_server() {
    let server = TestServer::start().await.unwrap();
    let db = server.database("paused").await.unwrap();
    let (url, mail) = (server.url("paused"), Scope::queue("mail"));
    let worker = start(&url, &[("TTL_MS", "2000")]);
    let announced = async || db.count("select count(*) from queue.worker").await.unwrap() == 1;
    within(Duration::from_secs(30), "it is announced", announced).await;
    Queue::new(&db.pool).pause_with_reason(&mail, Some("over a crash")).await.unwrap();
    let waiting = Marked { ms: 0 }.enqueue(&db.pool).queue("mail").await.unwrap();
    server.kill().unwrap();
    server.restart().await.unwrap();
    worker.kill();
    let worker = start(&url, &[("TTL_MS", "2000")]);
    let state = async |id: queue_core::JobId| {
        let state = sqlx::query_scalar::<_, String>("select state from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await;
        state.unwrap_or_default()
    };
    let mut other = None;
    within(Duration::from_secs(30), "the server takes jobs again", async || {
        other = Marked { ms: 0 }.enqueue(&db.pool).queue("other").await.ok();
        other.is_some()
    })
    .await;
    let other = other.unwrap().id();
    within(Duration::from_secs(30), "the other queue goes on", async || state(other).await == "completed").await;
    let alive = "select count(*) from queue.worker where expires_at > now() and paused_seen > 0";
    within(Duration::from_secs(30), "the new worker has acknowledged it", async || db.count(alive).await.unwrap_or(0) > 0).await;
    assert_eq!(state(waiting.id()).await, "ready");
    // After the server crash, the same worker reads the pauses again. The crash may have lost the worker's earlier acknowledgement.
    server.kill().unwrap();
    server.restart().await.unwrap();
    let paused = async || Queue::new(&db.pool).until_paused(&mail).await;
    let mut is_paused = false;
    within(Duration::from_secs(30), "it is paused still", async || {
        is_paused = paused().await.unwrap_or(false);
        is_paused
    })
    .await;
    let reason = Queue::new(&db.pool).pauses().await.unwrap()[0].reason.clone();
    assert_eq!((state(waiting.id()).await.as_str(), reason.as_deref()), ("ready", Some("over a crash")));
    assert!(Queue::new(&db.pool).resume(&mail).await.unwrap());
    within(Duration::from_secs(30), "it runs", async || state(waiting.id()).await == "completed").await;
    drop(worker);
}

#[tokio::test]
async fn an_uncommitted_pause_stops_no_job_and_is_acknowledged_by_no_worker() {
    let db = TestDb::new().await;
    let (mut on, mail, post) = (connect(&db).await, Scope::queue("mail"), Scope::queue("post"));
    db.run_while(db.worker(), async {
        announced(&db, 1).await;
        pause_and_wait(&db, &post).await;
        let mut open = on.begin().await.unwrap();
        let number = Queue::on(&mut open).pause(&mail).await.unwrap();
        // This notification makes workers read the pauses while the pause is still uncommitted. Cancellations send the same notification.
        sqlx::query("select queue.notify('wake', '!control')").execute(&db.pool).await.unwrap();
        for _ in 0..3 {
            let job = enqueue(&db, "mail", quick()).await;
            db.until(job, JobState::Completed).await;
        }
        let seen = db.count("select max(paused_seen) from queue.worker").await;
        assert!(seen > 0 && seen < number, "{seen} is vouched for beside {number}");
        open.commit().await.unwrap();
        stopped(&db, &mail).await;
        assert!(db.count("select max(paused_seen) from queue.worker").await >= number);
        let job = enqueue(&db, "mail", quick()).await;
        let other = enqueue(&db, "other", quick()).await;
        db.until(other, JobState::Completed).await;
        assert_eq!(db.state(job).await, Some(JobState::Ready));
        resume(&db, &mail).await;
        db.until(job, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_frozen_worker_is_waited_for_until_its_lease_ends_and_starts_nothing_when_it_continues() {
    let db = TestDb::new().await;
    let mail = Scope::queue("mail");
    let zombie = start(&db.url, &[("TTL_MS", "1500"), ("CONCURRENCY", "2")]);
    announced(&db, 1).await;
    // The quick jobs show that the jobs of this queue are short, so the worker claims many jobs in advance. By the time the worker is
    // frozen, slow jobs occupy its slots.
    fill(&db.pool, "mail", 400, 0).await;
    fill(&db.pool, "mail", 40, 300).await;
    let held = "select coalesce(sum(cardinality(ids)), 0)::bigint from queue.lease";
    within(Duration::from_secs(30), "it has jobs that wait for a slot", async || {
        db.count("select count(*) from effect").await >= 402 && db.count(held).await > 3
    })
    .await;
    zombie.signal("STOP");
    let queued = db.count(held).await;
    pause(&db, &mail).await;
    let alive = db.count("select count(*) from queue.worker where expires_at > clock_timestamp()").await;
    if alive == 1 {
        let awaited = Queue::new(&db.pool).pause_awaits(&mail).await.unwrap().unwrap();
        assert!(awaited.iter().all(|one| i64::from(one.pid) == i64::from(zombie.pid())), "it is named");
    }
    stopped(&db, &mail).await;
    assert_eq!(
        db.count("select count(*) from queue.worker where expires_at > clock_timestamp()").await,
        0,
        "only then is no worker waited for"
    );
    let from = Utc::now();
    zombie.signal("CONT");
    within(Duration::from_secs(30), "it is another worker now", async || {
        db.count("select count(*) from queue.worker where expires_at > now() and paused_seen > 0").await == 1
    })
    .await;
    within(Duration::from_secs(30), "its jobs are taken back", async || db.count(held).await == 0).await;
    let other = enqueue(&db, "other", quick()).await;
    within(Duration::from_secs(30), "it works", async || db.state(other).await == Some(JobState::Completed)).await;
    let mails = begun(&db.pool, "mail", from, Utc::now()).await;
    eprintln!("{queued} were in its lease when it stopped; {mails} began after it went on");
    assert_eq!(mails, 0);
    resume(&db, &mail).await;
    let done = async || db.count("select count(*) from queue.jobs where job_type = 'marked' and state = 'completed'").await;
    within(Duration::from_mins(1), "all are completed", async || done().await == 440).await;
    drop(zombie);
    db.finish().await;
}

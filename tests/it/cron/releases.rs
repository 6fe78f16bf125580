//! Tests schedules declared by workers: the newest of several releases decides, and a schedule that no worker declares is withdrawn.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, Queue, job, schedule::Schedule, testing};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{STORE, each_second, quick, sleeper};

/// Job type that declares its own schedule, with a queue and a priority.
#[job(cron = "30 4 * * MON-FRI", tz = "Europe/Berlin", queue = "reports", priority = 7)]
#[derive(Default, Serialize, Deserialize)]
struct Nightly {
    region: Option<String>,
}

impl Handler for Nightly {
    async fn run(self, cx: &Context) -> JobResult {
        assert_eq!(cx.tick().map(|tick| tick.schedule).as_deref(), Some("nightly"));
        Ok(())
    }
}

#[tokio::test]
async fn a_test_passes_a_tick_to_a_handler() {
    testing::run(Nightly::default()).tick("nightly", chrono::DateTime::UNIX_EPOCH).await.output();
}

/// Worker running in the background, and the handle that stops it.
struct Release {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<()>,
}

impl Release {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move { worker.run(async { drop(stopped.await) }).await.unwrap() };
        Self { stop, worker: tokio::spawn(run) }
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.worker.await.unwrap();
    }
}

fn release(db: &TestDb, expression: &str) -> Worker {
    sleeper(db).lease_ttl(Duration::from_millis(1500)).schedule("report", Schedule::cron(expression).job(&quick()))
}

async fn in_force(db: &TestDb, expression: &str) {
    eventually(&format!("{expression} is in force"), async || {
        let found = Queue::new(&db.pool).store(STORE()).schedules().await.unwrap();
        found.iter().any(|found| found.name == "report" && found.cron.as_deref() == Some(expression) && found.withdrawn_at.is_none())
    })
    .await;
}

#[tokio::test]
async fn a_job_type_declares_a_schedule_with_its_options() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db).register::<Nightly>(), async {
        let next = super::planned_later(&db, "nightly").await;
        let found = Queue::new(&db.pool).store(STORE()).schedule("nightly").find().await.unwrap();
        assert_eq!(
            (found.source.as_str(), found.cron.as_deref(), found.tz.as_str()),
            ("static", Some("30 4 * * MON-FRI"), "Europe/Berlin")
        );
        let berlin = "select to_char($1 at time zone 'Europe/Berlin', 'HH24:MI')";
        let shown: String = sqlx::query_scalar(berlin).bind(next).fetch_one(&db.pool).await.unwrap();
        assert_eq!(shown, "04:30");
        let job = Queue::new(&db.pool).store(STORE()).schedule("nightly").run_now().await.unwrap();
        db.until(job, queue_core::JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.jobs where queue = 'reports' and priority = 7").await, 1);
        let theirs = Queue::new(&db.pool).store(STORE()).schedule("nightly").delete().await.unwrap_err().to_string();
        assert!(theirs.contains("declared by workers"), "{theirs}");
        let theirs = Queue::new(&db.pool).store(STORE()).schedule("nightly").create(&each_second()).await.unwrap_err().to_string();
        assert!(theirs.contains("declared by workers"), "{theirs}");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn the_newest_release_that_lives_wins_and_an_older_one_that_starts_late_does_not() {
    let db = TestDb::new().await;
    let (old, new) = ("0 1 1 1 *", "0 2 1 1 *");
    let first = Release::start(release(&db, old));
    in_force(&db, old).await;
    Queue::new(&db.pool).store(STORE()).schedule("report").pause().await.unwrap();
    let second = Release::start(release(&db, new));
    in_force(&db, new).await;
    assert!(Queue::new(&db.pool).store(STORE()).schedule("report").find().await.unwrap().paused_at.is_some(), "a pause stays");
    // An autoscaler may start another worker of the old release during the deployment.
    let late = Release::start(release(&db, old));
    eventually("it has declared", async || db.count("select count(*) from queue.worker where cardinality(declares) = 1").await == 3).await;
    let changed = "select xmin::text::bigint from queue.schedule where name = 'report'";
    let (before, elected) = (db.count(changed).await, db.count("select count(*) from queue.declaration").await);
    assert_eq!(elected, 2);
    for _ in 0..3 {
        sqlx::query("select queue.elect_schedules()").execute(&db.pool).await.unwrap();
    }
    assert_eq!(db.count(changed).await, before, "nothing goes to and fro");
    in_force(&db, new).await;
    // Roll the deployment back, so that no worker of the new release is alive.
    second.end().await;
    in_force(&db, old).await;
    first.end().await;
    late.end().await;
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_that_no_living_worker_declares_is_withdrawn_and_returns_unchanged() {
    let db = TestDb::new().await;
    let declaring = Release::start(release(&db, "0 1 1 1 *"));
    in_force(&db, "0 1 1 1 *").await;
    let next = super::planned_later(&db, "report").await;
    Queue::new(&db.pool).store(STORE()).schedule("dynamic").create(&Schedule::cron("0 1 1 1 *").job(&quick())).await.unwrap();
    let other = Release::start(sleeper(&db).lease_ttl(Duration::from_millis(1500)));
    eventually("it lives", async || db.count("select count(*) from queue.worker").await == 2).await;
    declaring.end().await;
    eventually("it is withdrawn", async || {
        Queue::new(&db.pool).store(STORE()).schedule("report").find().await.unwrap().withdrawn_at.is_some()
    })
    .await;
    let found = Queue::new(&db.pool).store(STORE()).schedule("dynamic").find().await.unwrap();
    assert!(found.withdrawn_at.is_none(), "a dynamic schedule stays");
    let again = Release::start(release(&db, "0 1 1 1 *"));
    in_force(&db, "0 1 1 1 *").await;
    assert_eq!(super::planned_later(&db, "report").await, next, "with the tick that it had");
    again.end().await;
    other.end().await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// Two elections run concurrently, and only one of them sees the declaration of the newest release. The election that does not see it must
/// not undo the result of the other election.
#[tokio::test]
async fn an_election_that_knew_less_does_not_undo_one_that_was_first() {
    let db = TestDb::new().await;
    let (mut on, mut other) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let declare = async |on: &mut PgConnection, hour: i32| {
        let worker = tests::protocol::register(on).await.unwrap();
        let options = format!("{{\"cron\": \"0 {hour} * * *\"}}");
        let declare = "select from queue.declare_schedules($1, '{report}', '{do}', '{\"{}\"}', array[$2])";
        sqlx::query(declare).bind(worker).bind(options).execute(&mut *on).await.unwrap();
        worker
    };
    let elect = "select e.became from queue.elect_schedules() e";
    let gone = "update queue.worker set expires_at = now() - interval '1 s' where id = $1";
    declare(&mut on, 2).await;
    let newer = declare(&mut on, 1).await;
    assert_eq!(sqlx::query_scalar::<_, String>(elect).fetch_all(&mut on).await.unwrap(), ["in force"]);
    sqlx::query(gone).bind(newer).execute(&mut on).await.unwrap();
    let mut newest = other.begin().await.unwrap();
    let third = declare(&mut newest, 3).await;
    assert_eq!(sqlx::query_scalar::<_, String>(elect).fetch_all(&mut *newest).await.unwrap(), ["in force"]);
    let late = tokio::spawn(async move {
        sqlx::query(elect).execute(&mut on).await.unwrap();
        on
    });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
    eventually("it waits", async || db.count(waits).await == 1).await;
    newest.commit().await.unwrap();
    let mut on = late.await.unwrap();
    assert_eq!(Queue::new(&db.pool).store(STORE()).schedule("report").find().await.unwrap().cron.as_deref(), Some("0 3 * * *"));

    // An election does not wait forever for a session that has locked a schedule.
    sqlx::query(gone).bind(third).execute(&mut on).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::query("select from queue.schedule for update").execute(&mut *held).await.unwrap();
    sqlx::query("set statement_timeout = '15s'").execute(&mut on).await.unwrap();
    let answers: Vec<String> = sqlx::query_scalar(elect).fetch_all(&mut on).await.unwrap();
    assert!(answers.len() == 1 && answers[0].contains("lock timeout"), "{answers:?}");
    held.rollback().await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, String>(elect).fetch_all(&mut on).await.unwrap(), ["in force"]);
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_that_one_release_could_not_read_is_restored_by_one_that_can() {
    let db = TestDb::new().await;
    let worker = Release::start(release(&db, "0 1 1 1 *"));
    in_force(&db, "0 1 1 1 *").await;
    sqlx::query("update queue.schedule set error = 'there is no such zone', next_at = null").execute(&db.pool).await.unwrap();
    eventually("it has ticks again", async || {
        db.count("select count(*) from queue.schedule where error is null and next_at is not null").await == 1
    })
    .await;
    worker.end().await;
    db.finish().await;
}

/// Simulates a newer release that declares a schedule in an unknown syntax. The current release must neither withdraw the schedule nor
/// record an error for it.
#[tokio::test]
async fn a_schedule_of_a_newer_release_that_this_one_cannot_read_is_left_to_it() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let newer = tests::protocol::register(&mut on).await.unwrap();
    let declare = "select from queue.declare_schedules($1, '{newer}', '{do}', '{\"{}\"}', $2)";
    let options = [r#"{"cron": "0 0 * * * of a grammar to come", "overlap": "allow"}"#];
    sqlx::query(declare).bind(newer).bind(options).execute(&mut on).await.unwrap();
    sqlx::query("select queue.elect_schedules()").execute(&mut on).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    let wrong = "select queue.schedule('anybody', 'do', '{}', '{\"cron\": \"x\"}')";
    sqlx::query(wrong).execute(&db.pool).await.unwrap();
    db.run_while(sleeper(&db), async {
        eventually("it has polled", async || super::fires(&db, "good").await.len() >= 2).await;
        let marked = async || Queue::new(&db.pool).store(STORE()).schedule("anybody").find().await.unwrap().error.is_some();
        eventually("a dynamic schedule shows its error", marked).await;
        let found = Queue::new(&db.pool).store(STORE()).schedule("newer").find().await.unwrap();
        assert!(found.error.is_none() && found.withdrawn_at.is_none(), "{found:?}");
    })
    .await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// Declarations of a worker whose lease has expired no longer count, although its row still exists.
#[tokio::test]
async fn only_declarations_of_living_workers_are_elected_and_remembered() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut workers = Vec::new();
    for (name, hour) in [("report", 1), ("report", 2), ("other", 3)] {
        let worker = tests::protocol::register(&mut on).await.unwrap();
        let declare = "select from queue.declare_schedules($1, array[$2], '{do}', '{\"{}\"}', array[$3])";
        let options = format!("{{\"cron\": \"0 {hour} * * *\"}}");
        sqlx::query(declare).bind(worker).bind(name).bind(options).execute(&mut on).await.unwrap();
        workers.push(worker);
    }
    let elect = async |on: &mut PgConnection| {
        sqlx::query("select from queue.elect_schedules()").execute(on).await.unwrap();
    };
    let silent = "update queue.worker set expires_at = now() - interval '1 s' where id = $1";
    sqlx::query(silent).bind(workers[1]).execute(&mut on).await.unwrap();
    sqlx::query("update queue.declaration set last_seen = now() - interval '2 h'").execute(&mut on).await.unwrap();
    elect(&mut on).await;
    let found = Queue::new(&db.pool).store(STORE()).schedule("report").find().await.unwrap();
    assert_eq!(found.cron.as_deref(), Some("0 1 * * *"), "the newer one is silent");
    let seen = "select count(*) from queue.declaration where last_seen > now() - interval '1 h'";
    assert_eq!(db.count(seen).await, 2, "those of the living");
    sqlx::query(silent).bind(workers[0]).execute(&mut on).await.unwrap();
    elect(&mut on).await;
    let undeclared = "select count(*) from queue.schedule where (name = 'report') = (undeclared_since is not null)";
    assert_eq!(db.count(undeclared).await, 2, "no live worker declares it");
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

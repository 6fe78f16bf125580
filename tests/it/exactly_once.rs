//! Tests a handler's own transaction. The transaction's writes and the job's completion are committed together, even after failures.

mod faults;

use std::{sync::Mutex, time::Duration};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Own, TestDb, Within, effects, eventually, hold, is_lost};

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<Own>()
}

async fn enqueue(db: &TestDb, how: &str) -> JobId {
    Own { how: how.to_owned() }.enqueue(&db.pool).await.unwrap().id()
}

async fn go(db: &TestDb) {
    db.pool.execute("create table go ()").await.unwrap();
}

/// Waits until a handler has written in its own transaction and is waiting on its second connection.
async fn in_the_middle(db: &TestDb) {
    eventually("a handler is in the middle of its transaction", async || {
        db.count(
            "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction' and query like '%/* own */'
               and exists (select from pg_stat_activity h where h.datname = current_database() and h.pid <> pg_backend_pid() and h.query like '%relname = ''go''%')",
        )
        .await
            > 0
    })
    .await;
}

/// Returns the numbers of attempts, crashes, failures and effects of a job.
async fn charged(db: &TestDb, id: JobId) -> (i16, i16, i64, i64) {
    let (attempts, crashes): (i16, i16) =
        sqlx::query_as("select attempts, crashes from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
    let failures = sqlx::query_scalar("select count(*) from queue.failure where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
    (attempts, crashes, failures, effects(&db.pool, id).await.unwrap())
}

async fn output(db: &TestDb, id: JobId) -> Option<String> {
    sqlx::query_scalar("select output #>> '{}' from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await.unwrap()
}

async fn errors(db: &TestDb, like: &str) -> i64 {
    sqlx::query_scalar("select count(*) from queue.failure where error like $1").bind(like).fetch_one(&db.pool).await.unwrap()
}

/// Enqueues one job with this behavior and runs it until it has finished.
async fn run(how: &str) -> (TestDb, JobId) {
    let db = TestDb::new().await;
    let job = enqueue(&db, how).await;
    db.run_until_idle(worker(&db)).await;
    (db, job)
}

#[tokio::test]
async fn a_handlers_writes_and_its_completion_become_visible_together() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold").await;
    db.run_while(worker(&db), async {
        in_the_middle(&db).await;
        assert_eq!((db.state(job).await, effects(&db.pool, job).await.unwrap()), (Some(JobState::Running), 0));
        go(&db).await;
        eventually("both are there", async || {
            let both = "select state, (select count(*) from effect) from queue.jobs";
            let seen: (String, i64) = sqlx::query_as(both).fetch_one(&db.pool).await.unwrap();
            assert_eq!(seen.1 == 1, seen.0 == "completed", "{seen:?}");
            seen.1 == 1
        })
        .await;
    })
    .await;
    assert_eq!((charged(&db, job).await, output(&db, job).await.as_deref()), ((1, 0, 0, 1), Some("hold")));
    let late = "select count(*) from queue.done d join effect e on e.job = d.id where d.finished_at >= e.at";
    assert_eq!(db.count(late).await, 1, "the end is when it ended, not when the transaction began");
    db.finish().await;
}

#[tokio::test]
async fn a_job_fails_terminally_in_the_same_commit_as_its_writes() {
    let (db, job) = run("fail").await;
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Dead), (1, 0, 1, 1)));
    assert_eq!(errors(&db, "as told").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn errors_and_panics_before_the_commit_roll_back_and_are_retried() {
    for how in ["error first", "panic first"] {
        let (db, job) = run(how).await;
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (2, 0, 1, 1)), "{how}");
        db.finish().await;
    }
    let (db, job) = run("error").await;
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Dead), (2, 0, 2, 0)));
    db.finish().await;
}

#[tokio::test]
async fn f53_children_in_the_transaction_commit_with_it_and_others_do_not() {
    for (how, state, children) in [
        ("child", JobState::Completed, 1),
        ("child, fail", JobState::Dead, 1),
        ("child, error", JobState::Dead, 0),
        ("child outside, error", JobState::Dead, 2),
    ] {
        let (db, job) = run(how).await;
        assert_eq!(db.state(job).await, Some(state), "{how}");
        assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'do' and state = 'completed'").await, children, "{how}");
        db.finish().await;
    }
}

#[tokio::test]
async fn a_handler_that_returns_ok_without_completing_its_transaction_has_failed() {
    for how in ["not completed", "rolled back"] {
        let (db, job) = run(how).await;
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Dead), (2, 0, 2, 0)), "{how}");
        assert_eq!(errors(&db, "%without completing it%").await, 2);
        db.finish().await;
    }
}

#[tokio::test]
async fn once_its_transaction_is_committed_a_job_is_completed_even_if_its_handler_fails() {
    for how in ["error after", "panic after"] {
        let (db, job) = run(how).await;
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (1, 0, 0, 1)), "{how}");
        assert_eq!(output(&db, job).await.as_deref(), Some("committed"));
        db.finish().await;
    }
}

#[tokio::test]
async fn nothing_is_committed_after_the_first_verdict() {
    for how in ["twice", "two at once"] {
        let (db, job) = run(how).await;
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (1, 0, 0, 1)), "{how}");
        assert_eq!(output(&db, job).await.as_deref(), Some("first"));
        db.finish().await;
    }
}

#[tokio::test]
async fn a_transaction_that_cannot_be_committed_completes_nothing() {
    for (how, error) in [("swallowed", "%25P02%"), ("ended in sql", "%25P01%")] {
        let (db, job) = run(how).await;
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Dead), (2, 0, 2, 0)), "{how}");
        assert_eq!(errors(&db, error).await, 2, "{how}");
        db.finish().await;
    }
    let (db, job) = run("deferred, then again").await;
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (1, 0, 0, 1)));
    db.finish().await;
}

#[tokio::test]
async fn f02_a_nul_in_an_output_becomes_the_replacement_character_here_too() {
    let (db, job) = run("nul").await;
    assert_eq!(output(&db, job).await.as_deref(), Some("a\u{fffd}b"));
    db.finish().await;
}

/// Job whose handler returns while a spawned task still holds the transaction.
#[job(send_only, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Leak;

/// Whether the spawned task received a lost-lease error. `None` while the task is running.
static LEAKED: Mutex<Option<bool>> = Mutex::new(None);

impl Handler for Leak {
    async fn run(self, cx: &Context) -> JobResult {
        let (mut tx, pool) = (cx.begin().await?, cx.pool().clone());
        tokio::spawn(async move {
            hold(&pool).await;
            tx.execute("insert into effect (job) values (1)").await.unwrap();
            let was_lost = tx.complete(()).await.err().is_some_and(|failure| is_lost(&failure));
            *LEAKED.lock().unwrap() = Some(was_lost);
        });
        Ok(())
    }
}

#[tokio::test]
async fn f52_a_task_that_outlives_its_handler_can_commit_nothing() {
    let db = TestDb::new().await;
    let job = Leak.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Leak>(), async {
        db.until(job, JobState::Dead).await;
        go(&db).await;
        eventually("the task has ended", async || LEAKED.lock().unwrap().is_some()).await;
    })
    .await;
    assert_eq!(*LEAKED.lock().unwrap(), Some(true), "`LeaseLost`");
    assert_eq!((db.state(job).await, db.count("select count(*) from effect").await), (Some(JobState::Dead), 0));
    db.finish().await;
}

/// Job whose timeout passes while its commit waits for a lock, or while its handler hangs after the commit.
#[job(send_only, max_attempts = 1, timeout = "300ms")]
#[derive(Serialize, Deserialize)]
struct Hasty {
    hang: bool,
}

impl Handler for Hasty {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.begin().await?;
        sqlx::query("insert into effect (job) values ($1) /* own */").bind(cx.id()).execute(&mut *tx).await?;
        tx.complete(()).await?;
        if self.hang {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_timeout_during_the_commit_waits_for_its_outcome() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let mut slow = connection.begin().await.unwrap();
    slow.execute("lock table queue.done_many in exclusive mode").await.unwrap();
    let job = Hasty { hang: false }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Hasty>(), async {
        db.until(job, JobState::Running).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!(db.state(job).await, Some(JobState::Running), "timed out long ago, and no verdict");
        slow.rollback().await.unwrap();
        db.until(job, JobState::Completed).await;
        let late = Hasty { hang: true }.enqueue(&db.pool).await.unwrap().id();
        db.until(late, JobState::Completed).await;
    })
    .await;
    assert_eq!((errors(&db, "%").await, db.count("select count(*) from effect").await), (0, 2));
    db.finish().await;
}

#[tokio::test]
async fn jobs_of_one_lease_end_by_their_own_transactions_or_verdicts_in_any_mixture() {
    let db = TestDb::new().await;
    let kinds = ["beside", "plain", "ok", "beside", "error first", "beside", "plain", "fail", "error after", "beside"];
    for round in 0..12 {
        Own::enqueue_all((0..50).map(|n| Own { how: kinds[(n * (round + 1) + round) % 10].to_owned() }), &db.pool).await.unwrap();
    }
    let expected = db.count("select count(*) from queue.jobs where payload ->> 'how' <> 'fail'").await;
    db.run_until_idle(worker(&db).concurrency(40)).await;
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed'").await, expected);
    assert_eq!(db.count("select count(*) from effect").await, 600, "each has its one effect");
    assert_eq!(db.count("select count(distinct job) from effect").await, 600);
    assert_eq!(db.count("select count(*) from queue.lease").await, 0);
    let again = db.count("select count(*) from queue.jobs where payload ->> 'how' in ('error first', 'fail')").await;
    assert_eq!(db.count("select count(*) from queue.failure").await, again, "only those that were meant to fail failed");
    db.finish().await;
}

/// Transactional job whose handler requests a second transaction.
#[job(send_only, transactional, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Both;

impl Handler for Both {
    async fn run(self, cx: &Context) -> JobResult {
        let _ = cx.begin().await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_transactional_job_that_begins_another_transaction_gets_an_error_that_names_its_own() {
    let db = TestDb::new().await;
    let job = Both.enqueue(&db.pool).await.unwrap().id();
    db.run_while(Worker::new(db.pool.clone()).register::<Both>().register::<Within>(), db.until(job, JobState::Dead)).await;
    assert_eq!(errors(&db, "%use `cx.transaction()`%").await, 1);
    db.finish().await;
}

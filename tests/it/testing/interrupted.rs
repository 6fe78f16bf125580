//! Tests a handler that is interrupted at each of its awaits and restarted. Exactly-once effects pass, and other effects are detected.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_core::{Context, Failure, Handler, JobResult, durable::Durable, job, options::Verdict, testing};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::TestDb;
use tokio::task::yield_now;

/// Recorded effects outside of the database.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|done| *done == what).count()
    }
}

/// Job that sends two mails, one after the other. If `remembers` is set, the job records that the first mail was sent.
#[job(name = "interrupted_mails", send_only, state(Done))]
#[derive(Serialize, Deserialize)]
struct Mails {
    remembers: bool,
}

impl Handler for Mails {
    async fn run(self, cx: &Context) -> JobResult {
        let done = cx.state::<Done>();
        if cx.last_checkpoint::<u32>().await?.is_none() {
            done.note("ada");
            if self.remembers {
                cx.checkpoint(&1).await?;
            }
        }
        yield_now().await;
        done.note("bob");
        Ok(())
    }
}

/// Returns the numbers of emails sent to ada and to bob, first for an uninterrupted run and then for each point of interruption.
async fn mailed(remembers: bool) -> Vec<(usize, usize)> {
    let (done, mut seen) = (Done::default(), Vec::new());
    let begin = async || {
        done.take();
        testing::run(Mails { remembers }).state(done.clone())
    };
    let tried = testing::interrupt_everywhere(begin, async |ran| {
        assert!(ran.is_completed(), "{:?}", ran.error);
        seen.push((done.count("ada"), done.count("bob")));
    });
    let tried = tried.await.unwrap();
    assert_eq!(tried.interruptions + 1, seen.len(), "once undisturbed");
    seen
}

#[tokio::test]
async fn a_plain_handler_that_must_not_be_repeated_is_detected() {
    let forgets = mailed(false).await;
    assert_eq!(forgets[0], (1, 1), "undisturbed");
    assert!(forgets.contains(&(2, 1)), "dropped between the two: {forgets:?}");
    assert_eq!(forgets.last(), Some(&(2, 2)), "its verdict was not written: {forgets:?}");
    let remembers = mailed(true).await;
    assert!(remembers.contains(&(2, 1)), "dropped before its checkpoint was written: {remembers:?}");
    assert_eq!(remembers.last(), Some(&(1, 2)), "{remembers:?}");
}

/// Durable job with an effect outside of the database, an effect in the database, a wait, and another effect.
#[job(name = "interrupted_order", send_only, durable, max_attempts = 2, state(Done), output = u32)]
#[derive(Serialize, Deserialize)]
struct Order;

impl Handler for Order {
    async fn run(self, cx: &Durable) -> JobResult<u32> {
        let (done, key) = (cx.state::<Done>().clone(), cx.key("charge"));
        let charged = async move {
            yield_now().await;
            done.note(key);
            Ok::<_, Failure>(7_u32)
        };
        let charge = cx.step("charge", charged).await?;
        cx.step_tx("book", async |tx| write(tx, "book").await).await?;
        cx.sleep("trial", Duration::from_hours(24)).await;
        cx.step_tx("bill", async |tx| write(tx, "bill").await).await?;
        Ok(charge)
    }
}

async fn write(on: &mut sqlx::PgConnection, what: &str) -> Result<(), sqlx::Error> {
    sqlx::query("insert into written (what) values ($1)").bind(what).execute(on).await.map(drop)
}

async fn db() -> TestDb {
    let db = TestDb::new().await;
    sqlx::raw_sql("create table written (what text)").execute(&db.pool).await.unwrap();
    db
}

async fn written(pool: &PgPool) -> String {
    sqlx::query_scalar("select coalesce(string_agg(what, ' ' order by what), '') from written").fetch_one(pool).await.unwrap()
}

async fn empty(pool: &PgPool) {
    sqlx::query("truncate written").execute(pool).await.unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_durable_handlers_effects_happen_once_in_the_database_and_under_one_key_elsewhere() {
    let (db, done) = (db().await, Done::default());
    let (mut again, mut attempts, mut places) = (0, Vec::new(), Vec::new());
    let begin = async || {
        done.take();
        empty(&db.pool).await;
        testing::run(Order).state(done.clone()).pool(&db.pool)
    };
    let tried = testing::interrupt_everywhere(begin, async |ran| {
        assert_eq!(ran.output(), 7);
        assert_eq!(ran.journaled(), ["charge", "book", "trial", "bill"]);
        assert_eq!(written(&db.pool).await, "bill book");
        let mut keys = done.take();
        again += usize::from(keys.len() == 2);
        keys.dedup();
        assert_eq!(keys.len(), 1, "another key: {keys:?}");
        attempts.push(ran.number);
        places.extend(ran.interrupted_at());
    });
    let tried = tried.await.unwrap();
    for kept in 1..=4 {
        assert!(places.contains(&testing::Place::Written(kept)), "{places:?}");
    }
    assert_eq!(tried.interruptions, places.len());
    assert!(again >= 1, "never between the effect and the journal");
    assert_eq!((attempts[0], attempts[1..].iter().max()), (1, Some(&2)), "{attempts:?}");
    db.finish().await;
}

/// Transactional job that writes in the worker's transaction.
#[job(name = "interrupted_lent", send_only, transactional)]
#[derive(Serialize, Deserialize)]
struct WritesLent;

impl Handler for WritesLent {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        write(&mut tx, "one").await?;
        yield_now().await;
        write(&mut tx, "two").await?;
        yield_now().await;
        Ok(())
    }
}

/// Job that writes in its own transaction, which also completes the job.
#[job(name = "interrupted_own", send_only, output = u32)]
#[derive(Serialize, Deserialize)]
struct WritesOwn;

impl Handler for WritesOwn {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let mut tx = cx.begin().await?;
        write(&mut tx, "one").await?;
        yield_now().await;
        tx.complete(7).await
    }
}

#[tokio::test]
async fn writes_of_a_completing_transaction_happen_once() {
    let db = db().await;
    let lent = testing::interrupt_everywhere(
        async || {
            empty(&db.pool).await;
            testing::run(WritesLent).pool(&db.pool)
        },
        async |ran| {
            assert!(ran.is_completed(), "{:?}", ran.error);
            assert_eq!(written(&db.pool).await, "one two");
        },
    );
    assert!(lent.await.unwrap().interruptions >= 3);
    let own = testing::interrupt_everywhere(
        async || {
            empty(&db.pool).await;
            testing::run(WritesOwn).pool(&db.pool)
        },
        async |ran| {
            assert_eq!(ran.output(), 7);
            assert_eq!(written(&db.pool).await, "one");
        },
    );
    let own = own.await.unwrap();
    assert!(own.interruptions >= 2, "{own:?}");
    let bare = testing::interrupt_everywhere(async || testing::run(WritesLent), async |_| {}).await;
    assert!(matches!(bare, Err(testing::Error::NeedsPool { .. })), "{bare:?}");
    db.finish().await;
}

/// Job that records the effect before performing it, without an await in between.
#[job(name = "interrupted_early", send_only, state(Done))]
#[derive(Serialize, Deserialize)]
struct Early;

impl Handler for Early {
    async fn run(self, cx: &Context) -> JobResult {
        if cx.last_checkpoint::<bool>().await?.is_none() {
            cx.checkpoint(&true).await?;
            cx.state::<Done>().note("mail");
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_is_dropped_between_a_checkpoint_and_its_next_line() {
    let (done, mut mails) = (Done::default(), Vec::new());
    let begin = async || {
        done.take();
        testing::run(Early).state(done.clone())
    };
    let check = async |ran: testing::RunResult<Early>| mails.push((ran.interrupted_at(), done.count("mail")));
    testing::interrupt_everywhere(begin, check).await.unwrap();
    assert_eq!(mails[0], (None, 1), "undisturbed");
    assert!(mails.contains(&(Some(testing::Place::Written(1)), 0)), "the mail that is never sent: {mails:?}");
}

/// Job that completes itself and then continues.
#[job(name = "interrupted_after", send_only, state(Done), output = u32)]
#[derive(Serialize, Deserialize)]
struct After;

impl Handler for After {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let mut tx = cx.begin().await?;
        write(&mut tx, "one").await?;
        let output = tx.complete(7).await?;
        yield_now().await;
        cx.state::<Done>().note("told");
        Ok(output)
    }
}

async fn what_is_committed_is_over(db: &TestDb) {
    let (done, mut runs) = (Done::default(), Vec::new());
    let begin = async || {
        done.take();
        empty(&db.pool).await;
        testing::run(After).state(done.clone()).pool(&db.pool)
    };
    let check = async |ran: testing::RunResult<After>| {
        assert_eq!((ran.output(), ran.is_completed()), (7, true));
        assert_eq!(written(&db.pool).await, "one", "interrupted at {:?}", ran.interrupted_at());
        runs.push((ran.interrupted_at(), done.count("told")));
    };
    testing::interrupt_everywhere(begin, check).await.unwrap();
    assert!(runs.contains(&(Some(testing::Place::Written(1)), 0)), "what follows the commit may never happen: {runs:?}");
}

#[tokio::test]
async fn a_job_whose_own_transaction_committed_does_not_run_again() {
    let db = db().await;
    what_is_committed_is_over(&db).await;
    db.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_own_transaction_committed_does_not_run_again_beside_other_threads() {
    let db = db().await;
    what_is_committed_is_over(&db).await;
    db.finish().await;
}

/// Job that continues after a statement in its own transaction has failed.
#[job(name = "interrupted_aborted", send_only, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Aborted;

impl Handler for Aborted {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.begin().await?;
        let _ = sqlx::query("select 1 / 0").execute(&mut *tx).await;
        tx.complete(()).await
    }
}

/// Transactional job that continues after a statement in the worker's transaction has failed.
#[job(name = "interrupted_lent_aborted", send_only, transactional, max_attempts = 2)]
#[derive(Serialize, Deserialize)]
struct LentAborted;

impl Handler for LentAborted {
    async fn run(self, cx: &Context) -> JobResult {
        yield_now().await;
        let _ = sqlx::query("select 1 / 0").execute(&mut *cx.transaction().await).await;
        Ok(())
    }
}

#[tokio::test]
async fn a_transaction_that_cannot_be_committed_fails_its_attempt() {
    let db = db().await;
    let own = async |ran: testing::RunResult<Aborted>| assert!(ran.is_dead(), "{:?}", ran.verdict);
    testing::interrupt_everywhere(async || testing::run(Aborted).pool(&db.pool), own).await.unwrap();
    let lent = async |ran: testing::RunResult<LentAborted>| {
        assert!(ran.is_dead(), "{:?}", ran.verdict);
        assert!((2..=3).contains(&ran.number), "one that was interrupted before its commit is charged, too: {}", ran.number);
        assert!(ran.error.as_deref().unwrap().contains("cannot be committed"), "{:?}", ran.error);
    };
    testing::interrupt_everywhere(async || testing::run(LentAborted).pool(&db.pool), lent).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_cancelled_job_does_not_run_again() {
    let (done, mut states) = (Done::default(), Vec::new());
    let begin = async || {
        done.take();
        testing::run(Mails { remembers: false }).state(done.clone()).cancelled()
    };
    let check = async |ran: testing::RunResult<Mails>| states.push((ran.verdict, done.count("ada")));
    testing::interrupt_everywhere(begin, check).await.unwrap();
    assert_eq!(states[0].0, Verdict::Complete, "what completes all the same is completed");
    assert!(states[1..].iter().all(|(verdict, mails)| *verdict == Verdict::Cancel && *mails <= 1), "{states:?}");
}

/// Job that never ends. Depending on `how`, it waits within an attempt, snoozes repeatedly, or leaves a lock behind when interrupted.
#[job(name = "interrupted_never", send_only, state(Done))]
#[derive(Serialize, Deserialize)]
struct Never {
    how: String,
}

impl Handler for Never {
    async fn run(self, cx: &Context) -> JobResult {
        let done = cx.state::<Done>();
        if self.how == "snoozes" {
            return Err(Failure::snooze(Duration::from_secs(9)));
        }
        while self.how == "waits" || done.count("locked") > 0 {
            yield_now().await;
        }
        done.note("locked");
        yield_now().await;
        done.take();
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_never_ends_is_an_error() {
    let never = async |how: &str| {
        let done = Done::default();
        let begin = async || {
            done.take();
            testing::run(Never { how: how.to_owned() }).state(done.clone())
        };
        testing::interrupt_everywhere(begin, async |_| {}).await
    };
    let snoozes = never("snoozes").await;
    assert!(matches!(snoozes, Err(testing::Error::Unending { at: None, attempts: 1000 })), "{snoozes:?}");
    let waits = never("waits").await;
    assert!(matches!(waits, Err(testing::Error::Restless { at: None, most: 2000 })), "{waits:?}");
    let locks = never("locks").await;
    assert!(
        matches!(locks, Err(testing::Error::Restless { at: Some(testing::Place::Wait(1)), most: 2000 })),
        "an interrupted handler leaves it locked: {locks:?}"
    );
}

#[tokio::test]
#[should_panic(expected = "a mail too many")]
async fn a_check_that_fails_fails_the_test() {
    let done = Done::default();
    let begin = async || {
        done.take();
        testing::run(Mails { remembers: false }).state(done.clone())
    };
    let check = async |_| assert_eq!(done.count("ada"), 1, "a mail too many");
    testing::interrupt_everywhere(begin, check).await.unwrap();
}

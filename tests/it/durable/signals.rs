//! Tests signals. Each signal is received once and in order, regardless of its arrival time. A waiting job holds no resources, and no
//! wake-up is lost.

mod crowd;
pub(super) mod races;
mod statements;
mod together;

use queue_core::{Error, Job as _, JobHandle, JobId, JobRef, JobState, Queue, operate, operate::SignalOutcome};
use tests::{TestDb, eventually};

use super::{Part, Plan, db, db_by_hand, done, journal, plan, run_to, step};

fn receive(name: &str) -> Part {
    Part::Receive(name.to_owned())
}

fn within(name: &str, ms: u64) -> Part {
    Part::Within(name.to_owned(), ms)
}

async fn send(db: &TestDb, job: JobHandle<Plan>, name: &str, text: &str) {
    assert_eq!(job.signal(&db.pool, name, text).await.unwrap(), SignalOutcome::Sent, "{name}");
}

/// Returns the names of the signals that were sent but not received.
async fn unreceived(db: &TestDb, job: JobId) -> Vec<String> {
    let signals = Queue::new(&db.pool).job(job).signals().await.unwrap();
    signals.into_iter().map(|signal| signal.name).collect()
}

#[tokio::test]
async fn a_job_that_waits_for_a_signal_holds_nothing_and_continues_with_it() {
    let db = db().await;
    let parts = [step("before"), receive("paid"), Part::FailOnce("fail".into()), step("after")];
    let job = plan(parts).enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Plan>();
    db.run_while(worker, async {
        db.until(job.id(), JobState::Parked).await;
        assert_eq!(db.count("select count(*) from queue.lease").await, 0);
        assert_eq!(db.count("select count(*) from queue.parked where attempts = 0 and run_at is null and names = '{paid}'").await, 1);
        send(&db, job, "other", "not this").await;
        send(&db, job, "paid", "yes").await;
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.output(job.id()).await, serde_json::json!(["before", "yes", "after"]));
    // The attempt after the failure found the received signal in the journal.
    assert_eq!(done(&db, job.id()).await, [("after".to_owned(), 2), ("before".to_owned(), 1)]);
    assert_eq!((journal(&db, job.id()).await.len(), unreceived(&db, job.id()).await), (4, vec!["other".to_owned()]));
    db.finish().await;
}

#[tokio::test]
async fn signals_that_arrive_before_the_receive_are_received_in_order() {
    let db = db().await;
    let mut tx = db.pool.begin().await.unwrap();
    let job = plan([Part::Votes("vote".into(), 3)]).enqueue(&mut tx).await.unwrap();
    assert_eq!(job.signal(&mut tx, "vote", "first").await.unwrap(), SignalOutcome::Sent, "in the transaction that enqueues it");
    assert_eq!(job.signal(&db.pool, "vote", "early").await.unwrap(), SignalOutcome::Absent, "it is not committed");
    tx.commit().await.unwrap();
    send(&db, job, "vote", "second").await;
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Parked).await;
        // SQL can send any JSON as the payload.
        let sent: String = db.one(&format!("select queue.signal({0}, 'vote', '\"third\"')", job.id())).await;
        assert_eq!(sent, "sent");
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.output(job.id()).await, serde_json::json!(["first", "second", "third"]));
    assert_eq!(journal(&db, job.id()).await, ["vote/0", "vote/1", "vote/2"]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_signal_is_seen_while_a_step_goes_on_beside_the_wait() {
    let db = db().await;
    let job = plan([Part::During("go".into(), 20_000)]).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Running).await;
        send(&db, job, "go", "now").await;
        eventually("it is received beside the step", async || done(&db, job.id()).await == [("now".to_owned(), 1)]).await;
        assert_eq!(db.state(job.id()).await, Some(JobState::Running));
    })
    .await;
    db.run("delete from queue.step").await;
    db.finish().await;
}

#[tokio::test]
async fn a_wait_ends_at_its_timeout_and_an_existing_signal_comes_first() {
    let db = db().await;
    let parts = || plan([within("paid", 3_600_000)]);
    let [late, just] = [parts().enqueue(&db.pool).await.unwrap(), parts().enqueue(&db.pool).await.unwrap()];
    db.run_while(db.worker().register::<Plan>(), async {
        for job in [late, just] {
            db.until(job.id(), JobState::Parked).await;
        }
        let due = "select count(*) from queue.parked p join queue.step s on s.id = p.id and s.name = 'paid (timeout)'
            where abs(extract(epoch from p.run_at - s.until)) < 10";
        assert_eq!(db.count(due).await, 2, "they are due when their waits end");
        // A job that is woken before its timeout waits for the remaining time.
        late.run_now(&db.pool).await.unwrap();
        eventually("it waits again", async || {
            let waits = "select count(*) from queue.parked where since > (select max(at) from queue.step)
                and run_at < now() + interval '1 h'";
            db.count(waits).await == 1
        })
        .await;
    })
    .await;
    // Both timeouts have passed, but the signal of one job arrives before the job's next attempt.
    db.run("update queue.parked set run_at = now(); update queue.step set until = now() where until is not null").await;
    send(&db, just, "paid", "in the end").await;
    for job in [late, just] {
        run_to(&db, job.id(), JobState::Completed).await;
    }
    assert_eq!(db.output(late.id()).await, serde_json::json!(["none"]));
    assert_eq!(db.output(just.id()).await, serde_json::json!(["in the end"]));
    db.finish().await;
}

#[tokio::test]
async fn an_end_that_was_journaled_stays_though_a_signal_comes_later() {
    let db = db().await;
    let job = plan([within("paid", 1), Part::Sleep("on".into(), 3_600_000), receive("paid")]);
    let job = job.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Scheduled).await;
        send(&db, job, "paid", "late").await;
        db.run("update queue.scheduled set run_at = now(); update queue.step set until = now() where name = 'on'").await;
        // Receiving under the same name twice is an error. The second receive does not get the late signal.
        db.until(job.id(), JobState::Dead).await;
    })
    .await;
    assert_eq!(unreceived(&db, job.id()).await, ["paid"]);
    assert_eq!(journal(&db, job.id()).await, ["on", "paid", "paid (timeout)"]);
    db.finish().await;
}

#[tokio::test]
async fn the_first_of_two_signals_ends_both_waits() {
    let db = db().await;
    let either = plan([Part::Either("yes".into(), "no".into())]).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(either.id(), JobState::Parked).await;
        assert_eq!(db.count("select count(*) from queue.parked where names = '{no,yes}'").await, 1);
        send(&db, either, "no", "it is no").await;
        db.until(either.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.output(either.id()).await, serde_json::json!(["it is no"]));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_starts_later_knows_when_a_wait_ends() {
    let db = db().await;
    let job = plan([within("paid", 4_000), Part::Step("after".into())]).enqueue(&db.pool).await.unwrap();
    run_to(&db, job.id(), JobState::Parked).await;
    run_to(&db, job.id(), JobState::Completed).await;
    let shown = Queue::new(&db.pool).job(job.id()).steps().await.unwrap();
    let named: Vec<_> = shown.iter().map(|step| (step.name.as_str(), step.until.is_some(), step.is_timed_out())).collect();
    assert_eq!(named, [("paid (timeout)", true, false), ("paid", true, true), ("after", false, false)]);
    assert!(db.count("select count(*) from queue.step where name = 'paid' and at >= until").await == 1, "not before its time");
    db.finish().await;
}

#[tokio::test]
async fn finished_and_missing_jobs_get_no_signal_and_invalid_signals_are_refused() {
    let db = db().await;
    let job = plan([]).enqueue(&db.pool).await.unwrap();
    run_to(&db, job.id(), JobState::Completed).await;
    assert_eq!(job.signal(&db.pool, "paid", &1).await.unwrap(), SignalOutcome::Over);
    assert_eq!(JobRef::from_id(JobId(7)).signal(&db.pool, "paid", &1).await.unwrap(), SignalOutcome::Absent);
    for name in ["", "a\nb", &"x".repeat(201)] {
        let refused = job.signal(&db.pool, name, &1).await;
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
        let by_sql = sqlx::query("select queue.signal($1, $2)").bind(job.id()).bind(name).execute(&db.pool).await.unwrap_err();
        assert!(by_sql.to_string().contains("a name has 1 to 200 bytes"), "{by_sql}");
    }
    let nameless = queue_core::testing::run(plan([Part::Votes(String::new(), 1)])).await;
    assert!(
        nameless.is_dead() && nameless.error.as_deref().is_some_and(|error| error.contains("the name of a signal must not be empty")),
        "{:?}",
        nameless.error
    );
    let refused = job.signal(&db.pool, "paid", &"x".repeat(300_000)).await;
    assert!(matches!(refused, Err(Error::Signal { .. })), "{refused:?}");
    let large = sqlx::query("select queue.signal($1, 'paid', to_jsonb(repeat('x', 300000)))").bind(job.id());
    let refused = large.execute(&db.pool).await.unwrap_err();
    assert!(refused.to_string().contains("queue.signal: the payload has 300002 bytes"), "{refused}");
    assert_eq!(db.count("select (select count(*) from queue.signal) + (select count(*) from queue.signal_hint)").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_parked_job_is_shown_and_cancelled_and_is_requeued_without_its_signals() {
    let db = db().await;
    let job = plan([receive("paid")]).enqueue(&db.pool).key("account-7").await.unwrap();
    let behind = plan([]).enqueue(&db.pool).key("account-7").await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Parked).await;
        let status = job.status(&db.pool).await.unwrap();
        assert_eq!(status.state, JobState::Parked);
        let filter = operate::Filter { state: Some(JobState::Parked), ..operate::Filter::default() };
        let page = Queue::new(&db.pool).jobs().matching(&filter).list().await.unwrap();
        assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job.id()]);
        let counts = Queue::new(&db.pool).counts().await.unwrap();
        assert_eq!(counts.iter().filter(|count| count.state == JobState::Parked).map(|count| count.jobs).sum::<i64>(), 1);
        let why = Queue::new(&db.pool).job(job.id()).why().await.unwrap();
        assert!(why.causes[0].message.starts_with("it waits for the signal `paid` since"), "{:?}", why.causes);
        assert!(why.causes[0].fix.as_ref().unwrap().contains(&format!("`queue-worker signal {} paid`", job.id())), "{:?}", why.causes);
        let refused = job.set_priority(&db.pool, 7).await;
        assert!(matches!(refused, Err(Error::WrongState { state: JobState::Parked, .. })), "{refused:?}");
        send(&db, job, "unasked", "x").await;
        assert_eq!(db.state(behind.id()).await, Some(JobState::Blocked), "its ordering key is held");
        job.cancel(&db.pool).await.unwrap();
        db.until(behind.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.state(job.id()).await, Some(JobState::Cancelled));
    assert_eq!(job.signal(&db.pool, "paid", "late").await.unwrap(), SignalOutcome::Over);
    job.requeue(&db.pool).await.unwrap();
    assert_eq!((unreceived(&db, job.id()).await.len(), db.state(job.id()).await), (0, Some(JobState::Blocked)));
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Parked).await;
        let cancelled = Queue::new(&db.pool).jobs().matching(&operate::Filter::default()).cancel().await.unwrap();
        assert_eq!(cancelled.done, 1);
    })
    .await;
    db.finish().await;
}

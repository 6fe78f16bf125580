//! Tests operator operations on jobs in permitted and forbidden states, and with concurrent changes.

mod bounded;
mod counted;
mod statistics;
mod handle;
mod key_queue;
mod kinds;
mod lists;
mod load;
mod audit;
mod newest_partitions;
pub(crate) mod rare;
mod single;

use queue_core::{
    Error, Job as _, JobId, JobRef, JobState, Queue, Store,
    operate::{Filter, OperationOutcome},
};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, effects, eventually,
    protocol::{Lease, claim, recover, register, settle, silence},
};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

fn ok() -> Act {
    Act::Ok("done".into())
}

/// Creates a job in the given state with SQL statements. The job's lane must be empty. Otherwise a claim could take another job.
async fn job_in(db: &TestDb, connection: &mut PgConnection, state: &str) -> JobId {
    let job = enqueue(db, ok()).await;
    let verdict = match state {
        "ready" => return job,
        "scheduled" => "retry",
        "completed" => "complete",
        "completed plainly" => "plain",
        "dead" => "dead",
        "cancelled" => "cancel",
        "running" => "",
        other => panic!("no such state: {other}"),
    };
    let worker = register(connection).await.unwrap();
    let lease = claim(connection, worker, 1).await.unwrap();
    assert_eq!(lease.ids(), [job]);
    if !verdict.is_empty() {
        assert_eq!(settle(connection, &lease.all(verdict)).await.unwrap(), []);
    }
    job
}

const STATES: [&str; 7] = ["running", "scheduled", "completed", "completed plainly", "dead", "cancelled", "ready"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    Requeue,
    Cancel,
    Discard,
}

async fn grant(connection: &mut PgConnection, wish: Wish, id: JobId) -> Result<(), Error> {
    match wish {
        Wish::Requeue => JobRef::from_id(id).requeue(connection).await,
        Wish::Cancel => JobRef::from_id(id).cancel(connection).await.map(drop),
        Wish::Discard => JobRef::from_id(id).discard(connection).await,
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f57_an_operation_that_does_not_fit_the_state_is_refused_with_the_state_named_and_changes_nothing() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for (wish, fits, then) in [
        (Wish::Requeue, &["completed", "completed plainly", "dead", "cancelled"][..], Some(JobState::Ready)),
        (Wish::Cancel, &["ready", "scheduled", "running"], Some(JobState::Cancelled)),
        (Wish::Discard, &["dead"], None),
    ] {
        for state in STATES {
            let job = job_in(&db, &mut connection, state).await;
            let before = tests::protocol::contents(&mut connection).await.unwrap();
            let granted = grant(&mut connection, wish, job).await;
            if fits.contains(&state) {
                granted.unwrap();
                let then = if state == "running" { Some(JobState::Running) } else { then };
                assert_eq!(db.state(job).await, then, "{wish:?} of a job that is {state}");
            } else {
                let error = granted.unwrap_err();
                let is = state.split(' ').next().unwrap();
                assert!(
                    matches!(&error, Error::WrongState { job: id, state, .. } if *id == job && state.name() == is),
                    "{wish:?} {state}: {error:?}"
                );
                assert!(error.to_string().contains(&format!("is {is}")), "{error}");
                assert_eq!(tests::protocol::contents(&mut connection).await.unwrap(), before, "{wish:?} of a job that is {state}");
            }
            db.check_invariant().await;
            // Clear the tables for the next case.
            sqlx::query("truncate queue.ready, queue.job, queue.scheduled, queue.lease, queue.done, queue.done_many, queue.dead")
                .execute(&db.pool)
                .await
                .unwrap();
        }
        let nobody = JobId(7);
        assert!(matches!(grant(&mut connection, wish, nobody).await, Err(Error::NotFound { job }) if job == nobody));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_requeued_dead_letter_runs_again_with_all_its_attempts_and_keeps_its_history() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::FailUntil(4)).await;
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Dead));
    let mut connection = connect(&db).await;
    for deaths in 1..=2 {
        let found = JobRef::from_id(job).find(&mut connection).await.unwrap();
        assert_eq!((found.attempts, found.failures.len()), (3, 3 * deaths));
        JobRef::from_id(job).requeue(&mut connection).await.unwrap();
        let found = JobRef::from_id(job).find(&mut connection).await.unwrap();
        assert_eq!((found.state, found.attempts, found.crashes, found.failures.len()), (JobState::Ready, 0, 0, 3 * deaths));
        db.run_until_idle(db.worker()).await;
        assert_eq!(db.state(job).await, Some(JobState::Dead), "attempts are counted from the start");
    }
    assert_eq!(effects(&db.pool, job).await.unwrap(), 9);
    db.finish().await;
}

#[tokio::test]
async fn a_requeued_quarantined_job_leaves_its_solo_lane() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let job = enqueue(&db, ok()).await;
    for _ in 0..3 {
        let worker = register(&mut connection).await.unwrap();
        assert_eq!(claim(&mut connection, worker, 1).await.unwrap().ids(), [job]);
        silence(&mut connection, worker).await.unwrap();
        recover(&mut connection).await.unwrap();
    }
    assert_eq!(db.state(job).await, Some(JobState::Dead));
    JobRef::from_id(job).requeue(&mut connection).await.unwrap();
    let ready = "select count(*) from queue.ready r join queue.lane l using (lane) where not l.solo and r.attempts = 0 and r.crashes = 0";
    assert_eq!(db.count(ready).await, 1);
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn a_requeued_job_wakes_a_worker_that_sleeps() {
    let db = TestDb::new().await;
    let mut config = queue_worker::Config::default();
    config.poll_interval = std::time::Duration::from_hours(1);
    let worker = queue_worker::Worker::new(db.pool.clone()).config(config).register::<Do>();
    db.run_while(worker, async {
        let job = enqueue(&db, ok()).await;
        db.until(job, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        JobRef::from_id(job).requeue(&mut connect(&db).await).await.unwrap();
        eventually("it ran twice", async || effects(&db.pool, job).await.unwrap() == 2).await;
        db.until(job, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_cancelled_job_never_runs_wherever_it_waited() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let mut jobs = vec![enqueue(&db, ok()).await, job_in_solo_lane(&db, &mut connection).await];
    let released = enqueue(&db, ok()).await;
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    let verdicts = lease.all("release");
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), [], "all enter their lanes a second time");
    jobs.push(released);
    jobs.push(Do { act: ok() }.enqueue(&db.pool).after(std::time::Duration::from_millis(50)).await.unwrap().id());
    for job in &jobs {
        JobRef::from_id(*job).cancel(&mut connection).await.unwrap();
        assert_eq!(db.state(*job).await, Some(JobState::Cancelled));
    }
    let last = enqueue(&db, ok()).await;
    db.run_until_idle(db.worker()).await;
    db.until(last, JobState::Completed).await;
    assert_eq!(db.count("select count(*) from effect").await, 1);
    db.finish().await;
}

async fn job_in_solo_lane(db: &TestDb, connection: &mut PgConnection) -> JobId {
    let job = Do { act: ok() }.enqueue(&db.pool).queue("suspects").await.unwrap().id();
    let worker = register(connection).await.unwrap();
    let lease = claim(connection, worker, 10).await.unwrap();
    let others = Lease { jobs: lease.jobs.iter().copied().filter(|held| held.id != job).collect(), ..lease };
    assert_eq!(settle(connection, &others.all("release")).await.unwrap(), []);
    silence(connection, worker).await.unwrap();
    assert_eq!(recover(connection).await.unwrap(), 1);
    job
}

#[tokio::test]
#[ignore = "deep"]
async fn of_a_cancel_and_a_claim_exactly_one_wins() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..300 {
        jobs.push(enqueue(&db, ok()).await);
    }
    let (mut claimer, mut operator) = (connect(&db).await, connect(&db).await);
    let claiming = tokio::spawn(async move {
        let worker = register(&mut claimer).await.unwrap();
        let mut taken = Vec::new();
        loop {
            let lease = claim(&mut claimer, worker, 3).await.unwrap();
            if lease.jobs.is_empty() {
                return taken;
            }
            taken.extend(lease.ids());
        }
    });
    let mut cancelled = Vec::new();
    // The operator cancels in reverse order, so that the claims and the cancellations meet in the middle.
    for job in jobs.iter().rev() {
        match JobRef::from_id(*job).cancel(&mut operator).await {
            Ok(OperationOutcome::Done) => cancelled.push(*job),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let taken = claiming.await.unwrap();
    assert!(!taken.is_empty() && !cancelled.is_empty(), "{} and {}", taken.len(), cancelled.len());
    for job in &jobs {
        assert!(taken.contains(job) != cancelled.contains(job), "job {job}");
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn of_several_operators_exactly_one_requeues_or_discards_a_job() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    for verdict in ["dead", "plain", "complete"] {
        let mut jobs = Vec::new();
        for _ in 0..25 {
            jobs.push(enqueue(&db, ok()).await);
        }
        let lease = claim(&mut connection, worker, 100).await.unwrap();
        assert_eq!(settle(&mut connection, &lease.all(verdict)).await.unwrap(), []);
        let mut operators = Vec::new();
        for n in 0..4 {
            let (mut operator, jobs) = (connect(&db).await, jobs.clone());
            operators.push(tokio::spawn(async move {
                let mut won = 0;
                for job in jobs {
                    let wish = if n % 2 == 1 && verdict == "dead" { Wish::Discard } else { Wish::Requeue };
                    match grant(&mut operator, wish, job).await {
                        Ok(()) => won += 1,
                        Err(Error::WrongState { .. } | Error::NotFound { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                won
            }));
        }
        let mut won = 0;
        for operator in operators {
            won += operator.await.unwrap();
        }
        assert_eq!(won, 25, "jobs that were {verdict}");
        db.check_invariant().await;
        let left = claim(&mut connection, worker, 100).await.unwrap();
        assert_eq!(settle(&mut connection, &left.all("forget")).await.unwrap(), []);
    }
    db.finish().await;
}

#[tokio::test]
async fn all_dead_letters_of_a_filter_are_requeued_or_discarded_and_no_others() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for queue in ["mail", "mail", "web", "web", "web"] {
        Do { act: Act::Terminal("no".into()) }.enqueue(&db.pool).queue(queue).await.unwrap();
    }
    db.run_until_idle(db.worker()).await;
    let waiting = enqueue(&db, ok()).await;
    let mail = Filter { queue: Some("mail".into()), ..Filter::default() };
    let store = Store::default();
    assert_eq!(Queue::on(&mut connection).store(store).jobs().matching(&mail).requeue().await.unwrap().done, 2);
    assert_eq!(Queue::on(&mut connection).store(store).jobs().matching(&mail).requeue().await.unwrap().done, 0);
    let other_type = Filter::default().job_type("other");
    assert_eq!(Queue::on(&mut connection).store(store).jobs().matching(&other_type).discard().await.unwrap().done, 0);
    assert_eq!(Queue::on(&mut connection).store(store).jobs().discard().await.unwrap().done, 3);
    assert_eq!(db.count("select count(*) from queue.job").await, 3, "two requeued, one that waits");
    assert_eq!(db.count("select count(*) from queue.failure f where not exists (select from queue.job j where j.id = f.id)").await, 0);
    assert_eq!(db.state(waiting).await, Some(JobState::Ready));
    let hostile = Filter { queue: Some("'; drop table".into()), ..Filter::default() };
    assert!(matches!(Queue::on(&mut connection).store(store).jobs().matching(&hostile).discard().await, Err(Error::InvalidName { .. })));
    db.finish().await;
}

#[tokio::test]
async fn a_list_shows_every_job_once_the_newest_first_page_by_page() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let mut jobs = Vec::new();
    for state in STATES.iter().cycle().take(21).filter(|state| **state != "ready") {
        jobs.push(job_in(&db, &mut connection, state).await);
    }
    for _ in 0..4 {
        jobs.push(enqueue(&db, ok()).await);
    }
    jobs.reverse();
    for limit in [1, 4, 7, 1_000_000_000] {
        let mut filter = Filter { limit, ..Filter::default() };
        let mut seen = Vec::new();
        loop {
            let page = Queue::on(&mut connection).jobs().matching(&filter).list().await.unwrap();
            assert!(page.jobs.len() <= limit as usize);
            assert!(page.jobs.iter().all(|job| job.payload.is_none() && job.output.is_none() && job.failures.is_empty()));
            seen.extend(page.jobs.iter().map(|job| job.id));
            filter.before = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!(seen, jobs, "pages of {limit}");
    }
    for state in JobState::ALL {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let page = Queue::on(&mut connection).jobs().matching(&filter).list().await.unwrap();
        assert_eq!(
            i64::try_from(page.jobs.len()).unwrap(),
            db.count(&format!("select count(*) from queue.jobs where state = '{state}'")).await
        );
        assert!(page.jobs.iter().all(|job| job.state == state));
        for job in page.jobs {
            let found = JobRef::from_id(job.id).find(&mut connection).await.unwrap();
            assert_eq!((found.state, found.attempts), (state, job.attempts));
            assert!(found.payload.unwrap().get().contains("done"));
        }
    }
    db.finish().await;
}

#[tokio::test]
async fn statistics_count_every_job_once() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for state in STATES.iter().cycle().take(14).filter(|state| **state != "ready") {
        job_in(&db, &mut connection, state).await;
    }
    enqueue(&db, ok()).await;
    Do { act: ok() }.enqueue(&db.pool).queue("mail").await.unwrap();
    let store = Store::default();
    let counts = Queue::on(&mut connection).store(store).counts().await.unwrap();
    let count = |queue: &str, state| counts.iter().find(|count| count.queue == queue && count.state == state).map_or(0, |count| count.jobs);
    assert_eq!(JobState::ALL.map(|state| count("default", state)), [0, 2, 1, 2, 0, 4, 2, 2, 0], "{counts:?}");
    assert_eq!(count("mail", JobState::Ready), 1);
    assert!(counts.iter().all(|count| count.job_type == "do" && !count.partial));
    let oldest = Queue::on(&mut connection).store(store).oldest().await.unwrap();
    assert_eq!(oldest.iter().map(|first| first.queue.as_str()).collect::<Vec<_>>(), ["default", "mail"]);
    let workers = Queue::on(&mut connection).store(store).workers().await.unwrap();
    assert_eq!((workers.len(), workers.iter().map(|worker| worker.jobs).sum::<i64>()), (12, 2));
    assert!(workers.iter().all(|worker| worker.alive && worker.name == "by hand"));
    db.finish().await;
}

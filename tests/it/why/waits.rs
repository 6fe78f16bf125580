//! Tests the diagnosis of a job that is paused, scheduled for later, or blocked behind another job of its key.

use std::time::Duration;

use queue_core::{
    Handler, Job as _, JobId, JobResult, JobState, Queue,
    durable::Durable,
    job,
    operate::{CauseKind, Scope},
    options::KeyPolicy,
};
use serde::{Deserialize, Serialize};
use tests::{Act, Do};

use super::{TestDb, ask, busy, completes, cure, fact, first, go, kinds, ok, until_first};

#[tokio::test]
async fn a_pause_is_shown_with_its_operator_and_reason_and_resumed_by_the_command() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        tests::eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
        let (queue, job_type) = (Some("default".to_owned()), Some("do".to_owned()));
        for (queue, job_type) in [(queue.clone(), None), (None, job_type.clone()), (queue, job_type), (None, None)] {
            let scope = Scope { queue: queue.clone(), job_type: job_type.clone() };
            Queue::new(&db.pool).pause_with_reason(&scope, Some("it's over")).await.unwrap();
            Queue::new(&db.pool).until_paused(&scope).await.unwrap();
            let job = ok(&db).await;
            let cause = first(&db, job, CauseKind::Paused).await;
            let of = |name: &str| cause.facts.get(name).and_then(|value| value.as_str()).map(str::to_owned);
            assert_eq!((of("queue"), of("job_type"), of("reason").as_deref()), (queue, job_type, Some("it's over")));
            assert!(cause.message.contains(" since 2") && fact(&cause, "by").is_string(), "{}", cause.message);
            cure(&db, &cause).await;
            completes(&db, job).await;
        }
        let other = Scope { queue: Some("other".into()), job_type: None };
        Queue::new(&db.pool).pause(&other).await.unwrap();
        let other = Scope { queue: None, job_type: Some("marked".into()) };
        Queue::new(&db.pool).pause(&other).await.unwrap();
        let later = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id();
        assert_eq!(kinds(&ask(&db, later).await), [CauseKind::Scheduled], "what covers others is no cause");
        cure(&db, ask(&db, later).await.first()).await;
        completes(&db, later).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_scheduled_job_is_shown_with_its_last_error_and_hurried_by_the_command() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let retried = Do { act: Act::First(Box::new(Act::RetryIn(3_600_000)), Box::new(Act::Ok(String::new()))) };
        let retried = retried.enqueue(&db.pool).await.unwrap().id();
        let snoozed = Do { act: Act::Snooze(3_600_000, 2) }.enqueue(&db.pool).await.unwrap().id();
        for (job, attempts, expected) in [(retried, 1, "attempt 1 of 3 failed: later"), (snoozed, 0, "it is due at 2")] {
            db.until(job, JobState::Scheduled).await;
            let cause = first(&db, job, CauseKind::Scheduled).await;
            assert_eq!(*fact(&cause, "attempts"), attempts, "{cause:?}");
            assert!(cause.message.contains(expected), "{}", cause.message);
            cure(&db, &cause).await;
            completes(&db, job).await;
        }
    })
    .await;
    db.finish().await;
}

/// Durable job that sleeps for an hour.
#[job(name = "why_sleeper", durable)]
#[derive(Serialize, Deserialize)]
struct Sleeper;

impl Handler for Sleeper {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.sleep("cool down", Duration::from_hours(1)).await;
        Ok(())
    }
}

#[tokio::test]
async fn the_fix_is_none_for_a_sleep_and_a_deployment_or_discard_for_a_payload_that_is_not_read() {
    let db = TestDb::new().await;
    let sleeper = Sleeper.enqueue(&db.pool).await.unwrap().id();
    let by_sql = async |payload: &str| -> JobId {
        sqlx::query_scalar("select queue.enqueue('do', $1::jsonb, '{\"max_attempts\": 20}')")
            .bind(payload)
            .fetch_one(&db.pool)
            .await
            .unwrap()
    };
    let unfit = by_sql("{\"act\": 7}").await;
    let nested = (0..100).fold("{\"Ok\": \"\"}".to_owned(), |act, _| format!("{{\"First\": [{act}, {{\"Ok\": \"\"}}]}}"));
    let unreadable = by_sql(&format!("{{\"act\": {nested}}}")).await;
    db.run_while(super::worker(&db).register::<Sleeper>(), async {
        for (job, state, kind, expected) in [
            (sleeper, JobState::Scheduled, CauseKind::Scheduled, None),
            (unfit, JobState::Scheduled, CauseKind::Scheduled, Some("do what its error says, then `queue-worker run-now ID`")),
            (unreadable, JobState::Dead, CauseKind::Dead, Some("enqueue it again as its error says, then `queue-worker discard ID`")),
        ] {
            db.until(job, state).await;
            if job == unfit {
                // Adds the timeout of a wait and an earlier sleep to the journal. Neither is the reason for the delay.
                let journal = "insert into queue.step (id, at, ran_ms, attempt, name, until)
                    select s.id, now(), 0, 1, v.name, s.run_at - v.before from queue.scheduled s,
                        (values ('paid (timeout)', interval '0'), ('nap', interval '1 minute')) v (name, before)
                    where s.id = $1";
                sqlx::query(journal).bind(job).execute(&db.pool).await.unwrap();
            }
            let cause = until_first(&db, job, kind).await;
            assert_eq!(cause.fix, expected.map(|text| text.replace("ID", &job.to_string())), "{cause:?}");
            assert_eq!(cause.facts.get("sleep").and_then(|name| name.as_str()), (job == sleeper).then_some("cool down"), "{cause:?}");
            assert_eq!(cause.message.starts_with("it sleeps until 2"), job == sleeper, "{}", cause.message);
            let in_sql: String = sqlx::query_scalar("select message from queue.why($1)").bind(job).fetch_one(&db.pool).await.unwrap();
            assert_eq!(in_sql.starts_with("it sleeps until 2"), job == sleeper, "{in_sql}");
        }
        // An operator runs the job now. The job then continues its sleep.
        Queue::new(&db.pool).job(sleeper).run_now().await.unwrap();
        db.until(sleeper, JobState::Scheduled).await;
        let first = until_first(&db, sleeper, CauseKind::Scheduled).await;
        assert_eq!(*fact(&first, "sleep"), "cool down", "{first:?}");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_due_job_waits_for_a_worker_that_promotes() {
    let db = TestDb::new().await;
    let hour = Duration::from_hours(1);
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(hour).await.unwrap().id();
    db.age(hour).await;
    super::until_first(&db, job, CauseKind::NoWorker).await;
    assert_eq!(kinds(&ask(&db, job).await), [CauseKind::NoWorker, CauseKind::Due]);
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_behind_the_head_of_its_key_shows_the_heads_state() {
    let db = TestDb::new().await;
    Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("another").after(Duration::from_hours(1)).await.unwrap();
    let keyed = async |act: Act| Do { act }.enqueue(&db.pool).key("k").key_policy(KeyPolicy::Block).await.unwrap().id();
    db.run_while(super::worker(&db), async {
        let dies = Act::FirstThen(Box::new(Act::Terminal("not today".into())), Box::new(Act::UntilGo(Box::new(Act::Ok(String::new())))));
        let head = keyed(dies).await;
        db.until(head, JobState::Dead).await;
        let (between, job) = (keyed(Act::Ok(String::new())).await, keyed(Act::Ok(String::new())).await);
        let cause = first(&db, job, CauseKind::Blocked).await;
        assert_eq!(
            (fact(&cause, "head"), fact(&cause, "head_state"), fact(&cause, "between")),
            (&head.to_string().into(), &"dead".into(), &1.into())
        );
        assert!(cause.message.contains("not today") && cause.message.contains("requeued or discarded"), "{}", cause.message);
        cure(&db, &cause).await;
        db.until(head, JobState::Running).await;
        let cause = first(&db, job, CauseKind::Blocked).await;
        assert_eq!((fact(&cause, "head_state"), fact(&cause, "head_attempts")), (&"running".into(), &1.into()), "{cause:?}");
        assert!(cause.message.contains("runs on worker"), "{}", cause.message);
        go(&db).await;
        for job in [between, job] {
            completes(&db, job).await;
        }
        let later = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("k").after(Duration::from_hours(1)).await.unwrap().id();
        let job = keyed(Act::Ok(String::new())).await;
        let cause = first(&db, job, CauseKind::Blocked).await;
        assert_eq!((fact(&cause, "head"), fact(&cause, "head_state")), (&later.to_string().into(), &"scheduled".into()));
        cure(&db, &cause).await;
        completes(&db, job).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_free_key_waits_for_a_worker_that_promotes() {
    let db = TestDb::new().await;
    let keyed = async || Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("k").await.unwrap();
    let (head, job) = (keyed().await, keyed().await.id());
    head.cancel(&db.pool).await.unwrap();
    assert_eq!(kinds(&ask(&db, job).await), [CauseKind::NoWorker, CauseKind::KeyFree]);
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_passed_expiry_is_shown_and_a_job_that_has_begun_is_not_late() {
    let db = TestDb::new().await;
    let late = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).expires_in(Duration::from_millis(20)).await.unwrap().id();
    let cause = until_first(&db, late, CauseKind::PastExpiry).await;
    assert!(fact(&cause, "expires_at").is_string(), "{cause:?}");
    db.run_while(super::worker(&db), async {
        db.until(late, JobState::Expired).await;
        let cause = first(&db, late, CauseKind::Expired).await;
        assert!(cause.message.contains("no attempt started in time"), "{}", cause.message);
        let retried = Do { act: Act::RetryIn(3_600_000) }.enqueue(&db.pool).expires_in(Duration::from_secs(5)).await.unwrap().id();
        db.until(retried, JobState::Scheduled).await;
        sqlx::query("update queue.job set system = queue.with_expiry(system, now() - interval '1 s') where id = $1")
            .bind(retried)
            .execute(&db.pool)
            .await
            .unwrap();
        assert_eq!(kinds(&ask(&db, retried).await), [CauseKind::Scheduled]);
        sqlx::query("update queue.job set meta = null where id = $1").bind(retried).execute(&db.pool).await.unwrap();
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_due_paused_job_shows_the_pause_before_its_time() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let running = busy(&db).await;
        let later = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id();
        Queue::new(&db.pool).pause(&Scope::queue("default")).await.unwrap();
        assert_eq!(kinds(&ask(&db, later).await), [CauseKind::Scheduled, CauseKind::Paused], "the time comes first");
        assert_eq!(kinds(&ask(&db, running).await), [CauseKind::Running], "running jobs continue");
        go(&db).await;
        completes(&db, running).await;
    })
    .await;
    db.finish().await;
}

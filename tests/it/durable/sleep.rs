//! Tests sleeps. A sleep holds no slot, ends on time, and lets concurrent work finish first.

use std::time::Duration;

use queue_core::{
    Context, Failure, Job as _, JobState,
    middleware::{AttemptOutput, Middleware, Next, async_trait},
};

use super::{Part, Plan, db, done, pairs, plan, run_to, step};

#[tokio::test]
async fn a_sleep_holds_no_slot_and_the_job_continues_after_it() {
    let db = db().await;
    let parts = [step("a"), Part::Sleep("trial".into(), 3_600_000), step("b")];
    let jobs = [plan(parts.clone()).enqueue(&db.pool).await.unwrap().id(), plan(parts).enqueue(&db.pool).await.unwrap().id()];
    let worker = db.worker().register::<Plan>().queue("default", 1);
    db.run_while(worker, async {
        for job in jobs {
            db.until(job, JobState::Scheduled).await;
        }
        assert_eq!(db.count("select count(*) from queue.lease").await, 0);
        let due = "select count(*) from queue.scheduled s join queue.step t on t.id = s.id and t.name = 'trial'
            where s.run_at >= t.until and s.run_at < t.until + interval '30 s' and s.crashes = 0";
        assert_eq!(db.count(due).await, 2, "due when it ends, and not before");
        let pass = "update queue.scheduled set run_at = now(); update queue.step set until = now() where until is not null";
        db.run(pass).await;
        for job in jobs {
            db.until(job, JobState::Completed).await;
            assert_eq!(done(&db, job).await, pairs(&[("a", 1), ("b", 1)]));
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_sleep_that_an_operator_interrupts_continues() {
    let db = db().await;
    let job = plan([Part::Sleep("trial".into(), 3_600_000), step("b")]).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job, JobState::Scheduled).await;
        let until = "select count(*) from queue.scheduled s join queue.step t on t.id = s.id where s.run_at >= t.until";
        db.run(&format!("select queue.run_now({job})")).await;
        db.until_count(until, 1).await;
        assert_eq!(done(&db, job).await, []);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_has_begun_does_not_expire_in_its_sleep() {
    let db = db().await;
    let asleep = plan([Part::Sleep("trial".into(), 3_600_000)]).enqueue(&db.pool).expires_in(Duration::from_mins(5)).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>().queue("default", 5), async {
        db.until(asleep, JobState::Scheduled).await;
        let late = plan([]).enqueue(&db.pool).queue("unserved").expires_in(Duration::from_mins(5)).await.unwrap().id();
        let statement = "update queue.expiry set at = now() - interval '1 s';
            update queue.job set system = jsonb_set(system, '{expires_at}', to_jsonb(queue.expiry_text(now() - interval '1 s')))
            where system ? 'expires_at'";
        db.run(statement).await;
        db.run("select from queue.expire_due('-infinity', 100)").await;
        db.until(late, JobState::Expired).await;
        sqlx::query("select queue.run_now($1)").bind(asleep).execute(&db.pool).await.unwrap();
        db.until_count("select count(*) from queue.scheduled where attempts = 1 and run_at > now() + interval '1 min'", 1).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_query_beside_a_sleep_may_become_a_step_before_the_attempt_ends() {
    let db = db().await;
    let job = plan([Part::Slow(3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Scheduled).await;
    assert_eq!(done(&db, job).await, pairs(&[("welcome", 1)]), "the step came first");
    db.finish().await;
}

/// Middleware that records each attempt whose handler returns. When a durable job sleeps, the middleware's future is dropped together
/// with the handler's.
struct Counts;

#[async_trait]
impl Middleware for Counts {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let result = next.run().await;
        sqlx::query("insert into done_by (job, what, attempt) values ($1, 'after', 0)").bind(cx.id()).execute(cx.pool()).await?;
        result
    }
}

#[tokio::test]
async fn middleware_runs_around_each_attempt_of_a_durable_job() {
    let db = db().await;
    let job = plan([Part::Sleep("trial".into(), 3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>().middleware(Counts), async {
        db.until(job, JobState::Scheduled).await;
        assert_eq!(done(&db, job).await, []);
        let pass = "update queue.scheduled set run_at = now(); update queue.step set until = now() where until is not null";
        db.run(pass).await;
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!(done(&db, job).await, pairs(&[("after", 0)]));
    db.finish().await;
}

/// Middleware that records `is_last_attempt` for each attempt.
struct RecordsLastAttempt;

#[async_trait]
impl Middleware for RecordsLastAttempt {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let text = if cx.is_last_attempt() { "last" } else { "not last" };
        let statement = sqlx::query("insert into done_by (job, what, attempt) values ($1, $2, $3)").bind(cx.id()).bind(text);
        statement.bind(i64::from(cx.attempt())).execute(cx.pool()).await?;
        next.run().await
    }
}

/// Waits until `jobs` jobs are sleeping, then simulates that their wake-up time has passed.
async fn pass(db: &tests::TestDb, jobs: i64) {
    let asleep = "select count(*) from queue.scheduled where run_at > now() + interval '1 min'";
    db.until_count(asleep, jobs).await;
    let pass = "update queue.step set until = now() where until is not null; update queue.scheduled set run_at = now()";
    db.run(pass).await;
}

#[tokio::test]
async fn middleware_knows_as_the_handler_does_whether_an_attempt_is_the_last() {
    let db = db().await;
    // The second attempt continues after its sleep, because a sleep does not use up an attempt.
    let parts = [Part::FailOnce("a".into()), Part::Sleep("trial".into(), 3_600_000)];
    let job = plan(parts).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>().middleware(RecordsLastAttempt), async {
        pass(&db, 1).await;
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!(done(&db, job).await, pairs(&[("last", 2), ("not last", 1), ("not last", 2)]));
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_may_expire_has_as_many_tries_as_any_other_whether_it_slept_or_failed_in_its_first() {
    let db = db().await;
    let fails = || Part::Fail("as told".into());
    let slept = [Part::Sleep("trial".into(), 3_600_000), fails()];
    let (later, failed) = ([Part::FailOnce("a".into()), slept[0].clone(), fails()], [Part::FailOnce("a".into()), fails()]);
    let (mut jobs, day) = (Vec::new(), Duration::from_hours(24));
    for parts in [slept.to_vec(), later.to_vec(), failed.to_vec()] {
        jobs.push(plan(parts.clone()).enqueue(&db.pool).await.unwrap().id());
        jobs.push(plan(parts).enqueue(&db.pool).expires_in(day).await.unwrap().id());
    }
    db.run_while(db.worker().register::<Plan>(), async {
        pass(&db, 4).await;
        for job in &jobs {
            db.until(*job, JobState::Dead).await;
        }
    })
    .await;
    let mut failures = Vec::new();
    for job in &jobs {
        failures.push(db.count(&format!("select count(*) from queue.failure where id = {job}")).await);
    }
    // The jobs that sleep during the second attempt fail three times: once before the sleep and twice afterwards.
    assert_eq!(failures, [2, 2, 3, 3, 2, 2]);
    db.finish().await;
}

#[tokio::test]
async fn crashes_before_a_sleep_or_a_wait_no_longer_count_after_it() {
    let db = db().await;
    let sleeps = plan([Part::Sleep("trial".into(), 3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    let waits = plan([Part::Receive("paid".into())]).enqueue(&db.pool).await.unwrap().id();
    db.run("update queue.ready set crashes = 2").await;
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(sleeps, JobState::Scheduled).await;
        db.until(waits, JobState::Parked).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.scheduled where crashes = 0").await, 1);
    assert_eq!(db.count("select count(*) from queue.parked where crashes = 0").await, 1);
    db.finish().await;
}

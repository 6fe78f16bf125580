//! Sleeps: they hold no slot, end when they are to, and let what runs beside them come first.

use std::time::Duration;

use queue_core::{AttemptOutput, Context, Failure, Job as _, JobState, Middleware, Next, async_trait};
use tests::eventually;

use super::{Part, Plan, db, done, journal, output, pairs, plan, run_to, step};

#[tokio::test]
async fn a_sleep_holds_no_slot_and_goes_on_where_it_was() {
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
        assert_eq!(db.count(due).await, 2, "due when it is over, and not before");
        let pass = "update queue.scheduled set run_at = now(); update queue.step set until = now() where until is not null";
        sqlx::raw_sql(pass).execute(&db.pool).await.unwrap();
        for job in jobs {
            db.until(job, JobState::Completed).await;
            assert_eq!(done(&db, job).await, pairs(&[("a", 1), ("b", 1)]));
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_sleep_that_is_cut_short_by_an_operator_sleeps_on() {
    let db = db().await;
    let job = plan([Part::Sleep("trial".into(), 3_600_000), step("b")]).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job, JobState::Scheduled).await;
        let until = "select count(*) from queue.scheduled s join queue.step t on t.id = s.id where s.run_at >= t.until";
        sqlx::query("select queue.run_now($1)").bind(job).execute(&db.pool).await.unwrap();
        eventually("it sleeps on", async || db.count(until).await == 1).await;
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
        let over = "update queue.expiry set at = now() - interval '1 s';
            update queue.job set meta = jsonb_set(meta, '{expires_at}', to_jsonb(queue.expiry_text(now() - interval '1 s')))
            where meta ? 'expires_at'";
        sqlx::raw_sql(over).execute(&db.pool).await.unwrap();
        sqlx::query("select from queue.expire_due('-infinity', 100)").execute(&db.pool).await.unwrap();
        db.until(late, JobState::Expired).await;
        sqlx::query("select queue.run_now($1)").bind(asleep).execute(&db.pool).await.unwrap();
        eventually("it sleeps on", async || {
            db.count("select count(*) from queue.scheduled where attempts = 1 and run_at > now() + interval '1 min'").await == 1
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn short_sleeps_are_waited_for_in_place_and_a_step_beside_a_sleep_comes_first() {
    let db = db().await;
    let job = plan([Part::Sleep("nap".into(), 30), Part::Race(40)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Completed).await;
    assert_eq!(output(&db, job).await, serde_json::json!(["slept"]));
    let job = plan([Part::Beside(3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Scheduled).await;
    assert_eq!((done(&db, job).await, journal(&db, job).await.len()), (pairs(&[("beside", 1)]), 2));
    let job = plan([Part::Race(3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Scheduled).await;
    db.finish().await;
}

#[tokio::test]
async fn what_is_read_beside_a_sleep_may_become_a_step_before_the_attempt_is_left() {
    let db = db().await;
    let job = plan([Part::Slow(3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Scheduled).await;
    assert_eq!(done(&db, job).await, pairs(&[("welcome", 1)]), "the step came first");
    db.finish().await;
}

/// What stands around the handler of a durable job is dropped with it.
struct Counts;

#[async_trait]
impl Middleware for Counts {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let said = next.run().await;
        sqlx::query("insert into done_by (job, what, attempt) values ($1, 'after', 0)").bind(cx.id()).execute(cx.pool()).await?;
        said
    }
}

#[tokio::test]
async fn middleware_stands_around_each_attempt_of_a_durable_job() {
    let db = db().await;
    let job = plan([Part::Sleep("trial".into(), 3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Plan>().middleware(Counts), async {
        db.until(job, JobState::Scheduled).await;
        assert_eq!(done(&db, job).await, []);
        let pass = "update queue.scheduled set run_at = now(); update queue.step set until = now() where until is not null";
        sqlx::raw_sql(pass).execute(&db.pool).await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!(done(&db, job).await, pairs(&[("after", 0)]));
    db.finish().await;
}

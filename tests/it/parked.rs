//! Tests verdicts that the server keeps rejecting. The worker still writes its other verdicts. The job of a rejected verdict ends with a
//! visible error.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, Within, eventually,
    protocol::{self, claim, park, register, settle},
    within,
};
use uuid::Uuid;

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Makes an insert into the table fail with the SQLSTATE `code` if the row `new` meets `condition`.
async fn refuse(db: &TestDb, table: &str, condition: &str, code: &str) {
    let trigger = format!(
        "create function public.refuse_{table}() returns trigger language plpgsql as $$
         begin if {condition} then raise exception 'as told' using errcode = '{code}'; end if; return new; end $$;
         create trigger refuse before insert on queue.{table} for each row execute function public.refuse_{table}()"
    );
    sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&db.pool).await.unwrap();
}

/// Checks that the worker completes other jobs while one of its verdicts is rejected.
async fn others_go_on(db: &TestDb, acts: impl Fn(usize) -> Act) {
    for n in 0..20 {
        let job = enqueue(db, acts(n)).await;
        eventually("an ordinary job is completed", async || db.state(job).await == Some(JobState::Completed)).await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_a_second_entry_of_a_running_job_stops_no_verdict_and_is_dropped() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::UntilCancelled(Box::new(Act::Ok("never".into())))).await;
    let forge = "insert into queue.ready (lane, seq, id) select lane, queue.next_id(), id from queue.job where id = $1";
    let twice =
        enqueue(&db, Act::First(Box::new(Act::Slowly(300, Box::new(Act::Ok("twice".into())))), Box::new(Act::Ok(String::new())))).await;
    db.run_while(db.worker(), async {
        db.until(twice, JobState::Running).await;
        sqlx::query(forge).bind(twice).execute(&db.pool).await.unwrap();
        eventually("both have ended", async || db.count("select count(*) from queue.lease where 1 < cardinality(ids)").await == 0).await;
        others_go_on(&db, |_| Act::Ok("x".into())).await;
        let left = format!("select count(*) from queue.lease where {twice} = any (ids)");
        within(Duration::from_secs(20), "it has left both leases", async || db.count(&left).await == 0).await;
        assert_eq!(db.state(twice).await, Some(JobState::Completed));
        assert_eq!(db.state(job).await, Some(JobState::Running), "who has nothing to do with it runs on");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_a_permanently_refused_verdict_becomes_a_dead_letter_with_the_reason_and_others_are_written() {
    let db = TestDb::new().await;
    let bad = enqueue(&db, Act::Slowly(200, Box::new(Act::Ok("bad".into())))).await;
    refuse(&db, "done", &format!("new.id = {bad}"), "23514").await;
    let plain = enqueue(&db, Act::Ok("plain".into())).await;
    db.run_while(db.worker(), async {
        others_go_on(&db, |_| Act::Ok("x".into())).await;
        within(Duration::from_secs(20), "it is parked", async || db.state(bad).await == Some(JobState::Dead)).await;
        others_go_on(&db, |_| Act::Ok("x".into())).await;
    })
    .await;
    assert_eq!(db.state(plain).await, Some(JobState::Completed));
    let (attempts, error): (i16, String) =
        sqlx::query_as("select attempts, error from queue.dead where id = $1").bind(bad).fetch_one(&db.pool).await.unwrap();
    assert_eq!(attempts, 1);
    assert!(error.contains("`complete` cannot be stored") && error.contains("as told (23514)"), "{error}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_one_job_that_is_refused_harms_no_other_of_its_whole_lease() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..50 {
        jobs.push(Nothing.enqueue(&db.pool).await.unwrap().id());
    }
    refuse(&db, "done_many", &format!("{} = any (new.ids)", jobs[17]), "P0001").await;
    let worker = queue_worker::Worker::new(db.pool.clone()).register::<Nothing>();
    db.run_while(worker, async {
        for (nth, job) in jobs.iter().enumerate() {
            let expected = if nth == 17 { JobState::Dead } else { JobState::Completed };
            within(Duration::from_secs(20), "it has ended", async || db.state(*job).await == Some(expected)).await;
        }
    })
    .await;
    db.finish().await;
}

#[queue_core::job]
#[derive(serde::Serialize, serde::Deserialize)]
struct Nothing;

impl queue_core::Handler for Nothing {
    async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn f66_if_not_even_a_dead_letter_can_be_written_the_job_stays_in_its_lease_and_others_continue() {
    let db = TestDb::new().await;
    let bad = enqueue(&db, Act::Ok("bad".into())).await;
    for table in ["done", "dead"] {
        refuse(&db, table, &format!("new.id = {bad}"), "23514").await;
    }
    db.run_while(db.worker(), others_go_on(&db, |_| Act::Ok("x".into()))).await;
    assert_eq!(db.state(bad).await, Some(JobState::Running), "for the worker that recovers it");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_while_no_verdict_at_all_can_be_written_no_job_is_blamed() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(enqueue(&db, Act::Ok("x".into())).await);
    }
    sqlx::raw_sql("alter table queue.done rename to hidden").execute(&db.pool).await.unwrap();
    db.run_while(db.worker(), async {
        let begun = "select count(*) from effect";
        eventually("all have run", async || db.count(begun).await == 5).await;
        // Sleeps for longer than the retries of a rejected verdict take, which is about seven seconds.
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(db.count("select count(*) from queue.dead").await, 0);
        sqlx::raw_sql("alter table queue.hidden rename to done").execute(&db.pool).await.unwrap();
        for job in jobs {
            within(Duration::from_secs(40), "it is completed", async || db.state(job).await == Some(JobState::Completed)).await;
        }
    })
    .await;
    db.finish().await;
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Returns the jobs that remain in a lease, or `None` if the lease is gone.
async fn remaining_jobs(on: &mut PgConnection, token: Uuid) -> Option<Vec<JobId>> {
    sqlx::query_scalar("select ids from queue.lease where token = $1").bind(token).fetch_optional(on).await.unwrap()
}

#[tokio::test]
async fn f66_only_the_holder_parks_a_job_and_the_others_of_its_lease_stay() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for _ in 0..3 {
        enqueue(&db, Act::Panic).await;
    }
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 2).await.unwrap();
    let other = claim(&mut on, worker, 1).await.unwrap();
    assert_eq!(park(&mut on, lease.one(0, "dead")).await.unwrap(), Some(true));
    assert_eq!(remaining_jobs(&mut on, lease.token).await, Some(vec![lease.jobs[1].id]));
    assert_eq!(park(&mut on, lease.one(0, "dead")).await.unwrap(), None, "twice is once");
    assert_eq!(park(&mut on, lease.one(1, "dead")).await.unwrap(), Some(true));
    assert_eq!((remaining_jobs(&mut on, lease.token).await, remaining_jobs(&mut on, other.token).await), (None, Some(other.ids())));
    assert_eq!(settle(&mut on, &lease.all("complete")).await.unwrap().len(), 2, "others have them");
    db.finish().await;
}

#[tokio::test]
async fn f66_a_job_that_has_another_entry_only_leaves_the_lease() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    let forged = [
        "insert into queue.ready (lane, seq, id) select lane, queue.next_id(), id from queue.job where id = $1",
        "insert into queue.ready (lane, seq, id) select lane, id, id from queue.job where id = $1",
        "insert into queue.scheduled (run_at, id, lane) select now() + interval '1 day', id, lane from queue.job where id = $1",
        "insert into queue.done (id, finished_at, ran_ms, attempts) select id, now(), 1, 1 from queue.job where id = $1",
        "insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'x' from queue.job where id = $1",
        "insert into queue.lease (token, worker, ids, attempts, crashes) select gen_random_uuid(), gen_random_uuid(), array[id], '{1}', '{0}'
         from queue.job where id = $1",
    ];
    for statement in forged {
        let job = enqueue(&db, Act::Panic).await;
        let lanes: Vec<i64> = sqlx::query_scalar("select lane from queue.job where id = $1").bind(job).fetch_all(&mut on).await.unwrap();
        let lease = protocol::claim_of(&mut on, worker, &lanes, &[job.0], &[1], 1).await.unwrap();
        assert_eq!(lease.ids(), [job]);
        sqlx::query(statement).bind(job).execute(&mut on).await.unwrap();
        assert_eq!(park(&mut on, lease.one(0, "complete")).await.unwrap(), Some(false), "{statement}");
        db.check_invariant().await;
    }
    db.finish().await;
}

#[tokio::test]
async fn f66_a_parked_job_frees_its_ordering_key_only_if_that_skips_the_dead() {
    for skips in [false, true] {
        let db = TestDb::new().await;
        let mut on = connect(&db).await;
        for _ in 0..2 {
            Do { act: Act::Panic }.enqueue(&db.pool).key("k").await.unwrap();
        }
        let elsewhere = Do { act: Act::Panic }.enqueue(&db.pool).key("other").await.unwrap().id();
        let system = skips.then(|| serde_json::json!({ "skips": true }));
        sqlx::query("update queue.job set system = $1").bind(system).execute(&mut on).await.unwrap();
        sqlx::query("select * from queue.unblock(0, 100)").execute(&mut on).await.unwrap();
        let worker = register(&mut on).await.unwrap();
        let lease = claim(&mut on, worker, 2).await.unwrap();
        assert_eq!(lease.jobs.len(), 2, "a head of each key");
        let at = usize::from(lease.jobs[0].id == elsewhere);
        sqlx::query("delete from queue.key_hint").execute(&mut on).await.unwrap();
        assert_eq!(park(&mut on, lease.one(at, "complete")).await.unwrap(), Some(true));
        assert_eq!(db.count("select count(*) from queue.active_key").await, if skips { 1 } else { 2 });
        assert_eq!(db.count("select count(*) from queue.key_hint").await, i64::from(skips));
        db.finish().await;
    }
}

/// Job that fails immediately, or completes without an output once it is released.
#[queue_core::job(max_attempts = 1)]
#[derive(serde::Serialize, serde::Deserialize)]
struct Outlast {
    fails: bool,
}

static RELEASE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

impl queue_core::Handler for Outlast {
    async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
        if self.fails {
            return Err(queue_core::Failure::terminal("as told"));
        }
        RELEASE.acquire().await.unwrap().forget();
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_a_refused_verdict_is_not_completed_with_the_rest_of_its_lease() {
    for (tables, end) in [(&["failure"][..], JobState::Dead), (&["failure", "dead"], JobState::Running)] {
        let db = TestDb::new().await;
        let bad = Outlast { fails: true }.enqueue(&db.pool).await.unwrap().id();
        let good = Outlast { fails: false }.enqueue(&db.pool).await.unwrap().id();
        let mut refused = String::new();
        for table in tables {
            // A sequence keeps its value after a rollback, so it records that the row was rejected.
            sqlx::raw_sql(AssertSqlSafe(format!("create sequence public.of_{table}"))).execute(&db.pool).await.unwrap();
            refuse(&db, table, &format!("new.id = {bad} and nextval('public.of_{table}') > 0"), "P0001").await;
            refused = format!("select count(*) from public.of_{table} where is_called");
        }
        let worker = queue_worker::Worker::new(db.pool.clone()).register::<Outlast>();
        db.run_while(worker, async {
            within(Duration::from_secs(20), "the failure is refused", async || db.count(&refused).await > 0).await;
            RELEASE.add_permits(1);
            eventually("the other is completed", async || db.state(good).await == Some(JobState::Completed)).await;
            within(Duration::from_secs(20), "it is parked", async || db.state(bad).await == Some(end)).await;
        })
        .await;
        db.finish().await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f66_a_transactional_job_whose_ending_is_refused_is_charged_and_dead_in_the_end() {
    for (table, reason) in [("done", "cannot be committed"), ("scheduled", "`retry` cannot be stored")] {
        let db = TestDb::new().await;
        let how = if table == "done" { "complete" } else { "fail" };
        let bad = Within { how: how.to_owned() }.enqueue(&db.pool).await.unwrap().id();
        let good = Within { how: "complete".to_owned() }.enqueue(&db.pool).await.unwrap().id();
        refuse(&db, table, &format!("new.id = {bad}"), "23514").await;
        db.run_while(db.worker().register::<Within>(), async {
            within(Duration::from_secs(20), "it is dead", async || db.state(bad).await == Some(JobState::Dead)).await;
            eventually("the other is completed", async || db.state(good).await == Some(JobState::Completed)).await;
        })
        .await;
        let error: String = sqlx::query_scalar("select error from queue.dead where id = $1").bind(bad).fetch_one(&db.pool).await.unwrap();
        assert!(error.contains(reason) && error.contains("as told (23514)"), "{error}");
        assert_eq!(db.count("select count(*) from effect").await, 1, "nothing is left of what it wrote");
        db.finish().await;
    }
}

//! Tests operations on waiting jobs, by id and by filter. Also tests operations that run concurrently with claims or with other
//! operations.

mod locked;

use std::time::{Duration, Instant};

use chrono::Utc;
use queue_core::{
    Error, Job as _, JobId, JobRef, JobState, Queue, Store,
    operate::{Filter, Operation, OperationOutcome},
};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, effects, eventually, operate,
    protocol::{Lease, claim, recover, register, settle, silence},
};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

fn ok() -> Do {
    Do { act: Act::Ok("x".into()) }
}

async fn enqueue(db: &TestDb) -> JobId {
    ok().enqueue(&db.pool).await.unwrap().id()
}

async fn scheduled(db: &TestDb) -> JobId {
    ok().enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id()
}

async fn act(on: &mut PgConnection, id: JobId, what: Operation) -> Result<OperationOutcome, Error> {
    JobRef::from_id(id).apply(on, what).await
}

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn f57_each_operation_fits_its_states_and_names_any_other() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    let mut jobs = Vec::new();
    for verdict in ["plain", "complete", "dead", "cancel", ""] {
        let job = enqueue(&db).await;
        let lease = claim(&mut on, worker, 1).await.unwrap();
        if !verdict.is_empty() {
            assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), []);
        }
        jobs.push(job);
    }
    let waiting = [Operation::Reschedule(Utc::now() + HOUR), Operation::Snooze(HOUR), Operation::Priority(7)];
    for (job, state) in jobs.iter().zip(["completed", "completed", "dead", "cancelled", "running"]) {
        for what in waiting.into_iter().chain([Operation::RunNow]) {
            let error = act(&mut on, *job, what).await.unwrap_err();
            assert!(matches!(error, Error::WrongState { .. }) && error.to_string().contains(&format!("is {state};")), "{what:?}: {error}");
        }
        let refusal = sqlx::query("select queue.run_now($1)").bind(job).execute(&mut on).await.unwrap_err();
        assert!(refusal.to_string().contains(&format!("is {state}; only a job that is scheduled or parked can be run now")), "{refusal}");
    }
    for what in waiting {
        for job in [enqueue(&db).await, scheduled(&db).await] {
            assert_eq!(act(&mut on, job, what).await.unwrap(), OperationOutcome::Done, "{what:?}");
            db.check_invariant().await;
        }
    }
    let ready = enqueue(&db).await;
    assert!(act(&mut on, ready, Operation::RunNow).await.unwrap_err().to_string().contains("is ready; only"));
    assert!(matches!(act(&mut on, JobId(7), Operation::RunNow).await, Err(Error::NotFound { job: JobId(7) })));
    let far = act(&mut on, ready, Operation::Snooze(Duration::MAX)).await;
    assert!(matches!(far, Err(Error::OutOfRange { .. })), "{far:?}");
    let century = Duration::from_hours(100 * 365 * 24);
    assert_eq!(act(&mut on, ready, Operation::Snooze(century)).await.unwrap(), OperationOutcome::Done);
    let never = act(&mut on, ready, Operation::Reschedule("+99999-01-01T00:00:00Z".parse().unwrap())).await;
    assert!(matches!(never, Err(Error::OutOfRange { .. })), "{never:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_handle_does_the_same_and_refuses_the_same() {
    let db = TestDb::new().await;
    let handle = ok().enqueue(&db.pool).await.unwrap();
    handle.snooze(&db.pool, HOUR).await.unwrap();
    handle.set_priority(&db.pool, 7).await.unwrap();
    handle.run_now(&db.pool).await.unwrap();
    handle.reschedule(&db.pool, Utc::now() + HOUR).await.unwrap();
    assert_eq!(db.state(handle.id()).await, Some(JobState::Scheduled));
    let mut tx = db.pool.begin().await.unwrap();
    assert_eq!(handle.cancel(&mut tx).await.unwrap(), OperationOutcome::Done);
    tx.rollback().await.unwrap();
    assert_eq!(db.state(handle.id()).await, Some(JobState::Scheduled), "in the caller's transaction");
    assert_eq!(handle.cancel(&db.pool).await.unwrap(), OperationOutcome::Done);
    let error = handle.run_now(&db.pool).await.unwrap_err();
    assert!(matches!(&error, Error::WrongState { state: JobState::Cancelled, .. }), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn of_an_operation_and_a_claim_exactly_one_wins() {
    let db = TestDb::new().await;
    for what in [Operation::Snooze(HOUR), Operation::Priority(-5)] {
        let mut jobs = Vec::new();
        for _ in 0..60 {
            jobs.push(enqueue(&db).await);
        }
        let (mut claimer, mut operator) = (connect(&db).await, connect(&db).await);
        let worker = register(&mut claimer).await.unwrap();
        let claiming = tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..20 {
                taken.extend(claim(&mut claimer, worker, 2).await.unwrap().ids());
            }
            taken
        });
        let (mut changed, mut refused) = (0, 0);
        for job in jobs.iter().rev() {
            match act(&mut operator, *job, what).await {
                Ok(_) => changed += 1,
                Err(Error::WrongState { state: JobState::Running, .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let taken = claiming.await.unwrap();
        assert!(changed + refused == jobs.len() && refused <= taken.len(), "{changed} {refused} {}", taken.len());
        if let Operation::Snooze(_) = what {
            assert_eq!(db.count("select count(*) from queue.scheduled").await, i64::try_from(changed).unwrap());
        }
        db.check_invariant().await;
        sqlx::query("truncate queue.ready, queue.job, queue.scheduled, queue.lease").execute(&db.pool).await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn concurrent_operators_leave_each_job_one_entry() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..30 {
        jobs.extend([enqueue(&db).await, scheduled(&db).await]);
    }
    let mut crew = Vec::new();
    for what in [Operation::Snooze(HOUR), Operation::RunNow, Operation::Priority(3), Operation::Priority(9), Operation::Cancel] {
        let (mut on, jobs) = (connect(&db).await, jobs.clone());
        crew.push(tokio::spawn(async move {
            for job in jobs {
                match act(&mut on, job, what).await {
                    Ok(_) | Err(Error::WrongState { .. } | Error::Locked { .. }) => {}
                    Err(error) => panic!("{what:?}: {error}"),
                }
            }
            Queue::on(&mut on).jobs().apply(what).await.unwrap();
        }));
    }
    for one in crew {
        one.await.unwrap();
    }
    db.check_invariant().await;
    Queue::on(&mut connect(&db).await).jobs().apply(Operation::Cancel).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 60);
    db.finish().await;
}

#[tokio::test]
async fn a_new_priority_survives_retry_recovery_and_requeue() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = enqueue(&db).await;
    let priority = async |job: JobId| {
        sqlx::query_as::<_, (i16, String)>("select priority, state from queue.jobs where id = $1")
            .bind(job)
            .fetch_one(&db.pool)
            .await
            .unwrap()
    };
    let worker = register(&mut on).await.unwrap();
    act(&mut on, job, Operation::Priority(150)).await.unwrap();
    assert_eq!(priority(job).await, (150, "ready".into()));
    let lease = claim(&mut on, worker, 1).await.unwrap();
    assert_eq!(settle(&mut on, &lease.all("retry")).await.unwrap(), []);
    assert_eq!(priority(job).await, (150, "scheduled".into()));
    act(&mut on, job, Operation::Priority(-3)).await.unwrap();
    act(&mut on, job, Operation::RunNow).await.unwrap();
    assert_eq!(priority(job).await, (-3, "ready".into()));
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [job]);
    silence(&mut on, worker).await.unwrap();
    assert_eq!(recover(&mut on).await.unwrap(), 1);
    assert_eq!(priority(job).await, (-3, "ready".into()));
    act(&mut on, job, Operation::Priority(40)).await.unwrap();
    let solo = "select count(*) from queue.ready r join queue.lane l using (lane) where l.solo and l.priority = 40";
    assert_eq!(db.count(solo).await, 1, "a quarantined job stays quarantined");
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    assert_eq!(settle(&mut on, &lease.all("dead")).await.unwrap(), []);
    JobRef::from_id(job).requeue(&mut on).await.unwrap();
    assert_eq!(priority(job).await, (40, "ready".into()));
    let found = JobRef::from_id(job).find(&mut on).await.unwrap();
    assert_eq!((found.priority, found.state), (40, JobState::Ready));
    act(&mut on, job, Operation::Cancel).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn postponed_and_hurried_jobs_run_when_they_should() {
    let db = TestDb::new().await;
    let (later, now) = (enqueue(&db).await, scheduled(&db).await);
    let mut on = connect(&db).await;
    act(&mut on, later, Operation::Snooze(Duration::from_millis(300))).await.unwrap();
    let began = Instant::now();
    db.run_while(db.worker(), async {
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        db.until(later, JobState::Completed).await;
        assert!(began.elapsed() > Duration::from_millis(250));
        act(&mut on, now, Operation::RunNow).await.unwrap();
        db.until(now, JobState::Completed).await;
        let earlier = scheduled(&db).await;
        act(&mut on, earlier, Operation::Reschedule(Utc::now() - HOUR)).await.unwrap();
        db.until(earlier, JobState::Completed).await;
        let raised = scheduled(&db).await;
        act(&mut on, raised, Operation::Priority(200)).await.unwrap();
        act(&mut on, raised, Operation::RunNow).await.unwrap();
        db.until(raised, JobState::Completed).await;
        assert_eq!(effects(&db.pool, raised).await.unwrap(), 1);
    })
    .await;
    db.finish().await;
}

/// Creates ready jobs in queue `a`, and jobs in queue `b` that are scheduled for a retry after an error.
async fn fill(on: &mut PgConnection, ready: i32, retries: i32) {
    let fill = "with j as (
         insert into queue.job (id, lane, max_attempts, payload)
         select queue.next_id(), queue.lane_id(case when n <= $1 then 'a' else 'b' end, 'do', 100::smallint, false), 3, '{\"act\":{\"Ok\":\"x\"}}'
         from generate_series(1, $1 + $2) n returning id, lane),
       r as (insert into queue.ready (lane, seq, id) select lane, id, id from j where lane = queue.lane_id('a', 'do', 100::smallint, false)),
       s as (insert into queue.scheduled (run_at, id, lane, attempts)
         select now() + interval '1 hour', id, lane, 1 from j where lane <> queue.lane_id('a', 'do', 100::smallint, false) returning id)
       insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now(), 1, case when id % 2 = 0 then '100% <late>' else 'odd' end from s";
    sqlx::query("select queue.ensure_lane(q, 'do', 100::smallint, false) from unnest(array['a', 'b']) q").execute(&mut *on).await.unwrap();
    sqlx::query(fill).bind(ready).bind(retries).execute(on).await.unwrap();
}

#[tokio::test]
async fn all_of_a_kind_are_changed_in_batches_and_counted_before() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    fill(&mut on, 2500, 1200).await;
    let store = Store::default();
    let a = Filter { queue: Some("a".into()), ..Filter::default() };
    let late = Filter { error: Some("100% <late>".into()), ..Filter::default() };
    let even = u64::try_from(db.count("select count(*) from queue.scheduled where id % 2 = 0").await).unwrap();
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&a).apply(Operation::Cancel).count().await.unwrap(), 2500);
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&late).apply(Operation::RunNow).count().await.unwrap(), even);
    assert_eq!(db.count("select count(*) from queue.ready").await, 2500, "counting changes nothing");
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&a).apply(Operation::Priority(7)).await.unwrap().done, 2500);
    assert_eq!(
        Queue::on(&mut on).store(store).jobs().matching(&a).apply(Operation::Priority(7)).await.unwrap().done,
        0,
        "they are as they should be"
    );
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&late).apply(Operation::RunNow).await.unwrap().done, even);
    let fresh = Filter { older_than: Some(HOUR), ..Filter::default() };
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&fresh).apply(Operation::Cancel).count().await.unwrap(), 0);
    let all = Filter { since: Some(Duration::MAX), ..Filter::default() };
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&all).apply(Operation::Snooze(HOUR)).await.unwrap().done, 3700, "each once");
    assert_eq!(db.count("select count(*) from queue.scheduled").await, 3700);
    let wrong = Filter { state: Some(JobState::Dead), ..Filter::default() };
    let error = Queue::on(&mut on).store(store).jobs().matching(&wrong).apply(Operation::Cancel).await.unwrap_err();
    assert!(error.to_string().contains("state is dead; it must be blocked, scheduled, parked, ready or running"), "{error}");
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&all).apply(Operation::Cancel).await.unwrap().done, 3700);
    db.finish().await;
}

#[tokio::test]
async fn a_bulk_operation_reads_only_its_jobs_when_statistics_show_empty_tables() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    // Leave planner statistics that describe the tables as empty, for example after an idle period.
    fill(&mut on, 2000, 2000).await;
    let empty = "delete from queue.ready; delete from queue.scheduled; delete from queue.failure; delete from queue.job; analyze queue.ready; analyze queue.scheduled";
    sqlx::raw_sql(empty).execute(&mut on).await.unwrap();
    fill(&mut on, 20_000, 20_000).await;
    let some = "(select id from queue.ready limit 1000) union all (select id from queue.scheduled limit 1000)";
    let ids: Vec<JobId> = sqlx::query_scalar(some).fetch_all(&mut on).await.unwrap();
    // Each operation takes milliseconds. With a table scan per job, an operation would take minutes.
    sqlx::raw_sql("set statement_timeout = '15s'").execute(&mut on).await.unwrap();
    assert_eq!(operate::set_priority(&mut on, &ids, 9).await.unwrap().len(), 2000);
    assert_eq!(operate::reschedule(&mut on, &ids).await.unwrap().len(), 2000);
    assert_eq!(operate::run_now(&mut on, &ids).await.unwrap().len(), 2000);
    assert_eq!(operate::cancel(&mut on, &ids).await.unwrap().len(), 2000);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn cancelling_a_queue_includes_jobs_that_wait_behind_others() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for key in ["a", "b", "c"] {
        for _ in 0..700 {
            Do { act: Act::Ok(String::new()) }.enqueue(&mut on).key(key).queue("lines").await.unwrap();
        }
    }
    let other = Do { act: Act::Ok(String::new()) }.enqueue(&mut on).key("a").queue("others").await.unwrap().id();
    let behind = Do { act: Act::Ok(String::new()) }.enqueue(&mut on).key("a").queue("others").await.unwrap().id();
    let store = Store::default();
    let lines = Filter { queue: Some("lines".into()), ..Filter::default() };
    let blocked = Filter { state: Some(JobState::Blocked), ..Filter::default() };
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&lines).apply(Operation::Cancel).count().await.unwrap(), 2100);
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&blocked).apply(Operation::Cancel).count().await.unwrap(), 2098);
    let failed = Filter { error: Some("no such error".into()), ..Filter::default() };
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&failed).apply(Operation::Cancel).count().await.unwrap(), 0);
    assert!(Queue::on(&mut on).store(store).jobs().matching(&failed).list().await.unwrap().jobs.is_empty(), "none of them has failed");
    let old = Filter { older_than: Some(HOUR), ..Filter::default() };
    assert!(Queue::on(&mut on).store(store).jobs().matching(&old).list().await.unwrap().jobs.is_empty(), "none of them is old");
    assert_eq!(Queue::on(&mut on).store(store).jobs().matching(&lines).apply(Operation::Cancel).await.unwrap().done, 2100);
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 2100, "none of them went on when its head was cancelled");
    assert_eq!(db.state(other).await, Some(JobState::Ready));
    assert_eq!(db.state(behind).await, Some(JobState::Blocked));
    db.finish().await;
}

/// Creates `count` dead letters in queue `a`.
async fn create_dead(on: &mut PgConnection, count: usize) -> Vec<JobId> {
    let worker = register(on).await.unwrap();
    fill(on, i32::try_from(count).unwrap(), 0).await;
    let mut ids = Vec::new();
    while ids.len() < count {
        let lease: Lease = claim(on, worker, 500).await.unwrap();
        assert_eq!(settle(on, &lease.all("dead")).await.unwrap(), []);
        ids.extend(lease.ids());
    }
    ids
}

#[tokio::test]
async fn dead_letters_are_requeued_at_a_rate_until_stopped() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    create_dead(&mut on, 30).await;
    let (store, filter) = (Store::default(), Filter::default());
    let began = Instant::now();
    let stop = tokio::time::sleep(Duration::from_millis(250));
    let some = Queue::on(&mut on).store(store).jobs().matching(&filter).requeue().rate(40.0).until(stop).await.unwrap().done;
    let most = 1 + (began.elapsed().as_secs_f64() * 40.0).ceil() as u64;
    assert!((1..=most).contains(&some) && some < 30, "{some} in {:?}", began.elapsed());
    let began = Instant::now();
    let rest = Queue::on(&mut on).store(store).jobs().matching(&filter).requeue().rate(100.0).await.unwrap().done;
    assert!(some + rest == 30 && began.elapsed() >= Duration::from_millis(10 * rest - 1), "{rest} in {:?}", began.elapsed());
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Queue::on(&mut on).store(store).jobs().matching(&filter).requeue().rate(rate).until(async {}).await,
            Err(Error::OutOfRange { what: "the rate", .. })
        ));
    }
    db.finish().await;
}

#[tokio::test]
async fn dead_letters_are_listed_by_their_error_and_the_time_they_died() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let ids = create_dead(&mut on, 3).await;
    sqlx::query("update queue.dead set error = 'late 100%', died_at = now() - interval '2 days' where id = $1")
        .bind(ids[1])
        .execute(&mut on)
        .await
        .unwrap();
    let listed = async |on: &mut PgConnection, filter: Filter| {
        let page = Queue::on(on).jobs().matching(&filter).list().await.unwrap();
        page.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let day = Some(Duration::from_hours(24));
    assert_eq!(listed(&mut on, Filter { error: Some("100%".into()), ..Filter::default() }).await, [ids[1]]);
    assert_eq!(listed(&mut on, Filter { since: day, ..Filter::default() }).await, [ids[2], ids[0]]);
    assert_eq!(listed(&mut on, Filter { older_than: day, state: Some(JobState::Dead), ..Filter::default() }).await, [ids[1]]);
    assert_eq!(
        Queue::on(&mut on)
            .jobs()
            .matching(&Filter { older_than: day, ..Filter::default() })
            .apply(Operation::Requeue)
            .count()
            .await
            .unwrap(),
        1
    );
    let late = Filter { error: Some("late".into()), ..Filter::default() };
    assert_eq!(Queue::on(&mut on).jobs().matching(&late).discard().await.unwrap().done, 1);
    assert_eq!(listed(&mut on, Filter::default()).await, [ids[2], ids[0]]);
    db.finish().await;
}

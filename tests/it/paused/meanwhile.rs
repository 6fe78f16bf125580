//! Tests pauses together with ordering keys, capacities, producers, failovers and idle workers.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState, Queue, operate::Scope};
use queue_worker::Worker;
use tests::{
    Act, Counted, Do, Marked, TestDb, Within, effects, eventually,
    proxy::Proxy,
    server::{TestServer, url},
    within,
};

use super::{attacks::start, connect, enqueue, pause_and_wait, quick, resume, stopped};

#[tokio::test]
async fn a_paused_head_of_an_ordering_key_blocks_the_next_of_another_type_until_it_is_resumed_or_cancelled() {
    let db = TestDb::new().await;
    let scope = Scope::job_type("do");
    db.run_while(db.worker().register::<Marked>(), async {
        pause_and_wait(&db, &scope).await;
        let mut jobs: Vec<[JobId; 2]> = Vec::new();
        for key in ["resumed", "cancelled"] {
            let first = Do { act: quick() }.enqueue(&db.pool).key(key).await.unwrap().id();
            jobs.push([first, Marked { ms: 0 }.enqueue(&db.pool).key(key).await.unwrap().id()]);
        }
        let free = Marked { ms: 0 }.enqueue(&db.pool).key("free").await.unwrap().id();
        db.until(free, JobState::Completed).await;
        for [first, next] in &jobs {
            assert_eq!([db.state(*first).await, db.state(*next).await], [Some(JobState::Ready), Some(JobState::Blocked)]);
        }
        queue_core::JobRef::from_id(jobs[1][0]).cancel(&db.pool).await.unwrap();
        db.until(jobs[1][1], JobState::Completed).await;
        assert_eq!(db.state(jobs[0][1]).await, Some(JobState::Blocked), "the other key waits on");
        resume(&db, &scope).await;
        db.until(jobs[0][1], JobState::Completed).await;
        assert_eq!(db.state(jobs[0][0]).await, Some(JobState::Completed));
        let order: Vec<JobId> =
            sqlx::query_scalar("select job from effect where job = any ($1) order by at").bind(jobs[0]).fetch_all(&db.pool).await.unwrap();
        assert_eq!(order, jobs[0], "in the order of their commits");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_paused_queue_fills_up_to_its_capacity_and_accepts_jobs_again_once_it_is_resumed() {
    let db = TestDb::new().await;
    Queue::on(&mut connect(&db).await).set_capacity("mail", Some(3)).await.unwrap();
    let mail = Scope::queue("mail");
    db.run_while(db.worker(), async {
        pause_and_wait(&db, &mail).await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(enqueue(&db, "mail", quick()).await);
        }
        let refused = Do { act: quick() }.enqueue(&db.pool).queue("mail").await.unwrap_err();
        assert!(matches!(refused, queue_core::Error::AtCapacity { .. }), "{refused}");
        let waits = Do { act: quick() }.enqueue(&db.pool).queue("mail").wait_for_capacity(Duration::from_secs(30));
        let (late, ()) = tokio::join!(waits, async {
            for job in &waiting {
                assert_eq!(db.state(*job).await, Some(JobState::Ready));
            }
            resume(&db, &mail).await;
        });
        db.until(late.unwrap().id(), JobState::Completed).await;
        for job in waiting {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn with_everything_paused_a_worker_is_no_busier_than_an_idle_one_beside_producers() {
    const ENQUEUES: usize = 200;
    let db = TestDb::new().await;
    let counted = Counted::start(&db.url);
    db.run_while(Worker::new(counted.pool.clone()).register::<Do>().register::<Within>(), async {
        // After these jobs have run, the worker knows the lanes and has scanned some of them below their floors.
        for _ in 0..20 {
            let job = enqueue(&db, "mail", quick()).await;
            db.until(job, JobState::Completed).await;
        }
        let first = Within { how: "plain".into() }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        pause_and_wait(&db, &Scope::EVERYTHING).await;
        db.until_idle(20.0).await;
        let (_, mut jobs) = (counted.take(), Vec::new());
        for _ in 0..ENQUEUES {
            jobs.push(enqueue(&db, "mail", quick()).await);
        }
        db.until_idle(20.0).await;
        let sent = counted.take();
        assert!(sent.values().sum::<usize>() < ENQUEUES, "the worker has a statement for each job: {sent:#?}");
        resume(&db, &Scope::EVERYTHING).await;
        for job in jobs {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_pause_survives_a_failover_and_workers_acknowledge_it_to_the_new_primary() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("paused").await.unwrap();
    let standby = primary.standby(primary.port()).await.unwrap();
    let name = Proxy::start(primary.port()).await.unwrap();
    let worker = start(&url(name.port, "paused"), &[("TTL_MS", "30000")]);
    let announced = async || database.count("select count(*) from queue.worker").await.unwrap() == 1;
    within(Duration::from_secs(30), "it is announced", announced).await;
    let mail = Scope::queue("mail");
    Queue::new(&database.pool).pause_with_reason(&mail, Some("over a failover")).await.unwrap();
    assert!(Queue::new(&database.pool).until_paused(&mail).await.unwrap());
    assert!(database.count("select max(paused_seen) from queue.worker").await.unwrap() > 0, "it acknowledged");
    let waiting = Marked { ms: 0 }.enqueue(&database.pool).queue("mail").await.unwrap().id();
    let behind = "select count(*) from pg_stat_replication where replay_lsn = pg_current_wal_lsn()";
    within(Duration::from_secs(20), "the standby has caught up", async || database.count(behind).await.unwrap() == 1).await;
    primary.kill().unwrap();
    standby.promote().await.unwrap();
    name.redirect_to(standby.port());
    let there = sqlx::PgPool::connect(&standby.url("paused")).await.unwrap();
    // Simulates an acknowledgement that was lost with the failed server.
    sqlx::query("update queue.worker set paused_seen = 0").execute(&there).await.unwrap();
    within(Duration::from_mins(1), "the worker acknowledges it again", async || {
        Queue::new(&there).until_paused(&mail).await.is_ok_and(|paused| paused)
    })
    .await;
    let state = async |id: JobId| {
        sqlx::query_scalar::<_, String>("select state from queue.jobs where id = $1").bind(id).fetch_one(&there).await.unwrap_or_default()
    };
    let other = Marked { ms: 0 }.enqueue(&there).queue("other").await.unwrap().id();
    within(Duration::from_mins(1), "the other queue goes on", async || state(other).await == "completed").await;
    assert_eq!(state(waiting).await, "ready");
    assert!(Queue::new(&there).resume(&mail).await.unwrap());
    within(Duration::from_mins(1), "it runs", async || state(waiting).await == "completed").await;
    drop(worker);
}

#[tokio::test]
#[ignore = "deep"]
async fn a_killed_worker_is_waited_for_until_its_lease_ends_and_its_jobs_stay_paused() {
    let db = TestDb::new().await;
    let mail = Scope::queue("mail");
    let victim = start(&db.url, &[]);
    let job = Marked { ms: 60_000 }.enqueue(&db.pool).queue("mail").await.unwrap().id();
    eventually("it runs", async || effects(&db.pool, job).await.unwrap() == 1).await;
    db.kill(victim).await;
    Queue::new(&db.pool).pause(&mail).await.unwrap();
    stopped(&db, &mail).await;
    assert_eq!(
        db.count("select count(*) from queue.worker where expires_at > clock_timestamp()").await,
        0,
        "no other worker is waited for"
    );
    // Another worker recovers the job. The queue is still paused, so the job stays ready.
    db.run_while(db.worker().register::<Marked>(), async {
        within(Duration::from_secs(30), "it is recovered", async || db.state(job).await == Some(JobState::Ready)).await;
        stopped(&db, &mail).await;
        let other = enqueue(&db, "other", quick()).await;
        db.until(other, JobState::Completed).await;
        assert_eq!((db.state(job).await, effects(&db.pool, job).await.unwrap()), (Some(JobState::Ready), 1));
        queue_core::JobRef::from_id(job).cancel(&db.pool).await.unwrap();
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn no_pause_waits_for_a_draining_worker() {
    let db = TestDb::new().await;
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(db.worker().grace(Duration::from_hours(1)).run(async { drop(stopping.await) }));
    let long = enqueue(&db, "mail", Act::UntilCancelled(Box::new(quick()))).await;
    eventually("it runs", async || effects(&db.pool, long).await.unwrap() == 1).await;
    stop.send(()).unwrap();
    eventually("it has acknowledged", async || {
        db.count("select count(*) from queue.worker where paused_seen = 9223372036854775807").await == 1
    })
    .await;
    let waiting = enqueue(&db, "mail", quick()).await;
    for scope in [Scope::queue("mail"), Scope::EVERYTHING] {
        pause_and_wait(&db, &scope).await;
    }
    assert_eq!((db.state(long).await, db.state(waiting).await), (Some(JobState::Running), Some(JobState::Ready)));
    assert_eq!(db.count("select count(*) from queue.worker where expires_at > now()").await, 1, "it lives");
    queue_core::JobRef::from_id(long).cancel(&db.pool).await.unwrap();
    worker.await.unwrap().unwrap();
    assert_eq!(db.state(waiting).await, Some(JobState::Ready));
    db.finish().await;
}

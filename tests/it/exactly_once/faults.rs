//! Tests killed processes, cut connections, lost leases and hostile settings during a handler's own transaction.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Act, Cut, Do, Own, Proxy, TestDb, WorkerProcess, effects, eventually, within};

use super::{charged, enqueue, errors, go, in_the_middle, worker};

/// Returns a worker whose connections go through the proxy.
fn worker_behind(proxy: &Proxy) -> Worker {
    Worker::new(proxy.pool.clone()).register::<Own>().lease_ttl(Duration::from_mins(1)).grace(Duration::from_secs(5))
}

#[tokio::test]
async fn f33_a_zombies_writes_are_rolled_back_and_its_completion_is_refused() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold first").await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    // The next heartbeat, which would detect the lost lease, is far in the future.
    db.run_while(worker(&db).lease_ttl(Duration::from_mins(2)).grace(Duration::from_secs(20)), async {
        in_the_middle(&db).await;
        connection.execute("update queue.worker set expires_at = now() - interval '1 second'").await.unwrap();
        db.until(job, JobState::Ready).await;
        go(&db).await;
    })
    .await;
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Ready), (1, 1, 1, 0)), "only the recovery was written");
    db.run_while(worker(&db), db.until(job, JobState::Completed)).await;
    assert_eq!(charged(&db, job).await.3, 1);
    assert_eq!((db.count("select count(*) from queue.done where attempts = 2").await, errors(&db, "%").await), (1, 1));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f32_a_process_killed_in_the_middle_leaves_no_effect_and_another_leaves_one() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold first").await;
    let process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    in_the_middle(&db).await;
    db.kill(process).await;
    db.run_while(worker(&db), db.until(job, JobState::Completed)).await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    assert_eq!((db.count("select count(*) from queue.done where attempts = 2").await, errors(&db, "%").await), (1, 1));
    db.finish().await;
}

#[tokio::test]
async fn f35_a_connection_cut_after_the_commit_is_no_failure_and_no_second_effect() {
    let db = TestDb::new().await;
    let proxy = Proxy::start(&db.url, Cut::After, 4);
    let mut jobs = Vec::new();
    for how in ["told", "plain", "error after"] {
        jobs.push(enqueue(&db, how).await);
    }
    let dead = enqueue(&db, "fail").await;
    db.run_until_idle(worker_behind(&proxy)).await;
    assert_eq!(proxy.cuts(), 4);
    for job in jobs {
        assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (1, 0, 0, 1)));
    }
    assert_eq!((db.state(dead).await, charged(&db, dead).await), (Some(JobState::Dead), (1, 0, 1, 1)));
    proxy.pool.close().await;
    db.finish().await;
}

#[tokio::test]
async fn f35_a_connection_cut_before_the_commit_is_a_failure_without_effect() {
    let db = TestDb::new().await;
    let proxy = Proxy::start(&db.url, Cut::Before, 1);
    let job = enqueue(&db, "ok").await;
    db.run_until_idle(worker_behind(&proxy)).await;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Completed), (2, 0, 1, 1)));
    proxy.pool.close().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f35_a_commit_in_doubt_waits_for_the_database_to_return() {
    for (cut, attempts) in [(Cut::After, 1), (Cut::Before, 2)] {
        let db = TestDb::new().await;
        let proxy = Proxy::start(&db.url, cut, 1);
        let job = enqueue(&db, "hold first").await;
        db.run_while(worker_behind(&proxy), async {
            in_the_middle(&db).await;
            proxy.refuse_new(true);
            go(&db).await;
            eventually("it is cut", async || proxy.cuts() == 1).await;
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert_eq!(errors(&db, "%").await, 0, "no verdict while the outcome is unknown");
            proxy.refuse_new(false);
            db.until(job, JobState::Completed).await;
        })
        .await;
        assert_eq!(charged(&db, job).await, (attempts, 0, i64::from(attempts) - 1, 1));
        proxy.pool.close().await;
        db.finish().await;
    }
}

#[tokio::test]
async fn f35_a_commit_in_doubt_whose_job_was_recovered_meanwhile_leaves_it_to_others() {
    let db = TestDb::new().await;
    let proxy = Proxy::start(&db.url, Cut::Before, 1);
    let job = enqueue(&db, "hold first").await;
    let slow = worker_behind(&proxy).lease_ttl(Duration::from_mins(2));
    db.run_while(slow, async {
        in_the_middle(&db).await;
        proxy.refuse_new(true);
        go(&db).await;
        eventually("it is cut", async || proxy.cuts() == 1).await;
        db.pool.execute("update queue.worker set expires_at = now() - interval '1 second'").await.unwrap();
        db.until(job, JobState::Ready).await;
        proxy.refuse_new(false);
    })
    .await;
    assert_eq!((db.state(job).await, charged(&db, job).await), (Some(JobState::Ready), (1, 1, 1, 0)), "only the recovery was written");
    db.run_while(worker(&db), db.until(job, JobState::Completed)).await;
    assert_eq!((effects(&db.pool, job).await.unwrap(), errors(&db, "%").await), (1, 1));
    proxy.pool.close().await;
    db.finish().await;
}

#[tokio::test]
async fn f43_settings_of_the_users_connections_do_not_reach_the_verdict() {
    let db = TestDb::new().await;
    let hostile = "do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database());
       execute format('alter database %I set lock_timeout = ''10ms''', current_database());
       execute format('alter database %I set search_path = evil, pg_catalog, public', current_database()); end $$;
       create schema evil; create function evil.unnest(bigint[]) returns setof bigint language sql as 'select 1/0';
       create function evil.statement_timestamp() returns timestamptz language sql as 'select null::timestamptz';
       create table evil.lease ()";
    sqlx::raw_sql(hostile).execute(&db.pool).await.unwrap();
    let jobs = [enqueue(&db, "ok").await, enqueue(&db, "plain").await];
    let fresh = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect(&db.url).await.unwrap();
    let mut connection = fresh.acquire().await.unwrap();
    let mut locked = connection.begin_with("begin isolation level read committed").await.unwrap();
    locked.execute("lock table queue.done, queue.done_many in exclusive mode").await.unwrap();
    db.run_while(Worker::new(fresh.clone()).register::<Own>(), async {
        eventually("they wait for longer than their own timeout", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
              and query like '-- lease -> done%' and now() - query_start > interval '100 ms'";
            db.count(waiting).await == 2
        })
        .await;
        locked.rollback().await.unwrap();
        for job in jobs {
            db.until(job, JobState::Completed).await;
            assert_eq!(charged(&db, job).await, (1, 0, 0, 1));
        }
    })
    .await;
    drop(connection);
    db.pool.execute("drop schema evil cascade").await.unwrap();
    fresh.close().await;
    db.finish().await;
}

#[tokio::test]
async fn a_begin_that_is_dropped_leaves_no_connection_in_a_transaction() {
    /// Job whose handler drops the futures of its `begin` calls at different points, and then completes in a transaction.
    #[job(send_only)]
    #[derive(Serialize, Deserialize)]
    struct GiveUp;
    static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);
    impl Handler for GiveUp {
        async fn run(self, cx: &Context) -> JobResult {
            for wait in 0..40 {
                let give_up = async {
                    for _ in 0..wait {
                        tokio::task::yield_now().await;
                    }
                };
                let in_time = tokio::select! { biased; begun = cx.begin() => begun.is_ok(), () = give_up => false };
                GIVEN_UP.fetch_add(usize::from(!in_time), SeqCst);
            }
            let tx = cx.begin().await?;
            tx.complete(()).await
        }
    }
    let db = TestDb::new().await;
    let job = GiveUp.enqueue(&db.pool).await.unwrap().id();
    db.run_while(Worker::new(db.pool.clone()).register::<GiveUp>(), db.until(job, JobState::Completed)).await;
    assert!(GIVEN_UP.load(SeqCst) > 0, "none was dropped before it was done");
    within(Duration::from_secs(30), "all are given back", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").await
            == 0
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_completed_job_without_a_record_is_deleted_by_its_commit_even_in_doubt() {
    /// Job that is deleted when it completes.
    #[job(send_only, retain = "none")]
    #[derive(Serialize, Deserialize)]
    struct Gone;
    impl Handler for Gone {
        async fn run(self, cx: &Context) -> JobResult {
            let tx = cx.begin().await?;
            tx.complete(()).await
        }
    }
    let db = TestDb::new().await;
    let proxy = Proxy::start(&db.url, Cut::After, 1);
    Gone.enqueue(&db.pool).await.unwrap();
    let plain = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(worker_behind(&proxy).register::<Gone>().register::<Do>()).await;
    assert_eq!((proxy.cuts(), db.count("select count(*) from queue.job").await), (1, 1));
    assert_eq!((db.state(plain).await, errors(&db, "%").await), (Some(JobState::Completed), 0));
    proxy.pool.close().await;
    db.finish().await;
}

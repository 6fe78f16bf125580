//! Tests that no reported cause is false. While workers, producers and operators are active, the causes of random jobs are compared with
//! plain queries under the same snapshot.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobId, Queue, Store, operate, options::Limit};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do};

use super::{TestDb, connect, run};

/// Returns an SQL condition that must hold for a job with this cause, where `$1` is the job id. Returns `None` if this test does not check
/// the cause.
fn holds(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "no_such_job" => "not exists (select from queue.job where id = $1)",
        "completed" | "cancelled" | "expired" | "dead" => {
            "(select state from queue.jobs where id = $1) in ('completed', 'cancelled', 'expired', 'dead')"
        }
        "running" | "cancelling" | "silent_worker" => "exists (select from queue.lease where $1 = any (ids))",
        "scheduled" => "exists (select from queue.scheduled where id = $1 and run_at > now())",
        "due" => "exists (select from queue.scheduled where id = $1 and run_at <= now())",
        "blocked" => "exists (select from queue.blocked b join queue.active_key a on a.key = b.key where b.id = $1 and a.id <> $1)",
        "key_free" => {
            "exists (select from queue.blocked b where b.id = $1 and not exists (select from queue.active_key a where a.key = b.key))"
        }
        "paused" => {
            "exists (select from queue.jobs j join queue.paused p on p.queue in ('*', j.queue) and p.job_type in ('*', j.job_type) where j.id = $1)"
        }
        "limited" => "exists (select from queue.bound)",
        "starved" => {
            "exists (select from queue.jobs j join queue.jobs o on o.queue = j.queue and o.priority > j.priority and o.state = 'ready'
              where j.id = $1)"
        }
        "behind" => "exists (select from queue.ready r join queue.ready o on o.lane = r.lane and o.seq < r.seq where r.id = $1)",
        "workers_busy" => "exists (select from queue.lease) and exists (select from queue.ready where id = $1)",
        "suspect" => "exists (select from queue.ready r join queue.lane l on l.lane = r.lane and l.solo where r.id = $1)",
        "nothing" => "exists (select from queue.ready where id = $1)",
        _ => return None,
    })
}

/// Queries the causes that keep a job from running, and checks each cause. Returns the first cause.
async fn query_first_cause(on: &mut PgConnection, job: i64) -> String {
    let mut tx = on.begin().await.unwrap();
    run(&mut tx, "set transaction isolation level repeatable read").await;
    let causes: Vec<(String, Value)> = sqlx::query_as("select kind, facts from queue.why($1)").bind(job).fetch_all(&mut *tx).await.unwrap();
    assert!(!causes.is_empty(), "an answer");
    for (kind, facts) in &causes {
        let Some(condition) = holds(kind) else { continue };
        let statement = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select {condition}"))).bind(job);
        let is_so: bool = statement.fetch_one(&mut *tx).await.unwrap();
        assert!(is_so, "{kind} is reported for job {job} and is not true: {facts}");
    }
    tx.rollback().await.unwrap();
    causes[0].0.clone()
}

async fn produce(db: &TestDb, random: &mut fastrand::Rng) -> JobId {
    let act = match random.u8(..8) {
        0 => Act::FailUntil(2),
        1 => Act::Terminal("no".into()),
        2 => Act::Sleep(30),
        3 => Act::RetryIn(20),
        4 => Act::Snooze(20, 2),
        _ => Act::Ok(String::new()),
    };
    let job = Do { act }.enqueue(&db.pool).priority(random.i16(90..93));
    let job = match random.u8(..6) {
        0 => job.key(["a", "b"][random.usize(..2)]),
        1 => job.fair("c"),
        2 => job.after(Duration::from_millis(random.u64(..300))),
        3 => job.expires_in(Duration::from_millis(random.u64(1..200))),
        _ => job,
    };
    job.await.unwrap().id()
}

async fn operate_on(db: &TestDb, random: &mut fastrand::Rng, jobs: &[JobId]) {
    let store = Store::default();
    let scope = [operate::Scope::EVERYTHING, operate::Scope::queue("default"), operate::Scope::job_type("do")][random.usize(..3)].clone();
    let job = queue_core::JobRef::from_id(jobs[random.usize(..jobs.len())]);
    // Errors are ignored, because the store rejects operations that come too late or that the job's state forbids.
    match random.u8(..7) {
        0 => drop(Queue::new(&db.pool).store(store).pause(&scope).await),
        1 | 2 => drop(Queue::new(&db.pool).store(store).resume(&scope).await),
        3 => drop(Queue::new(&db.pool).store(store).set_limit("type:do", Limit::new().concurrency(random.u32(..3)), None).await),
        4 => drop(Queue::new(&db.pool).store(store).unset_limit("type:do").await),
        5 => drop(job.cancel(&db.pool).await),
        _ => drop(job.requeue(&db.pool).await),
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn the_reported_causes_of_jobs_are_always_true() {
    let db = TestDb::new().await;
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    println!("seed {seed}");
    let mut reader = connect(&db).await;
    let mut kinds = std::collections::BTreeMap::<String, u32>::new();
    let until = Instant::now() + Duration::from_secs(8);
    db.run_while(super::worker(&db).concurrency(2), async {
        let mut jobs = vec![produce(&db, &mut random).await];
        while Instant::now() < until {
            jobs.push(produce(&db, &mut random).await);
            if random.u8(..4) == 0 {
                operate_on(&db, &mut random, &jobs).await;
            }
            let newest = jobs.len().saturating_sub(30);
            for job in [jobs[random.usize(..jobs.len())].0, jobs[random.usize(newest..jobs.len())].0, random.i64(..)] {
                *kinds.entry(query_first_cause(&mut reader, job).await).or_default() += 1;
            }
        }
        for scope in [operate::Scope::EVERYTHING, operate::Scope::queue("default"), operate::Scope::job_type("do")] {
            Queue::new(&db.pool).resume(&scope).await.unwrap();
        }
        Queue::new(&db.pool).unset_limit("type:do").await.unwrap();
    })
    .await;
    assert!(kinds.len() >= 5, "too little happened: {kinds:?}");
    db.finish().await;
}

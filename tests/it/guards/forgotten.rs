//! Tests the verdict `forget`, which deletes a completed job instead of recording it. The verdict deletes only its own job, and only while
//! the verdict's lease contains the job.

use queue_core::{JobId, runner::OrderingKey};
use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb,
    protocol::{self, JobVerdict, Lease, claim, register, settle_forgotten},
};

use super::{connect, enqueue};

/// Creates a job with one failure. No statement names this job, so it must not change.
async fn bystander(on: &mut PgConnection) -> JobId {
    let job = enqueue(on, &["beside"]).await[0];
    failed(on, job).await;
    job
}

async fn failed(on: &mut PgConnection, job: JobId) {
    sqlx::query("insert into queue.failure select $1, 1, now(), 1, 'once'").bind(job).execute(on).await.unwrap();
}

/// Creates the ordering key `key` with `job` as its head.
async fn headed(on: &mut PgConnection, key: i64, job: JobId) {
    sqlx::query("insert into queue.active_key (key, id, seq) values ($1, $2, $2)").bind(key).bind(job).execute(on).await.unwrap();
}

/// Returns the verdict `forget` for the lease's job at `index`, with the ordering key `key`.
fn keyed(lease: &Lease, index: usize, key: i64) -> JobVerdict {
    let mut verdict = lease.one(index, "forget");
    verdict.job.key = Some(OrderingKey { id: key, skips_dead: false });
    verdict
}

async fn remaining_rows(db: &TestDb) -> (i64, i64, i64) {
    let count = async |table: &str| db.count(&format!("select count(*) from queue.{table}")).await;
    (count("job").await, count("failure").await, count("key_hint").await)
}

#[tokio::test]
async fn a_lease_drops_jobs_without_a_record_and_keeps_the_rest() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    bystander(&mut c).await;
    let worker = register(&mut c).await.unwrap();
    let jobs = enqueue(&mut c, &["a"; 6]).await;
    let lanes: Vec<i64> =
        sqlx::query_scalar("select distinct lane from queue.ready where id = any ($1)").bind(&jobs).fetch_all(&mut c).await.unwrap();
    let mut leases = Vec::new();
    for _ in 0..2 {
        leases.push(protocol::claim_of(&mut c, worker, &lanes, &[0], &[3], 3).await.unwrap());
    }
    let (first, second) = (&leases[0], &leases[1]);
    // The jobs that remain in the lease keep their own attempts and crashes, regardless of their positions in the arrays.
    let apart = "update queue.lease set ids = array[ids[3], ids[2], ids[1]], attempts = '{3,2,1}', crashes = '{6,5,4}' where token = $1";
    sqlx::query(apart).bind(first.token).execute(&mut c).await.unwrap();
    failed(&mut c, first.jobs[1].id).await;
    headed(&mut c, 7, first.jobs[1].id).await;
    let refused = settle_forgotten(&mut c, &[keyed(first, 1, 7), second.one(0, "forget")]).await.unwrap();
    assert_eq!(refused, []);
    assert_eq!(remaining_rows(&db).await, (5, 1, 1), "two jobs and a failure are deleted, and the key continues");
    let kept = "select attempts = '{3,1}' and crashes = '{6,4}' from queue.lease where token = $1";
    assert!(sqlx::query_scalar::<_, bool>(kept).bind(first.token).fetch_one(&mut c).await.unwrap());
    for (lease, rest) in [(first, [2, 0]), (second, [1, 2])] {
        let listed: Vec<i64> =
            sqlx::query_scalar("select unnest(ids) from queue.lease where token = $1").bind(lease.token).fetch_all(&mut c).await.unwrap();
        assert_eq!(listed, rest.map(|at| lease.jobs[at].id.0), "other jobs are left");
    }
    let rest: Vec<JobVerdict> = [(first, 0), (first, 2), (second, 1), (second, 2)].map(|(lease, at)| lease.one(at, "forget")).to_vec();
    assert_eq!(settle_forgotten(&mut c, &rest).await.unwrap(), []);
    assert_eq!(remaining_rows(&db).await, (1, 1, 1));
    assert_eq!(db.count("select count(*) from queue.lease").await, 0, "they ended");
    db.finish().await;
}

#[tokio::test]
async fn a_job_recovered_meanwhile_is_refused_and_kept() {
    let db = TestDb::new().await;
    let (mut c, mut zombie) = (connect(&db).await, connect(&db).await);
    let worker = register(&mut c).await.unwrap();
    enqueue(&mut c, &["default"]).await;
    let lease = claim(&mut c, worker, 1).await.unwrap();
    protocol::silence(&mut c, worker).await.unwrap();
    let mut taking = c.begin().await.unwrap();
    let tokens = protocol::lock_silent(&mut taking).await.unwrap();
    protocol::take_back(&mut taking, &tokens).await.unwrap();
    let verdicts = lease.all("forget");
    let settling = tokio::spawn(async move { settle_forgotten(&mut zombie, &verdicts).await.unwrap() });
    tests::eventually("it waits for the lease", async || {
        db.count("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()").await == 1
    })
    .await;
    taking.commit().await.unwrap();
    assert_eq!(settling.await.unwrap().len(), 1);
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.check_invariant().await;
    db.finish().await;
}

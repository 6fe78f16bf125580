//! Tests the statements that write, delete and read logs. Logs are written only under the job's lease, and only for existing jobs.

use queue_core::{Job as _, JobId, JobState};
use tests::{Act, Do, TestDb};
use uuid::Uuid;

type Entry<'a> = (Option<Uuid>, JobId, i16, &'a str);

async fn write(db: &TestDb, entries: &[Entry<'_>]) -> sqlx::Result<i64> {
    sqlx::query_scalar(include_str!("../../../queue-worker/sql/write_logs.sql"))
        .bind(entries.iter().map(|entry| entry.0).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.1).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| i32::from(entry.2)).collect::<Vec<_>>())
        .bind(entries.iter().map(|_| 0_i64).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.3).collect::<Vec<_>>())
        .fetch_one(&db.pool)
        .await
}

async fn job(db: &TestDb) -> JobId {
    Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id()
}

async fn texts(db: &TestDb, job: JobId) -> Vec<(i16, String)> {
    super::logs(db, job).await.into_iter().map(|log| (log.attempt, log.text)).collect()
}

/// Deletes the jobs and their ready entries.
async fn forget(db: &TestDb, jobs: &[JobId]) {
    for statement in ["delete from queue.ready where id = any ($1)", "delete from queue.job where id = any ($1)"] {
        sqlx::query(statement).bind(jobs).execute(&db.pool).await.unwrap();
    }
}

/// Creates a lease that contains the job.
async fn lease(db: &TestDb, job: JobId) -> Uuid {
    let token = Uuid::new_v4();
    let statement = "with gone as (delete from queue.ready where id = $2 returning lane)
        insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
        select $1, gen_random_uuid(), now(), lane, array[$2], array[1::smallint], array[0::smallint] from gone";
    sqlx::query(statement).bind(token).bind(job).execute(&db.pool).await.unwrap();
    token
}

#[tokio::test]
async fn a_log_counts_only_under_the_lease_that_has_its_job() {
    let db = TestDb::new().await;
    let (ours, theirs) = (job(&db).await, job(&db).await);
    let token = lease(&db, ours).await;
    let entries = [(Some(token), ours, 1, "ours"), (Some(token), theirs, 1, "not in it"), (Some(Uuid::new_v4()), ours, 2, "lost")];
    assert_eq!(write(&db, &entries).await.unwrap(), 1);
    assert_eq!((texts(&db, ours).await, texts(&db, theirs).await), (vec![(1, "ours".to_owned())], vec![]));
    assert_eq!(write(&db, &[(Some(token), ours, 1, "again")]).await.unwrap(), 1);
    assert_eq!(texts(&db, ours).await, [(1, "again".to_owned())], "an attempt has one");
    assert_eq!(write(&db, &[(None, theirs, 1, "ended by itself"), (None, JobId(7), 1, "gone")]).await.unwrap(), 1);
    assert_eq!(texts(&db, theirs).await.len(), 1);
    let too_long = "x".repeat(1_200_000);
    assert!(write(&db, &[(None, theirs, 1, &too_long)]).await.is_err());
    assert!(write(&db, &[(None, theirs, 1, "twice"), (None, theirs, 1, "twice")]).await.is_err(), "nor is either chosen");
    db.finish().await;
}

#[tokio::test]
async fn logs_are_read_in_attempt_order_and_of_no_deleted_job() {
    let db = TestDb::new().await;
    let job = job(&db).await;
    for attempt in [10, 2, 1] {
        write(&db, &[(None, job, attempt, "x")]).await.unwrap();
    }
    assert_eq!(texts(&db, job).await.iter().map(|log| log.0).collect::<Vec<_>>(), [1, 2, 10]);
    forget(&db, &[job]).await;
    assert_eq!(texts(&db, job).await, []);
    assert_eq!(db.count("select count(*) from queue.log").await, 3, "housekeeping has not come yet");
    db.finish().await;
}

#[tokio::test]
async fn logs_are_pruned_by_a_worker_that_runs() {
    let db = TestDb::new().await;
    let job = job(&db).await;
    write(&db, &[(None, job, 1, "x")]).await.unwrap();
    forget(&db, &[job]).await;
    db.run_while(db.worker().register::<Do>(), async {
        tests::eventually("it is gone", async || db.count("select count(*) from queue.log").await == 0).await;
    })
    .await;
    assert_eq!(db.state(job).await, None::<JobState>);
    db.finish().await;
}

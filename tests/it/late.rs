//! Tests late commits: jobs that become visible below the floors of their lanes while an old snapshot keeps all dead rows.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState, Queue, operate::Scope};
use queue_worker::{Config, Worker};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, within};

/// Returns a worker that polls once an hour, so it relies on notifications and late scans.
fn sleeper(db: &TestDb) -> Worker {
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    config.grace = Duration::from_secs(2);
    Worker::new(db.pool.clone()).config(config).register::<Do>()
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn enqueue(db: &TestDb) -> JobId {
    quick().enqueue(&db.pool).await.unwrap().id()
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Creates `jobs` dead rows in the table `ready`, and returns the session whose snapshot keeps them. A scan of all rows below a floor is
/// then slow, so the worker scans block by block.
async fn with_many_dead(db: &TestDb, jobs: i64) -> PgConnection {
    let mut other = connect(db).await;
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from queue.ready").execute(&mut other).await.unwrap();
    let fill = "insert into queue.ready (lane, seq, id) select queue.ensure_lane('default', 'do', 100::smallint, false), n, n from generate_series(1, $1) n";
    sqlx::query(fill).bind(jobs).execute(&db.pool).await.unwrap();
    sqlx::query("delete from queue.ready").execute(&db.pool).await.unwrap();
    other
}

async fn goes_by_blocks(db: &TestDb) -> bool {
    let late = "select count(*) from pg_stat_activity
      where datname = current_database() and query like '%for jobs that were committed late%' and application_name like 'queue-worker%'";
    db.count(late).await > 0
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_committed_late_are_found_by_blocks_while_dead_rows_stay() {
    let db = TestDb::new().await;
    let other = with_many_dead(&db, 400_000).await;
    db.run_while(sleeper(&db), async {
        // One job is within the limit of a single scan. 25 jobs exceed this limit.
        for count in [1, 25] {
            let mut connection = connect(&db).await;
            let mut late = connection.begin().await.unwrap();
            let ids = sqlx::query_scalar("select queue.enqueue('do', '{\"act\":{\"Ok\":\"\"}}') from generate_series(1, $1)");
            let ids: Vec<JobId> = ids.bind(count).fetch_all(&mut *late).await.unwrap();
            for _ in 0..20 {
                let id = enqueue(&db).await;
                within(Duration::from_secs(30), "a later job is run", async || db.state(id).await == Some(JobState::Completed)).await;
            }
            within(Duration::from_secs(30), "jobs below the floors are searched by blocks", async || goes_by_blocks(&db).await).await;
            late.commit().await.unwrap();
            for id in ids {
                within(Duration::from_secs(30), "the late job is completed", async || db.state(id).await == Some(JobState::Completed))
                    .await;
            }
        }
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.ready").await, 0);
    other.close().await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_committed_late_is_found_by_blocks_by_a_busy_worker() {
    let db = TestDb::new().await;
    let other = with_many_dead(&db, 400_000).await;
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Sleep\":5}}') from generate_series(1, 3000)").execute(&db.pool).await.unwrap();
    let mut connection = connect(&db).await;
    let mut late = connection.begin().await.unwrap();
    let first = quick().enqueue(&mut late).await.unwrap().id();
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Sleep\":5}}') from generate_series(1, 30000)").execute(&db.pool).await.unwrap();
    db.run_while(sleeper(&db), async {
        within(Duration::from_mins(1), "the late job's place has been passed", async || {
            db.count("select count(*) from queue.done").await > 4000
        })
        .await;
        within(Duration::from_secs(30), "jobs below the floors are searched by blocks", async || goes_by_blocks(&db).await).await;
        late.commit().await.unwrap();
        within(Duration::from_secs(30), "the late job is completed", async || db.state(first).await == Some(JobState::Completed)).await;
        let waiting = db.count("select count(*) from queue.ready").await;
        assert!(waiting > 0, "the worker was busy all the time");
    })
    .await;
    other.close().await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_scans_by_blocks_becomes_idle_even_if_everything_is_paused_meanwhile() {
    let db = TestDb::new().await;
    let other = with_many_dead(&db, 400_000).await;
    let mut on = connect(&db).await;
    db.run_while(sleeper(&db), async {
        for pauses in [false, true] {
            for _ in 0..5 {
                let id = enqueue(&db).await;
                within(Duration::from_secs(30), "a job is run", async || db.state(id).await == Some(JobState::Completed)).await;
            }
            within(Duration::from_secs(30), "jobs below the floors are searched by blocks", async || goes_by_blocks(&db).await).await;
            if pauses {
                Queue::on(&mut on).pause(&Scope::queue("default")).await.unwrap();
            }
            // Wait until the worker is idle. An idle worker executes 10 to 30 transactions a second, and a busy worker executes hundreds.
            db.until_idle(60.0).await;
        }
    })
    .await;
    other.close().await.unwrap();
    db.finish().await;
}

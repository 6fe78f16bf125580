//! Tests the cost of idle stores.

use std::time::{Duration, Instant};

use queue_core::{
    JobState, Store, migrate,
    stores::{Member, Roster},
};
use sqlx::{AssertSqlSafe, PgPool};
use tests::{Act, server::TestServer, within};

use super::{RunningWorker, enqueue, state, worker_over};

/// Duration of the measurement, in seconds.
const SECONDS: u32 = 10;
const PATIENCE: Duration = Duration::from_mins(3);

/// Returns the number of transactions in this database so far. Outside explicit transactions, an idle worker runs each statement in its own
/// transaction, so this number approximates the number of statements.
async fn transactions(pool: &PgPool) -> i64 {
    let query = "select (xact_commit + xact_rollback)::bigint from pg_stat_database where datname = current_database()";
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

async fn connections(pool: &PgPool) -> i64 {
    let query = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker%'";
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn idle_stores_cost_less_than_a_statement_a_second_each_and_few_connections() {
    idle(32).await;
}

/// The test creates a hundred schemas, which takes minutes.
#[tokio::test]
#[ignore = "by hand: measures for docs/STORES.md"]
async fn a_hundred_idle_stores_cost_as_little() {
    idle(100).await;
}

async fn idle(stores: u32) {
    // Autovacuum is off, because its transactions would be counted as well.
    let server = TestServer::start_with(&["max_connections=40", "fsync=off", "full_page_writes=off", "autovacuum=off"]).await.unwrap();
    let db = server.database("stores").await.unwrap();
    let roster = Roster::default();
    // Prints the migration SQL only once for all stores, because that is faster.
    let text = migrate::print(Store::new("xx").unwrap());
    for nth in 0..stores {
        let name = format!("s{nth}");
        let sql = text.replace("\"xx\"", &format!("\"{name}\""));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&db.pool).await.unwrap();
        roster.put(Member::new(&name, &db.pool, Store::new(&name).unwrap()).unwrap());
    }
    let running = RunningWorker::start(worker_over(&roster));
    // The first jobs may take a long time, because the worker starts on all stores concurrently and also runs the first maintenance of
    // each store.
    let members = roster.all();
    let mut jobs = Vec::new();
    for member in members.iter() {
        jobs.push(enqueue(member, Act::Ok("one".into())).await);
    }
    let (mut most, began) = (0, Instant::now());
    for (member, job) in members.iter().zip(jobs) {
        within(PATIENCE, "each store's job has finished", async || {
            most = most.max(connections(&db.pool).await);
            state(member, job).await == Some(JobState::Completed)
        })
        .await;
    }
    println!("all ran within {:?}", began.elapsed());
    within(PATIENCE, "no worker runs any more", async || {
        let mut left = 0;
        for member in members.iter() {
            left +=
                sqlx::query_scalar::<_, i64>(member.store().sql("select count(*) from queue.worker")).fetch_one(&db.pool).await.unwrap();
        }
        left == 0
    })
    .await;
    // An idle session publishes its statistics within ten seconds. After this sleep, the statistics contain all earlier transactions.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let before = transactions(&db.pool).await;
    tokio::time::sleep(Duration::from_secs(SECONDS.into())).await;
    let (after, idle) = (transactions(&db.pool).await, connections(&db.pool).await);
    #[allow(clippy::cast_precision_loss, reason = "few")]
    let each = (after - before) as f64 / f64::from(SECONDS);
    println!("{stores} stores: {each:.1} statements/s idle, {idle} connections idle, {most} at most");
    assert!(each <= f64::from(stores), "{each} statements a second");
    assert!(idle <= 18 && most <= 18, "{idle} connections, {most} at most");
    running.stop().await;
}

//! Tests stored transaction ids that no longer identify the same transactions, because a failover lost ids or a dump was restored into
//! another cluster.

use queue_core::{Job as _, JobId, JobState, Store};
use sqlx::{Connection as _, PgConnection, PgPool, Row as _, postgres::PgPoolOptions};
use tests::{
    Act, Do, TestDb, eventually,
    protocol::horizon,
    proxy::{Mode, Proxy},
    server::{TestServer, url},
};

use super::{announced, is_completed, worker, works};

/// Enqueues a job in a new queue.
async fn elsewhere(pool: &PgPool, queue: &str) -> JobId {
    Do { act: Act::Ok(String::new()) }.enqueue(pool).queue(queue).await.unwrap().id()
}

async fn number(pool: &PgPool) -> i64 {
    horizon(&mut pool.acquire().await.unwrap()).await.unwrap().1
}

#[tokio::test]
#[ignore = "deep"]
async fn f70_a_lane_born_after_a_failover_that_lost_transactions_is_served() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("followed").await.unwrap();
    let upstream = Proxy::start(primary.port()).await.unwrap();
    let standby = primary.standby(upstream.port).await.unwrap();
    let name = Proxy::start(primary.port()).await.unwrap();
    let mut worker = worker(&url(name.port, "followed"));
    announced(&database, 1).await;
    works(&database.pool).await;
    let announced_there = "select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_lsn()";
    eventually("the standby has the worker", async || database.count(announced_there).await.unwrap() == 1).await;
    let behind = number(&database.pool).await;
    upstream.set(Mode::Drop);
    // The standby no longer receives the WAL, so transaction ids from here on are lost with the primary. The worker reads snapshots with
    // these ids before the failover.
    for _ in 0..2_000 {
        sqlx::query("select pg_current_xact_id()").execute(&database.pool).await.unwrap();
    }
    let lost = number(&database.pool).await;
    elsewhere(&database.pool, "lost").await;
    works(&database.pool).await;
    primary.kill().unwrap();
    upstream.cut();
    standby.promote().await.unwrap();
    name.redirect_to(standby.port());
    let pool = PgPoolOptions::new().max_connections(4).connect(&standby.url("followed")).await.unwrap();
    assert!((behind..lost).contains(&number(&pool).await), "numbers are given out again");
    let job = elsewhere(&pool, "born-again").await;
    eventually("the new lane is served", async || is_completed(&pool, job).await).await;
    assert!(number(&pool).await < lost, "judging by numbers, the lane is an old one");
    assert!(!worker.has_ended());
}

#[tokio::test]
#[ignore = "deep"]
async fn f70_a_worker_continues_in_a_cluster_into_which_its_database_was_restored() {
    let late = TestServer::start_late().await.unwrap();
    let database = late.database("moved").await.unwrap();
    let name = Proxy::start(late.port()).await.unwrap();
    let mut worker = worker(&url(name.port, "moved"));
    announced(&database, 1).await;
    works(&database.pool).await;
    let young = TestServer::start().await.unwrap();
    young.restore(&late, "moved").await.unwrap();
    late.kill().unwrap();
    name.redirect_to(young.port());
    let pool = PgPoolOptions::new().max_connections(4).connect(&young.url("moved")).await.unwrap();
    works(&pool).await;
    let job = elsewhere(&pool, "new-there").await;
    eventually("a new lane is served", async || is_completed(&pool, job).await).await;
    let oldest: i64 = sqlx::query_scalar("select min(born::text::bigint) from queue.lane").fetch_one(&pool).await.unwrap();
    assert!(oldest < number(&pool).await, "the new lane has a number of this cluster's");
    let old = "select count(*) from queue.lane where born::text::bigint > 4000000000";
    assert!(sqlx::query_scalar::<_, i64>(old).fetch_one(&pool).await.unwrap() > 0, "the old ones have not");
    assert!(!worker.has_ended());
}

/// Statement that inserts a lane row as if it had been restored from a dump. The row contains a transaction id of another cluster.
const RESTORED: &str = "insert into queue.lane (lane, queue, job_type, priority, solo, born)
   values (queue.lane_id($1, 'do', 100::smallint, false), $1, 'do', 100, false, $2::xid8)";

#[tokio::test]
#[ignore = "deep"]
async fn f70_lanes_restored_beside_a_living_worker_are_served_with_any_numbers() {
    let db = TestDb::new().await;
    let first = elsewhere(&db.pool, "default").await;
    db.run_while(db.worker(), async {
        db.until(first, JobState::Completed).await;
        let mut jobs = Vec::new();
        for (queue, born) in [("of-old", "3"), ("to-come", "99999999999999")] {
            sqlx::query(RESTORED).bind(queue).bind(born).execute(&db.pool).await.unwrap();
            jobs.push(elsewhere(&db.pool, queue).await);
        }
        for job in jobs {
            db.until(job, JobState::Completed).await;
        }
        assert_eq!(db.count("select count(*) from queue.lane").await, 3);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_lane_with_a_future_number_is_not_taken_for_new_at_every_scan() {
    let db = TestDb::new().await;
    let mut c = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query(RESTORED).bind("to-come").bind("99999999999999").execute(&mut c).await.unwrap();
    let query = Store::default().sql(include_str!("../../../queue-worker/sql/lanes.sql"));
    let glance = Store::default().sql(include_str!("../../../queue-worker/sql/probe.sql"));
    let lanes = async |c: &mut PgConnection, since: Option<&str>| {
        let found = sqlx::query_as::<_, (String, Option<i64>)>(query).bind(since).bind(vec!["do"]).bind(None::<Vec<String>>);
        let found = found.fetch_all(c).await.unwrap();
        (found[0].0.clone(), found.iter().filter(|(_, lane)| lane.is_some()).count())
    };
    let born = async |c: &mut PgConnection, since: Option<&str>| {
        let glance = sqlx::query(glance).bind(since).bind(vec!["do"]).bind(None::<Vec<String>>);
        let glance = glance.bind(false).bind(None::<Vec<i64>>).bind(None::<Vec<i64>>);
        glance.fetch_one(c).await.unwrap().get::<bool, _>(0)
    };
    let (horizon, found) = lanes(&mut c, None).await;
    assert_eq!(found, 1, "a full scan finds it");
    assert!(!born(&mut c, Some(&horizon)).await);
    assert_eq!(lanes(&mut c, Some(&horizon)).await.1, 0);
    let mut late = PgConnection::connect(&db.url).await.unwrap();
    let mut transaction = late.begin().await.unwrap();
    sqlx::query("select queue.enqueue('do', '{}', '{\"queue\": \"late\"}')").execute(&mut *transaction).await.unwrap();
    let (between, found) = lanes(&mut c, Some(&horizon)).await;
    assert_eq!(found, 0, "it is not committed");
    transaction.commit().await.unwrap();
    assert!(born(&mut c, Some(&between)).await);
    assert_eq!(lanes(&mut c, Some(&between)).await.1, 1);
    // `lost` is a snapshot of a server whose transaction ids were higher than those of this server.
    let lost = "88888888888888:88888888888888:";
    assert!(born(&mut c, Some(lost)).await && born(&mut c, None).await);
    assert_eq!(lanes(&mut c, Some(lost)).await.1, 2);
    sqlx::raw_sql("delete from queue.ready; delete from queue.job").execute(&mut c).await.unwrap();
    db.finish().await;
}

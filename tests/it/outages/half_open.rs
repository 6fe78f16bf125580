//! Tests half-open connections, whose other end has disappeared without closing the connection.

use std::time::{Duration, Instant};

use tests::{
    Act,
    proxy::Proxy,
    server::{TestServer, url},
    within,
};

use super::{announced, begin, enqueue, is_completed, nothing_is_charged_but, patient_worker, works};

/// Maximum time until the loops detect the dead connections, and until the worker recovers.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test]
#[ignore = "deep"]
async fn f36_half_open_connections_are_replaced_and_work_continues() {
    let server = TestServer::start().await.unwrap();
    let database = server.database("silent").await.unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    // The heartbeat interval and the maximum wait for a reply are each a third of this duration.
    let mut worker = patient_worker(&url(proxy.port, "silent"), Duration::from_secs(30));
    announced(&database, 1).await;
    begin(&database, 4, Act::Sleep(1000)).await;
    let listens = "select count(*) from queue.idle";
    within(Duration::from_secs(30), "it sleeps", async || database.count(listens).await.unwrap() > 0).await;
    let identity: uuid::Uuid = sqlx::query_scalar("select id from queue.worker").fetch_one(&database.pool).await.unwrap();
    sqlx::query("create table frozen as select clock_timestamp() as at").execute(&database.pool).await.unwrap();
    let frozen = Instant::now();
    let connections = proxy.freeze();
    assert!(connections >= 4, "only {connections} connections");

    // The claim, the handler's statement and the settle may each use a frozen connection.
    let job = enqueue(&database.pool, Act::Ok(String::new())).await;
    within(PATIENCE, "a job is completed", async || is_completed(&database.pool, job).await).await;
    println!("a job was completed after {:?}", frozen.elapsed());
    // Counts the distinct application names of new connections. Claims, heartbeats and listening each have a name of their own. All other
    // names count as one.
    let fresh =
        "select count(distinct case when application_name in ('queue-worker claim', 'queue-worker heartbeat', 'queue-worker listen')
           then application_name else '' end) from pg_stat_activity, frozen
       where application_name like 'queue-worker %' and backend_start > at";
    within(PATIENCE, "all loops have new connections", async || database.count(fresh).await.unwrap() == 4).await;
    println!("all connections were replaced after {:?}", frozen.elapsed());
    works(&database.pool).await;
    assert!(!worker.has_ended());
    let same: Vec<uuid::Uuid> = sqlx::query_scalar("select id from queue.worker").fetch_all(&database.pool).await.unwrap();
    assert_eq!(same, [identity], "it never lost its identity");
    // The timeout of the job type ends a handler whose own statement hangs on a frozen connection.
    nothing_is_charged_but(&database, "timed out after 5s").await;
}

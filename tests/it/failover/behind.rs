//! Tests the promotion of a lagging standby. Jobs that the standby lacks are lost. Workers that remember newer ids do not skip the jobs on
//! the standby.

use tests::{
    proxy::{Mode, Proxy},
    server::url,
};

use super::*;

#[tokio::test]
#[ignore = "deep"]
async fn f70_after_a_failover_that_lost_a_thousand_transactions_no_job_stays_ready() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database(NAME).await.unwrap();
    let upstream = Proxy::start(primary.port()).await.unwrap();
    let standby = primary.standby(upstream.port).await.unwrap();
    let url = both(&primary, &standby);
    let mut workers = [worker(&url, Duration::from_secs(30)), worker(&url, Duration::from_secs(30))];
    announced(&database, 2).await;
    let address = Address::connect(&url).await.unwrap();
    let load = Load::begin(address.pool().clone());
    load.more(300).await;
    let behind = number(&database).await;
    upstream.set(Mode::Drop);
    let before = load.count();
    // Wait until the primary is ahead of the standby in transaction ids and in lane positions. Enqueues advance both.
    let gone = async || number(&database).await >= behind + 1_500 && load.count() >= before + 300;
    within(PATIENCE, "much is done that is about to be lost", gone).await;
    let reached = number(&database).await;
    primary.quit().unwrap();
    upstream.cut();
    standby.promote().await.unwrap();
    let there = on(&standby).await;
    let (promoted, goes_on) = (now(&there).await, number(&there).await);
    assert!(reached - goes_on >= 1_000, "only {} transactions are lost", reached - goes_on);
    let longest = LongestWait::begin(there.pool.clone());
    let took = first_after(&there, promoted).await;
    load.more(600).await;
    let (acknowledged, tried) = load.end().await;
    // Jobs whose verdicts were lost are completed again.
    all_are_completed(&there).await;
    let (longest, lost) = (longest.end().await, lost(&there, &acknowledged).await);
    println!(
        "behind: {} acknowledged of {tried}, {lost} lost with {} transactions, a job completed {took:?} after the promotion, none ready for over {longest:?}",
        acknowledged.len(),
        reached - goes_on
    );
    assert!(lost > 0, "nothing was lost, so that nothing was tried");
    for worker in &mut workers {
        assert!(!worker.has_ended());
    }
    address.close().await;
}

/// The primary is slow before it fails, as is common. A full scan that took over a second is not repeated until twenty times its duration
/// has passed. The worker must nevertheless find a job whose completion was lost in the failover.
#[tokio::test]
#[ignore = "deep"]
async fn f70_jobs_below_the_floors_remembered_from_a_failed_slow_server_are_found() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database(NAME).await.unwrap();
    let (upstream, name) = (Proxy::start(primary.port()).await.unwrap(), Proxy::start(primary.port()).await.unwrap());
    let standby = primary.standby(upstream.port).await.unwrap();
    let mut worker = worker(&url(name.port, NAME), Duration::from_mins(1));
    announced(&database, 1).await;
    works(&database).await;
    name.set(Mode::Delay(Duration::from_millis(600)));
    for _ in 0..2 {
        works(&database).await;
    }
    name.set(Mode::Pass);
    worker.signal("STOP");
    let below = enqueue(&database).await;
    let caught_up = "select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_lsn()";
    within(PATIENCE, "the standby has the job", async || database.count(caught_up).await.unwrap() == 1).await;
    upstream.set(Mode::Drop);
    worker.signal("CONT");
    within(PATIENCE, "it is completed, which is about to be lost", async || is_completed(&database, below).await).await;
    works(&database).await;
    primary.quit().unwrap();
    upstream.cut();
    standby.promote().await.unwrap();
    let there = on(&standby).await;
    assert!(!is_completed(&there, below).await);
    name.redirect_to(standby.port());
    let since = Instant::now();
    within(Duration::from_secs(20), "it is completed again", async || is_completed(&there, below).await).await;
    println!("behind: a job below the floors was completed {:?} after the server could be reached", since.elapsed());
    assert!(!worker.has_ended());
}

async fn enqueue(database: &Database) -> JobId {
    let one = sqlx::query_scalar("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}', '{\"max_attempts\": 90}')");
    one.fetch_one(&database.pool).await.unwrap()
}

async fn works(database: &Database) {
    let job = enqueue(database).await;
    within(PATIENCE, "a job is completed", async || is_completed(database, job).await).await;
}

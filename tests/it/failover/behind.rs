//! A standby that is behind: what it lacks is gone, and nothing of what it has is forgotten by those who remember more.

use tests::proxy::{Mode, Proxy};

use super::*;

#[tokio::test]
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
    // Each takes numbers of transactions, and of places.
    let gone = async || number(&database).await >= behind + 1_500 && load.count() >= before + 300;
    within(PATIENCE, "much is done that is about to be lost", gone).await;
    let reached = number(&database).await;
    primary.quit().unwrap();
    upstream.cut();
    standby.promote().await.unwrap();
    let there = on(&standby).await;
    let (promoted, goes_on) = (now(&there).await, number(&there).await);
    assert!(reached - goes_on >= 1_000, "only {} transactions are lost", reached - goes_on);
    let longest = Longest::begin(there.pool.clone());
    let took = first_after(&there, promoted).await;
    load.more(600).await;
    let (acknowledged, tried) = load.end().await;
    // What was lost of a verdict is tried again.
    all_are_completed(&there).await;
    let (longest, lost) = (longest.end().await, lost(&there, &acknowledged).await);
    println!(
        "behind: {} acknowledged of {tried}, {lost} lost with {} transactions, a job completed {took:?} after the promotion, none ready for over {longest:?}",
        acknowledged.len(),
        reached - goes_on
    );
    assert!(lost > 0, "nothing was lost, so that nothing was tried");
    assert!(took <= soon(), "{took:?}");
    assert!(longest <= soon() + Duration::from_secs(2), "a job was ready for {longest:?}");
    for worker in &mut workers {
        assert!(!worker.has_ended());
    }
    address.close().await;
}

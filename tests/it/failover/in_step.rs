//! Tests a synchronous standby: no acknowledged job is lost.

use super::*;

#[tokio::test]
#[ignore = "deep"]
async fn f86_with_a_synchronous_standby_nothing_is_lost_and_work_continues_within_seconds() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database(NAME).await.unwrap();
    let standby = primary.standby(primary.port()).await.unwrap();
    wait_for_standby(&database).await;
    let url = both(&primary, &standby);
    let workers = [worker(&url, Duration::from_secs(30)), worker(&url, Duration::from_secs(30))];
    announced(&database, 2).await;
    let address = Address::connect(&url).await.unwrap();
    let load = Load::begin(address.pool().clone());
    load.more(300).await;
    let since = Instant::now();
    primary.quit().unwrap();
    standby.promote().await.unwrap();
    let there = on(&standby).await;
    let promoted = now(&there).await;
    let took = first_after(&there, promoted).await;
    load.more(300).await;
    let (acknowledged, tried) = load.end().await;
    all_are_completed(&there).await;
    let lost = lost(&there, &acknowledged).await;
    println!("in step: {} acknowledged of {tried}, {lost} lost, a job completed {took:?} after the promotion", acknowledged.len());
    assert_eq!(lost, 0);
    for mut worker in workers {
        assert!(!worker.has_ended());
        let lines = worker.log_since(since);
        let is_logged = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(is_logged("querying its other hosts") && is_logged("connected to another host"), "{lines:#?}");
    }
    address.close().await;
}

//! Tests a split brain: two servers accept writes, because the old primary does not know that the standby was promoted.

use tests::proxy::{Mode, Proxy};

use super::*;

#[tokio::test]
#[ignore = "deep"]
async fn f87_without_its_synchronous_standby_the_old_side_acknowledges_nothing_and_its_worker_stops_within_its_ttl() {
    const TTL: Duration = Duration::from_secs(3);
    let old = TestServer::start().await.unwrap();
    let database = old.database(NAME).await.unwrap();
    let upstream = Proxy::start(old.port()).await.unwrap();
    let new = old.standby(upstream.port).await.unwrap();
    wait_for_standby(&database).await;
    // Each worker knows only the server on its own side.
    let here = worker(&old.url(NAME), TTL);
    announced(&database, 1).await;
    let load = Load::begin(database.pool.clone());
    load.more(300).await;

    upstream.set(Mode::Drop);
    let since = Instant::now();
    new.promote().await.unwrap();
    let there = on(&new).await;
    let promoted = now(&there).await;
    // Messages in flight at the time of the split may still arrive.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = load.count();
    let stopped = async || here.log_since(since).iter().any(|line| line.contains("abandoning all jobs"));
    within(PATIENCE, "the worker of the old side stops", stopped).await;
    let took = since.elapsed();
    let other = worker(&new.url(NAME), TTL);
    let resumed = first_after(&there, promoted).await;
    let (acknowledged, tried) = load.end().await;
    let on_old_side = acknowledged.len() - before;
    all_are_completed(&there).await;
    let lost = lost(&there, &acknowledged).await;
    println!(
        "split: {} acknowledged of {tried}, {on_old_side} of them by the old side, {lost} lost, its worker stopped after {took:?} of {TTL:?}, \
         the new side completed a job {resumed:?} after the promotion",
        acknowledged.len()
    );
    assert_eq!((on_old_side, lost), (0, 0));
    // The old side's worker settles no job after the split, because no commit succeeds.
    let late = "select count(*) from queue.done where finished_at > now() - interval '1 second'";
    // Use a separate connection, because the pool's connections are waiting for the standby.
    assert_eq!(on(&old).await.count(late).await.unwrap(), 0);
    drop((here, other));

    // With both servers in its URL, a worker uses the most recently promoted server, regardless of the order in the URL.
    for url in [both(&old, &new), both(&new, &old)] {
        let address = Address::connect(&url).await.unwrap();
        assert_eq!(address.pool().connect_options().get_port(), new.port());
        address.close().await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f87_a_worker_on_the_old_side_that_knows_the_new_one_moves_there_by_itself() {
    let old = TestServer::start().await.unwrap();
    let database = old.database(NAME).await.unwrap();
    let new = old.standby(old.port()).await.unwrap();
    let address = Address::connect(&both(&old, &new)).await.unwrap();
    let mut worker = worker(&both(&old, &new), Duration::from_secs(5));
    announced(&database, 1).await;
    assert_eq!(address.pool().connect_options().get_port(), old.port());
    let held = address.pool().acquire().await.unwrap();
    new.promote().await.unwrap();
    let there = on(&new).await;
    let moved = Instant::now();
    announced(&there, 1).await;
    within(PATIENCE, "the pool is led there", async || address.pool().connect_options().get_port() == new.port()).await;
    println!("split: moved {:?} after the promotion", moved.elapsed());
    drop(held);
    // No connection to the old server is reused.
    for _ in 0..5 {
        let port: i32 = sqlx::query_scalar("select current_setting('port')::int").fetch_one(address.pool()).await.unwrap();
        assert_eq!(port, i32::from(new.port()));
    }
    let job = sqlx::query_scalar("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").fetch_one(address.pool()).await.unwrap();
    within(PATIENCE, "the worker works there", async || is_completed(&there, job).await).await;
    assert!(!worker.has_ended());
    address.close().await;
}

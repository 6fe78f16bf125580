//! Tests a worker that starts while no server accepts writes.

use tests::Act;

use super::*;

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

fn run(url: &str, settings: &[(&str, &str)]) -> WorkerProcess {
    WorkerProcess::start_with(CLI, url, &["run"], &[&[("NO_COLOR", "1"), ("QUEUE_LOG", "info")], settings].concat())
}

fn has_logged(worker: &WorkerProcess, since: Instant, text: &str) -> bool {
    worker.log_since(since).iter().any(|line| line.contains(text))
}

#[tokio::test]
#[ignore = "deep"]
async fn f85_a_worker_on_a_standby_reports_it_at_its_start_and_waits_or_exits_as_configured() {
    let since = Instant::now();
    let primary = TestServer::start().await.unwrap();
    let database = primary.database(NAME).await.unwrap();
    let job = tests_enqueue(&database).await;
    let standby = primary.standby(primary.port()).await.unwrap();
    let caught_up = "select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_lsn()";
    within(PATIENCE, "the standby has all", async || database.count(caught_up).await.unwrap() == 1).await;
    // One URL contains only the standby. The other URL lists the standby twice, as several hosts that all reject writes.
    let alone = standby.url(NAME);
    let among = format!("postgres://postgres@127.0.0.1:{0},127.0.0.1:{0}/{NAME}?sslmode=disable", standby.port());
    for url in [&alone, &among] {
        let mut exits = run(url, &[("QUEUE_ON_STANDBY", "exit")]);
        assert_eq!(exits.wait(), Some(1));
        within(PATIENCE, "it logs the reason", async || has_logged(&exits, since, "standby")).await;
    }
    let mut waiting = [run(&alone, &[]), run(&among, &[("QUEUE_ON_STANDBY", "wait"), ("QUEUE_MIGRATE", "true")])];
    for worker in &waiting {
        within(PATIENCE, "it logs that it waits", async || has_logged(worker, since, "waiting until it does")).await;
        assert!(!has_logged(worker, since, "worker started"));
    }
    // A worker that is waiting for a server stops on SIGTERM.
    let mut waiter = run(&alone, &[]);
    within(PATIENCE, "it logs that it waits", async || has_logged(&waiter, since, "waiting until it does")).await;
    waiter.signal("TERM");
    waiter.wait();
    standby.promote().await.unwrap();
    let promoted = Instant::now();
    let there = on(&standby).await;
    within(PATIENCE, "the job is completed", async || is_completed(&there, job).await).await;
    println!("start: works {:?} after the promotion", promoted.elapsed());
    for worker in &mut waiting {
        within(PATIENCE, "it has started", async || has_logged(worker, since, "worker started")).await;
        assert!(!worker.has_ended());
    }
    let mut wrong = run(&alone, &[("QUEUE_ON_STANDBY", "sleep")]);
    assert_eq!(wrong.wait(), Some(2));
}

async fn tests_enqueue(database: &Database) -> JobId {
    use queue_core::Job as _;
    tests::Do { act: Act::Ok(String::new()) }.enqueue(&database.pool).await.unwrap().id()
}

//! Tests the health endpoint while a worker starts, works, stalls, loses its database and drains. Also tests malformed requests.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use queue_core::{Job as _, JobState, Queue, schedule::Schedule};
use queue_worker::{Error, Worker};
use serde_json::Value;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tests::{Act, Do, TestDb, UntilGo, WorkerProcess, eventually, server::TestServer, within};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");

/// Returns a free address. Its port is below the ephemeral range, so that connections of other tests do not take the port.
pub(crate) async fn free_address() -> SocketAddr {
    loop {
        let port = fastrand::u16(10_000..32_000);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return listener.local_addr().unwrap();
        }
    }
}

/// Sends a GET request. Returns the status and the body, or `None` if no process is listening.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    get_as(address, path, "h").await
}

/// Sends a GET request with the given `Host` header. Returns the same values as [`get`].
pub(crate) async fn get_as(address: SocketAddr, path: &str, host: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Sends a GET request. Returns the status and the reported reasons, or 0 and no reasons if no process is listening.
async fn ask(address: SocketAddr, path: &str) -> (u16, Vec<String>) {
    let Some((status, body)) = get(address, path).await else { return (0, Vec::new()) };
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let reasons: Vec<String> =
        body["reasons"].as_array().unwrap().iter().map(|reason| reason["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!((status == 200, body["ok"].as_bool().unwrap()), (reasons.is_empty(), reasons.is_empty()), "{body}");
    (status, reasons)
}

async fn is_ready(address: SocketAddr) -> bool {
    ask(address, "/readyz").await.0 == 200
}

async fn is_unready_for(address: SocketAddr, reason: &str) -> bool {
    let (status, reasons) = ask(address, "/readyz").await;
    status == 503 && reasons.iter().any(|shown| shown == reason)
}

#[tokio::test]
async fn a_worker_is_live_before_it_is_ready_and_ready_once_registered() {
    let (db, address) = (TestDb::new().await, free_address().await);
    // While this lock is held, no worker can register.
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::query("lock table queue.worker in exclusive mode").execute(&mut *held).await.unwrap();
    db.run_while(db.worker().health(address), async {
        eventually("it lives", async || ask(address, "/livez").await.0 == 200).await;
        assert_eq!(ask(address, "/readyz").await, (503, vec!["not_announced".to_owned()]));
        held.rollback().await.unwrap();
        within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
        assert_eq!(get(address, "/nothing").await.unwrap().0, 404);
    })
    .await;
    assert!(get(address, "/livez").await.is_none(), "a worker that has ended reports nothing");
    db.finish().await;
}

#[tokio::test]
async fn a_draining_worker_is_live_and_not_ready() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let job = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = db.worker().register::<UntilGo>().health(address).grace(Duration::from_mins(2));
    let running = tokio::spawn(worker.run(async move { stopped.await.unwrap_or_default() }));
    // A claimed job that has not started would be released, so the test waits until the handler runs.
    db.until_count("select count(*) from effect", 1).await;
    within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
    stop.send(()).unwrap();
    eventually("it is not ready", async || is_unready_for(address, "stopping").await).await;
    // The worker reports `stopping` before its last claim ends, and acknowledges all pauses (`paused_seen`) after that claim. From then
    // on, it claims no jobs.
    db.until_count("select count(*) from queue.worker where paused_seen = 9223372036854775807", 1).await;
    let other = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    assert_eq!((db.state(job).await, ask(address, "/livez").await.0), (Some(JobState::Running), 200), "it drains");
    sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!((db.state(job).await, db.state(other).await), (Some(JobState::Completed), Some(JobState::Ready)));
    db.finish().await;
}

/// A store that was created before its tables had checks may contain a row that cannot be decoded.
#[tokio::test]
async fn a_loop_that_panics_restarts_and_continues_once_its_row_is_corrected() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let each_second = Schedule::every(Duration::from_secs(1)).job(&Do { act: Act::Ok(String::new()) });
    Queue::new(&db.pool).schedule("good").create(&each_second).await.unwrap();
    Queue::new(&db.pool).schedule("bad").create(&each_second).await.unwrap();
    let spoilt = "alter table queue.schedule drop constraint schedule_times_in_range;
      update queue.schedule set since = 'infinity', next_at = '-infinity' where name = 'bad'";
    sqlx::raw_sql(spoilt).execute(&db.pool).await.unwrap();
    db.run_while(db.worker().health(address), async {
        eventually("the loop has panicked", async || is_unready_for(address, "loop_panicked").await).await;
        assert_eq!(ask(address, "/livez").await, (200, vec![]), "it continues by itself");
        let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
        db.until(job, JobState::Completed).await;
        sqlx::query("update queue.schedule set since = now(), next_at = null where name = 'bad'").execute(&db.pool).await.unwrap();
        sqlx::query("select queue.notify_schedules()").execute(&db.pool).await.unwrap();
        for name in ["good", "bad"] {
            eventually("its ticks fire", async || db.count(&format!("select count(*) from queue.fire where name = '{name}'")).await > 0)
                .await;
        }
    })
    .await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// An idle worker does not read the table whose rows are hidden, so it must detect the hidden rows without a failing statement.
#[tokio::test]
async fn rows_hidden_from_a_running_worker_are_reported_within_a_minute_with_the_fix() {
    let (db, address, login) = (TestDb::new().await, free_address().await, format!("hidden_{}", std::process::id()));
    let run = async |sql: &str| sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&db.pool).await.unwrap();
    run(&format!(
        "create role {login} login; grant usage on schema queue to {login}; grant all on all tables in schema queue to {login};
         grant all on all sequences in schema queue to {login}; grant execute on all functions in schema queue to {login}"
    ))
    .await;
    let url = (*db.pool.connect_options()).clone().username(&login).to_url_lossy().to_string();
    let worker = WorkerProcess::start_logged(WORKER, &url, &[("PACE", "60"), ("HEALTH", &address.to_string())]);
    within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
    run("alter table queue.failure enable row level security").await;
    eventually("it is not ready", async || is_unready_for(address, "no_access").await).await;
    let (fix, began) = ("alter table \"queue\".failure disable row level security", Instant::now());
    for _ in 0..2 {
        let since = Instant::now();
        eventually("it is reported again", async || worker.log_since(since).iter().any(|line| line.contains(fix))).await;
    }
    run(fix).await;
    eventually("it is ready again", async || is_ready(address).await).await;
    assert!(worker.log_since(began).iter().filter(|line| line.contains("row level")).all(|line| line.contains(" ERROR ")));
    db.kill(worker).await;
    run(&format!("drop owned by {login}; drop role {login}")).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn verdicts_that_cannot_be_written_make_a_worker_unready_until_they_are() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    db.run_while(db.worker().health(address), async {
        within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
        sqlx::query("lock table queue.done, queue.done_many in access exclusive mode").execute(&mut *held).await.unwrap();
        let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap();
        within(Duration::from_mins(1), "its settles stall", async || is_unready_for(address, "settles_stall").await).await;
        assert_eq!(ask(address, "/livez").await.0, 200, "a restart would not help");
        held.rollback().await.unwrap();
        assert_eq!(job.wait(&db.queue()).await.unwrap(), "x");
        within(Duration::from_secs(30), "it is ready again", async || is_ready(address).await).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn while_the_database_is_unreachable_a_worker_is_live_and_not_ready() {
    let (server, address) = (TestServer::start().await.unwrap(), free_address().await);
    let database = server.database("away").await.unwrap();
    let worker = Worker::new(database.pool.clone()).register::<Do>().health(address).lease_ttl(Duration::from_secs(6));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async move { stopped.await.unwrap_or_default() }));
    within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
    server.kill().unwrap();
    within(Duration::from_secs(30), "its claims fail", async || is_unready_for(address, "claims_fail").await).await;
    let beats = async || is_unready_for(address, "no_heartbeat").await || is_unready_for(address, "not_announced").await;
    within(Duration::from_secs(30), "it does not beat", beats).await;
    within(Duration::from_secs(30), "it has given up its lease", async || is_unready_for(address, "not_announced").await).await;
    assert_eq!(ask(address, "/livez").await.0, 200);
    server.restart().await.unwrap();
    within(Duration::from_mins(1), "it is ready again", async || is_ready(address).await).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn jobs_run_while_another_process_uses_the_addresses_which_are_served_once_free() {
    let db = TestDb::new().await;
    let taken = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let [health, dashboard] = [0, 1].map(|at: usize| taken[at].local_addr().unwrap());
    let mut run = Command::new(env!("CARGO_BIN_EXE_test-cli"));
    run.args(["run", "--health", &health.to_string(), "--dashboard", &dashboard.to_string()]).env("DATABASE_URL", &db.url);
    run.env_remove("QUEUE_TEST_SKIPS").env("QUEUE_LOG", "info").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut worker = run.spawn().unwrap();
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    db.until(job, JobState::Completed).await;
    drop(taken);
    within(Duration::from_secs(30), "it is ready", async || is_ready(health).await).await;
    within(Duration::from_secs(30), "it is served", async || get(dashboard, "/api/v1/overview").await.is_some()).await;
    assert!(Command::new("kill").arg(worker.id().to_string()).status().unwrap().success());
    let mut stderr = String::new();
    std::io::Read::read_to_string(worker.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    for what in ["cannot serve health checks yet", "cannot serve the dashboard yet", "another process uses it"] {
        assert!(stderr.contains(what), "{what}: {stderr}");
    }
    db.finish().await;
}

#[tokio::test]
async fn an_address_of_another_machine_prevents_the_start_and_is_named() {
    let db = TestDb::new().await;
    let address: SocketAddr = "192.0.2.1:7071".parse().unwrap();
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    let refused = db.worker().health(address).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(&refused, Error::Health { address: named, .. } if *named == address), "{refused}");
    for served in ["--health", "--dashboard"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_test-cli"));
        run.args(["run", served, &address.to_string()]).env("DATABASE_URL", &db.url).env_remove("QUEUE_TEST_SKIPS").stdin(Stdio::null());
        let ran = run.env("QUEUE_DASHBOARD_TOKEN", "0123456789abcdef").output().unwrap();
        let message = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{message}");
        assert!(message.contains(&address.to_string()), "{message}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dashboard = Command::new(env!("CARGO_BIN_EXE_test-cli"));
    dashboard.args(["dashboard", "--addr", &taken.local_addr().unwrap().to_string()]).env("DATABASE_URL", &db.url);
    let ran = dashboard.env_remove("QUEUE_TEST_SKIPS").stdin(Stdio::null()).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "who has nothing else to do ends: {}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(db.state(job).await, Some(JobState::Ready), "nothing was claimed");
    db.finish().await;
}

/// Fills a pipe, so that writers wait until the pipe is read.
fn fill(pipe: &std::io::PipeWriter) -> std::thread::JoinHandle<()> {
    let mut pipe = pipe.try_clone().unwrap();
    std::thread::spawn(move || {
        // Write until the pipe is full. The thread then blocks, as the worker does.
        for _ in 0..512 {
            if std::io::Write::write_all(&mut pipe, &[b'.'; 8 * 1024]).is_err() {
                return;
            }
        }
    })
}

#[tokio::test]
#[ignore = "deep"]
async fn loops_blocked_by_an_unread_log_are_reported_as_dead() {
    let (server, address) = (TestServer::start().await.unwrap(), free_address().await);
    let database = server.database("still").await.unwrap();
    let (mut reads, log) = std::io::pipe().unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_test-worker"));
    run.env("HEALTH", address.to_string()).env("PACE", "20").env("DATABASE_URL", server.url("still")).env("QUEUE_LOG", "warn");
    let mut worker = run.env_remove("QUEUE_TEST_SKIPS").stdin(Stdio::null()).stderr(log.try_clone().unwrap()).spawn().unwrap();
    drop(run);
    within(Duration::from_mins(1), "it is ready", async || is_ready(address).await).await;
    let filling = fill(&log);
    // The loops log database errors, so they wait until the pipe is read.
    server.kill().unwrap();
    let dead = async |reason: &str| ask(address, "/livez").await.1.iter().any(|shown| shown == reason);
    within(Duration::from_mins(2), "the loops stand still", async || dead("engine_held_up").await).await;
    within(Duration::from_mins(4), "so does the claim loop", async || dead("claims_held_up").await).await;
    let reading = std::thread::spawn(move || std::io::copy(&mut reads, &mut std::io::sink()));
    within(Duration::from_mins(1), "they go on", async || ask(address, "/livez").await.0 == 200).await;
    server.restart().await.unwrap();
    within(Duration::from_mins(1), "it is ready again", async || is_ready(address).await).await;
    assert!(Command::new("kill").arg(worker.id().to_string()).status().unwrap().success());
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    filling.join().unwrap();
    drop((log, database));
    reading.join().unwrap().unwrap();
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn silent_clients_do_not_delay_the_answer_to_a_supervisor() {
    let (db, address) = (TestDb::new().await, free_address().await);
    db.run_while(db.worker().health(address), async {
        within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
        let mut silent = Vec::new();
        for text in ["", "GET /livez HT"] {
            for _ in 0..40 {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(text.as_bytes()).await.unwrap();
                silent.push(stream);
            }
        }
        let answered = tokio::time::timeout(Duration::from_mins(2), get(address, "/livez")).await.unwrap();
        assert_eq!(answered.unwrap().0, 200);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn the_address_is_an_option_a_variable_and_a_key_of_the_settings_file() {
    let db = TestDb::new().await;
    let folder = std::env::temp_dir().join(format!("queue-health-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for how in ["option", "variable", "file"] {
        let address = free_address().await.to_string();
        let mut run = Command::new(env!("CARGO_BIN_EXE_test-cli"));
        run.arg("run").env("DATABASE_URL", &db.url).env_remove("QUEUE_TEST_SKIPS").stdin(Stdio::null()).stderr(Stdio::null());
        match how {
            "option" => run.args(["--health", &address]),
            "variable" => run.env("QUEUE_HEALTH", &address),
            _ => {
                let file = folder.join("health.toml");
                std::fs::write(&file, format!("[worker]\nhealth = '{address}'\n")).unwrap();
                run.arg("--config").arg(file)
            }
        };
        let mut worker = run.spawn().unwrap();
        within(Duration::from_secs(30), how, async || is_ready(address.parse().unwrap()).await).await;
        assert!(Command::new("kill").arg(worker.id().to_string()).status().unwrap().success());
        assert_eq!(worker.wait().unwrap().code(), Some(0));
    }
    std::fs::remove_dir_all(folder).unwrap();
    db.finish().await;
}

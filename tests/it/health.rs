//! A worker that says whether it lives and works: while it starts, works, stalls, loses its database and drains; and whoever asks badly.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use queue_core::{Job as _, JobState};
use queue_worker::{Error, Worker};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, UntilGo, eventually, server::TestServer, within};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

/// An address that was free just now.
pub(crate) async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// The status and the body; `None` if nobody listens.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes()).await.ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The status, and the reasons.
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
    status == 503 && reasons.iter().any(|said| said == reason)
}

#[tokio::test]
async fn a_worker_lives_before_it_is_ready_and_is_ready_once_it_is_announced() {
    let (db, address) = (TestDb::new().await, free_address().await);
    // While this is held, nobody can be announced.
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
    assert!(get(address, "/livez").await.is_none(), "a worker that has ended says nothing");
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_drains_is_not_ready_and_lives() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let job = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = db.worker().register::<UntilGo>().health(address).grace(Duration::from_mins(2));
    let running = tokio::spawn(worker.run(async move { stopped.await.unwrap_or_default() }));
    db.until(job, JobState::Running).await;
    within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
    stop.send(()).unwrap();
    eventually("it is not ready", async || is_unready_for(address, "stopping").await).await;
    let other = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    assert_eq!((db.state(job).await, ask(address, "/livez").await.0), (Some(JobState::Running), 200), "it drains");
    sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!((db.state(job).await, db.state(other).await), (Some(JobState::Completed), Some(JobState::Ready)));
    db.finish().await;
}

#[tokio::test]
async fn verdicts_that_cannot_be_written_make_a_worker_unready_until_they_are() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    db.run_while(db.worker().health(address), async {
        within(Duration::from_secs(30), "it is ready", async || is_ready(address).await).await;
        sqlx::query("lock table queue.done, queue.done_many in access exclusive mode").execute(&mut *held).await.unwrap();
        let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap();
        within(Duration::from_mins(1), "its settles stall", async || is_unready_for(address, "settles_stall").await).await;
        assert_eq!(ask(address, "/livez").await.0, 200, "starting it anew would mend nothing");
        held.rollback().await.unwrap();
        assert_eq!(job.wait(&db.pool).await.unwrap(), "x");
        within(Duration::from_secs(30), "it is ready again", async || is_ready(address).await).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn while_the_database_is_away_a_worker_lives_and_is_not_ready() {
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
async fn a_taken_address_keeps_a_worker_from_running_and_is_named() {
    let db = TestDb::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    let refused = db.worker().health(address).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(&refused, Error::Health { address: named, .. } if *named == address), "{refused}");
    let mut run = Command::new(env!("CARGO_BIN_EXE_test-cli"));
    run.args(["run", "--health", &address.to_string()]).env("DATABASE_URL", &db.url).env_remove("QUEUE_TEST_SKIPS").stdin(Stdio::null());
    let ran = run.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("health checks cannot be answered on {address}")) && said.contains("help: name another"), "{said}");
    assert_eq!(db.state(job).await, Some(JobState::Ready), "nothing was claimed");
    db.finish().await;
}

#[tokio::test]
async fn clients_that_say_nothing_do_not_keep_a_supervisor_from_its_answer() {
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

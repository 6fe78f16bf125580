//! Tests that a worker reports when it is ready, and that a handler can read the enqueue and claim times of its attempt.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::{Command, Stdio},
    time::Duration,
};

use chrono::{DateTime, Utc};
use queue_core::{Context, Handler, Job as _, JobResult, job};
use serde::{Deserialize, Serialize};
use sqlx::Connection as _;
use tests::{TestDb, eventually};
use tokio::sync::oneshot;

/// Job that returns its enqueue and claim times in microseconds.
#[job(output = [i64; 2])]
#[derive(Serialize, Deserialize)]
struct TellTimes {}

impl Handler for TellTimes {
    async fn run(self, cx: &Context) -> JobResult<[i64; 2]> {
        Ok([cx.enqueued_at(), cx.claimed_at()].map(|time| time.timestamp_micros()))
    }
}

/// Transactional variant of [`TellTimes`].
#[job(transactional, output = [i64; 2])]
#[derive(Serialize, Deserialize)]
struct TellTimesWithin {}

impl Handler for TellTimesWithin {
    async fn run(self, cx: &Context) -> JobResult<[i64; 2]> {
        Ok([cx.enqueued_at(), cx.claimed_at()].map(|time| time.timestamp_micros()))
    }
}

#[tokio::test]
async fn an_attempt_knows_when_its_job_was_enqueued_and_claimed_by_the_databases_clock() {
    let db = TestDb::new().await;
    let ids = [TellTimes {}.enqueue(&db.pool).await.unwrap().id(), TellTimesWithin {}.enqueue(&db.pool).await.unwrap().id()];
    let clock = "select clock_timestamp()";
    let before: DateTime<Utc> = sqlx::query_scalar(clock).fetch_one(&db.pool).await.unwrap();
    db.run_until_idle(db.worker().register::<TellTimes>().register::<TellTimesWithin>()).await;
    let after: DateTime<Utc> = sqlx::query_scalar(clock).fetch_one(&db.pool).await.unwrap();
    for id in ids {
        let times: sqlx::types::Json<[i64; 2]> =
            sqlx::query_scalar("select output from queue.done where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
        let [enqueued, claimed] = times.0;
        assert_eq!(Some(enqueued), id.enqueued_at().map(|time| time.timestamp_micros()));
        assert!((before.timestamp_micros()..=after.timestamp_micros()).contains(&claimed), "{before} {claimed} {after}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_worker_is_ready_once_registered_and_not_before() {
    let db = TestDb::new().await;
    // While this lock is held, no worker can register.
    let mut other = sqlx::PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::query("lock table queue.worker in exclusive mode").execute(&mut *held).await.unwrap();
    let ((ready, mut is_ready), (also, is_also)) = (oneshot::channel(), oneshot::channel());
    let notify = |sender: oneshot::Sender<()>| move || sender.send(()).unwrap();
    let worker = db.worker().on_ready(notify(ready)).on_ready(notify(also));
    db.run_while(worker, async {
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'queue-worker heartbeat'";
        eventually("it waits to be announced", async || db.count(waits).await == 1).await;
        assert!(is_ready.try_recv().is_err(), "it is not ready");
        held.rollback().await.unwrap();
        is_ready.await.unwrap();
        is_also.await.unwrap();
        assert_eq!(db.count("select count(*) from queue.worker").await, 1);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_supervisor_is_notified_when_a_worker_is_ready_and_when_it_stops() {
    let db = TestDb::new().await;
    let path = std::env::temp_dir().join(format!("queue-ready-{}.sock", std::process::id()));
    let name = format!("queue-ready-{}", std::process::id());
    let sockets = [
        (path.to_str().unwrap().to_owned(), UnixDatagram::bind(&path).unwrap()),
        (format!("@{name}"), UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap()),
    ];
    for (socket, listening) in sockets {
        listening.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let next_message = |listening: UnixDatagram| {
            tokio::task::spawn_blocking(move || {
                let mut message = [0; 64];
                let length = listening.recv(&mut message).unwrap();
                (String::from_utf8(message[..length].to_vec()).unwrap(), listening)
            })
        };
        let mut run = Command::new(env!("CARGO_BIN_EXE_test-cli"));
        run.args(["run", "--log", "off"]).env("DATABASE_URL", &db.url).env("NOTIFY_SOCKET", socket).stderr(Stdio::null());
        let mut worker = run.spawn().unwrap();
        let (message, listening) = next_message(listening).await.unwrap();
        assert_eq!((message.as_str(), db.count("select count(*) from queue.worker").await), ("READY=1", 1));
        assert!(Command::new("kill").arg(worker.id().to_string()).status().unwrap().success());
        assert_eq!(next_message(listening).await.unwrap().0, "STOPPING=1");
        assert_eq!(worker.wait().unwrap().code(), Some(0));
    }
    std::fs::remove_file(path).unwrap();
    db.finish().await;
}

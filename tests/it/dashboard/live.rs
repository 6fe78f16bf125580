//! Tests the streams of live updates: their contents, their maximum number, and the statements that each update executes once for all
//! streams.

use std::time::Duration;

use queue_worker::dashboard::Options;
use sqlx::{Connection as _, PgConnection};
use tests::{Act, TestDb, eventually, within};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Served, enqueue, pages::Statements};

/// Client of a stream.
pub(super) struct Viewer {
    stream: TcpStream,
    pub(super) received: String,
}

impl Viewer {
    pub(super) async fn new(served: &Served, path: &str) -> Self {
        let mut stream = TcpStream::connect(served.client.address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        Self { stream, received: String::new() }
    }

    pub(super) async fn until(&mut self, what: &str) {
        let received = tokio::time::timeout(Duration::from_secs(30), async {
            while !self.received.contains(what) {
                let mut bytes = [0; 4096];
                let many = self.stream.read(&mut bytes).await.unwrap();
                assert!(many > 0, "the stream has ended: {}", self.received);
                self.received += &String::from_utf8_lossy(&bytes[..many]);
            }
        });
        assert!(received.await.is_ok(), "never received {what}: {}", self.received);
    }

    /// Reads until the stream has sent its last chunk.
    pub(super) async fn until_end(&mut self) {
        self.until("\r\n0\r\n\r\n").await;
    }
}

#[tokio::test]
async fn streams_send_updates_and_their_number_is_limited() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let served = Served::new(&db).await;
    let mut viewers = Vec::new();
    for _ in 0..31 {
        viewers.push(Viewer::new(&served, "/live").await);
    }
    viewers.push(Viewer::new(&served, &format!("/live?job={job}")).await);
    for viewer in &mut viewers {
        viewer.until("event: part").await;
        assert!(viewer.received.contains("text/event-stream") && viewer.received.contains("content-security-policy"));
    }
    viewers[31].until("no worker is alive").await;
    assert_eq!(served.client.get("/live").await.status, 503);
    assert_eq!(served.client.get("/").await.status, 200, "pages still work");
    db.run_until_idle(db.worker()).await;
    viewers[31].until("completed").await;
    drop(viewers);
    within(Duration::from_secs(30), "there is room again", async || {
        let mut one = Viewer::new(&served, "/live").await;
        let mut bytes = [0; 12];
        one.stream.read_exact(&mut bytes).await.unwrap();
        &bytes == b"HTTP/1.1 200"
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn all_streams_share_one_query_and_no_stream_means_none() {
    let db = TestDb::new().await;
    let served = Served::new(&db).await;
    let statements = Statements::default();
    let _guard = statements.collect();
    let mut viewers = Vec::new();
    for _ in 0..20 {
        viewers.push(Viewer::new(&served, "/live").await);
    }
    for viewer in &mut viewers {
        viewer.until("event: part").await;
    }
    let mut parts = viewers[0].received.matches("event: part").count();
    statements.count();
    while viewers[0].received.matches("event: part").count() < parts + 3 {
        let known = viewers[0].received.len();
        viewers[0].received.push(' ');
        let mut bytes = [0; 4096];
        let many = viewers[0].stream.read(&mut bytes).await.unwrap();
        viewers[0].received += &String::from_utf8_lossy(&bytes[..many]);
        assert!(viewers[0].received.len() > known);
    }
    parts = viewers[0].received.matches("event: part").count() - parts;
    // An update takes six statements. Loading the trends takes five more, at most once within three updates.
    let sent = statements.count();
    assert!((6 * parts..=6 * (parts + 1) + 5).contains(&sent), "{sent} statements for {parts} updates of 20 viewers");
    drop(viewers);
    let mut alone = PgConnection::connect(&db.url).await.unwrap();
    let busy = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
        and state_change > clock_timestamp() - interval '5 s'";
    eventually("no client watches", async || sqlx::query_scalar::<_, i64>(busy).fetch_one(&mut alone).await.unwrap() == 0).await;
    alone.close().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_stream_requires_a_login_and_an_existing_subject() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().token("correct horse battery staple")).await;
    assert_eq!(served.client.get("/live").await.status, 303);
    let bearer = [("Authorization", "Bearer correct horse battery staple")];
    assert_eq!(served.client.ask("GET", "/live?job=x", &bearer, "").await.status, 404);
    db.finish().await;
}

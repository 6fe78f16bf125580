//! Test that the worker, a separate program, fulfils an order that the web server has accepted.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use queue_core::JobState;
use serde_json::{Value, json};
use tests::TestDb;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Sends a request and returns the JSON of the response.
async fn request(address: std::net::SocketAddr, head: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let fields = format!("Host: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    stream.write_all(format!("{head} HTTP/1.1\r\n{fields}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[tokio::test]
#[ignore = "examples"]
async fn an_order_is_charged_booked_and_confirmed() {
    let db = TestDb::new().await;
    shop_web::create_tables(&db.pool).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, shop_web::routes(db.pool.clone())).into_future());

    let placed = request(address, "POST /orders", &json!({ "email": "ada@example.org" }).to_string()).await;
    let (order, job) = (placed["order"].as_i64().unwrap(), placed["job"].as_str().unwrap().parse().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop-worker"));
    command.arg("run").env("DATABASE_URL", &db.url).env("QUEUE_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut worker = command.spawn().unwrap();
    db.until(job, JobState::Completed).await;
    let output = worker.stdout.take().unwrap();
    let line = tokio::task::spawn_blocking(move || BufReader::new(output).lines().next()).await.unwrap().unwrap().unwrap();
    assert!(line.starts_with(&format!("to ada@example.org: receipt of order {order}")), "{line}");
    let shown = request(address, &format!("GET /orders/{order}"), "").await;
    assert!(shown["receipt"].as_str().unwrap().starts_with("receipt of order"), "{shown}");

    worker.kill().unwrap();
    worker.wait().unwrap();
    server.abort();
    db.finish().await;
}

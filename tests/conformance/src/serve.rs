//! HTTP endpoints of a worker and of a dashboard.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use queue_core::{Job as _, JobState};
use queue_worker::dashboard::{self, Options};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    jobs::echo,
    play::{Need, OperationGroup, operations},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "serve",
    needs: Need::Worker,
    operations: operations![
        "dashboard pages" => pages,
        "dashboard API: queries" => answers,
        "dashboard API: operations" => change_jobs,
    ],
};

const TOKEN: &str = "conformance-conformance-conformance";

/// Sends a request with the access token. Returns the status and the body of the response.
async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    Ok((status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// Starts a dashboard, runs `test`, and stops the dashboard.
async fn with_dashboard<T>(world: &World, test: impl AsyncFnOnce(SocketAddr) -> Result<T>) -> Result<T> {
    let options = Options::default().token(TOKEN).most_jobs(1000).read_only(false).hide_payloads(false).redact("conf_echo", ["card"]);
    let mut listening = dashboard::listen(([127, 0, 0, 1], 0).into(), options).await?;
    if world.setup.read.is_some() {
        listening = listening.read_from(world.read().await?.clone());
    }
    let address = listening.address();
    tokio::select! {
        () = listening.serve(world.pool().clone(), world.store, std::future::pending()) => bail!("the dashboard stopped by itself"),
        tested = test(address) => tested,
    }
}

async fn are_there(world: &World, paths: &[&str]) -> Result<()> {
    let job = echo("on a page").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    world.read().await?;
    let id = job.id().to_string();
    with_dashboard(world, async |address| {
        for path in paths {
            let path = path.replace("{id}", &id);
            let (status, body) = ask(address, "GET", &path, "").await?;
            ensure!(status == 200, "{path}: {status} {}", body.chars().take(200).collect::<String>());
        }
        Ok(())
    })
    .await
}

async fn pages(world: &World) -> Result<()> {
    are_there(world, &["/", "/jobs", "/jobs/{id}", "/dead", "/history", "/queues", "/workers", "/schedules", "/limits", "/audit"]).await?;
    let _routes = dashboard::service(world.pool().clone(), world.store, Options::default().token(TOKEN).host("queue.example.org"))?;
    Ok(())
}

async fn answers(world: &World) -> Result<()> {
    let of_job =
        ["", "/logs", "/why", "/flow", "/steps", "/children", "/gathers", "/signals"].map(|part| format!("/api/v1/jobs/{{id}}{part}"));
    let of_store =
        ["overview", "jobs", "history", "queues", "workers", "dead/groups", "acts", "schedules", "limits", "audit", "openapi.json"];
    let of_store = of_store.map(|part| format!("/api/v1/{part}"));
    are_there(world, &of_job.iter().chain(&of_store).map(String::as_str).collect::<Vec<_>>()).await
}

async fn change_jobs(world: &World) -> Result<()> {
    let job = echo("to be cancelled").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let path = format!("/api/v1/jobs/{}/act", job.id());
    let (status, body) = with_dashboard(world, async |address| ask(address, "POST", &path, r#"{"act": "cancel"}"#).await).await?;
    ensure!(status == 200, "{status} {body}");
    ensure!(job.state(world.pool()).await? == JobState::Cancelled);
    Ok(())
}

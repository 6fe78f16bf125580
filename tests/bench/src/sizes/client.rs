//! Sends requests and measures their latency. A command runs as a process, and a page is requested over HTTP.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use queue_core::{
    JobRef, JobState, Queue, Store,
    operate::{Filter, HistoryRange},
};
use sqlx::PgPool;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::requests::Request;
use crate::{BenchError, cli::AS_COMMAND};

/// Time limit for an HTTP response.
const PATIENCE: Duration = Duration::from_mins(1);

/// Query for the number of executed top-level statements. Statements inside functions are not counted.
const STATEMENTS: &str =
    "select sum(s.calls)::bigint from pg_stat_statements s where s.toplevel and s.query not like '%pg_stat_statements%'";

/// Client that sends requests. Owns a dashboard process, which is killed when the client is dropped.
pub(super) struct RequestClient<'a> {
    pool: &'a PgPool,
    url: &'a str,
    _dashboard: Spawned,
    at: SocketAddr,
}

/// Child process, which is killed when the value is dropped.
struct Spawned(Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> RequestClient<'a> {
    pub(super) async fn start(pool: &'a PgPool, url: &'a str) -> Result<Self, BenchError> {
        // An error is ignored, because statement counts are optional. They require a server that has loaded `pg_stat_statements`.
        let _ = sqlx::query("create extension if not exists pg_stat_statements").execute(pool).await;
        let mut dashboard = Spawned(command(url, "dashboard --addr 127.0.0.1:0")?.stdout(Stdio::piped()).spawn().map_err(failed)?);
        let line = first_line(&mut dashboard)?;
        let at = line.rsplit_once("http://").and_then(|(_, at)| at.trim().parse().ok());
        let at = at.ok_or_else(|| BenchError::Process(format!("printed no address: {line}")))?;
        Ok(Self { pool, url, _dashboard: dashboard, at })
    }

    /// Returns the number of statements executed so far, or `None` if the server does not count statements.
    pub(super) async fn statements(&self) -> Option<i64> {
        sqlx::query_scalar(STATEMENTS).fetch_one(self.pool).await.ok()
    }

    /// Sends a request and returns the latency of the response.
    pub(super) async fn send(&self, request: &Request) -> Result<Duration, BenchError> {
        let began = Instant::now();
        match request {
            Request::Command(words) => {
                let output = command(self.url, words)?.stdout(Stdio::piped()).stderr(Stdio::piped()).output().map_err(failed)?;
                if !output.status.success() {
                    let message = String::from_utf8_lossy(&output.stderr).into_owned();
                    return Err(BenchError::Process(format!("`{words}` exited with {}: {message}", output.status)));
                }
            }
            Request::FirstLine(words) => {
                let mut running = Spawned(command(self.url, words)?.stdout(Stdio::piped()).spawn().map_err(failed)?);
                first_line(&mut running)?;
                return Ok(began.elapsed());
            }
            Request::Page(path) => {
                let got = tokio::time::timeout(PATIENCE, self.get(path)).await;
                let status = got.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(failed)?;
                if !status.contains(" 200 ") {
                    return Err(BenchError::Process(format!("`GET {path}` returned {status}")));
                }
            }
            Request::Top => self.top().await?,
        }
        Ok(began.elapsed())
    }

    /// Returns the status line of a page after the whole response has arrived. For the live page, waits only for the first update.
    async fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = tokio::io::BufReader::new(TcpStream::connect(self.at).await?);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.at);
        stream.write_all(request.as_bytes()).await?;
        let mut status = String::new();
        stream.read_line(&mut status).await?;
        let mut line = String::new();
        while path == "/live" && !line.starts_with("data") {
            line.clear();
            stream.read_line(&mut line).await?;
        }
        if path != "/live" {
            stream.read_to_end(&mut Vec::new()).await?;
        }
        Ok(status)
    }

    /// Executes the queries that the command `top` executes every second.
    async fn top(&self) -> Result<(), BenchError> {
        let (store, mut on) = (Store::default(), self.pool.acquire().await?);
        Queue::on(&mut on).store(store).busiest(50).await?;
        Queue::on(&mut on).store(store).oldest_of(50).await?;
        Queue::on(&mut on).store(store).workers().await?;
        for apart in [true, false] {
            Queue::on(&mut on)
                .store(store)
                .history(&HistoryRange { last: Duration::from_mins(1), apart, ..HistoryRange::default() })
                .await?;
        }
        let running = Filter { state: Some(JobState::Running), limit: 20, ..Filter::default() };
        for job in Queue::on(&mut on).store(store).jobs().matching(&running).list().await?.jobs {
            JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await?;
        }
        Ok(())
    }
}

/// Returns a command that runs this binary as the `queue-worker` command line. The process inherits no environment variables.
fn command(url: &str, words: &str) -> Result<Command, BenchError> {
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words.split_whitespace()).env_clear().env(AS_COMMAND, "1").env("DATABASE_URL", url).stdin(Stdio::null());
    Ok(command)
}

fn first_line(of: &mut Spawned) -> Result<String, BenchError> {
    let mut line = String::new();
    let stdout = of.0.stdout.take().ok_or_else(|| BenchError::Process("has no stdout".to_owned()))?;
    BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    if line.is_empty() { Err(BenchError::Process("exited without output".to_owned())) } else { Ok(line) }
}

#[allow(clippy::needless_pass_by_value, reason = "passed to `map_err` by name")]
fn failed(error: std::io::Error) -> BenchError {
    BenchError::Process(format!("cannot be used: {error}"))
}

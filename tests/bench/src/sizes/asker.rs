//! Asks, and waits for the answer: a process for a command, a request for a page.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use queue_core::{
    JobRef, JobState, Store,
    operate::{self, Filter, Past},
};
use sqlx::PgPool;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::asks::Ask;
use crate::{BenchError, cli::AS_COMMAND};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Of toplevel statements: what functions do is theirs.
const STATEMENTS: &str =
    "select sum(s.calls)::bigint from pg_stat_statements s where s.toplevel and s.query not like '%pg_stat_statements%'";

/// With a dashboard that runs until this is dropped.
pub(super) struct Asker<'a> {
    pool: &'a PgPool,
    url: &'a str,
    _dashboard: Spawned,
    at: SocketAddr,
}

/// A process; killed when dropped.
struct Spawned(Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Asker<'a> {
    pub(super) async fn start(pool: &'a PgPool, url: &'a str) -> Result<Self, BenchError> {
        // Only if the server has loaded what counts; else nothing is counted.
        let _ = sqlx::query("create extension if not exists pg_stat_statements").execute(pool).await;
        let mut dashboard = Spawned(command(url, "dashboard --addr 127.0.0.1:0")?.stdout(Stdio::piped()).spawn().map_err(failed)?);
        let line = first_line(&mut dashboard)?;
        let at = line.rsplit_once("http://").and_then(|(_, at)| at.trim().parse().ok());
        let at = at.ok_or_else(|| BenchError::Process(format!("said no address: {line}")))?;
        Ok(Self { pool, url, _dashboard: dashboard, at })
    }

    /// How many statements the server was asked for so far, if it counts them.
    pub(super) async fn statements(&self) -> Option<i64> {
        sqlx::query_scalar(STATEMENTS).fetch_one(self.pool).await.ok()
    }

    /// How long the answer took.
    pub(super) async fn ask(&self, ask: &Ask) -> Result<Duration, BenchError> {
        let began = Instant::now();
        match ask {
            Ask::Command(words) => {
                let output = command(self.url, words)?.stdout(Stdio::piped()).stderr(Stdio::piped()).output().map_err(failed)?;
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    return Err(BenchError::Process(format!("`{words}` ended with {}: {said}", output.status)));
                }
            }
            Ask::FirstLine(words) => {
                let mut running = Spawned(command(self.url, words)?.stdout(Stdio::piped()).spawn().map_err(failed)?);
                first_line(&mut running)?;
                return Ok(began.elapsed());
            }
            Ask::Page(path) => {
                let got = tokio::time::timeout(PATIENCE, self.get(path)).await;
                let status = got.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(failed)?;
                if !status.contains(" 200 ") {
                    return Err(BenchError::Process(format!("`GET {path}` was answered with {status}")));
                }
            }
            Ask::Top => self.top().await?,
        }
        Ok(began.elapsed())
    }

    /// The first line of the answer, once all of it is there. Of a page that changes by itself it is there with its first part.
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

    /// As the command `top` does each second.
    async fn top(&self) -> Result<(), BenchError> {
        let (store, mut on) = (Store::default(), self.pool.acquire().await?);
        operate::busiest(&mut *on, store, 50).await?;
        operate::oldest_of(&mut *on, store, 50).await?;
        operate::workers(&mut *on, store).await?;
        for apart in [true, false] {
            operate::history(&mut *on, store, &Past { last: Duration::from_mins(1), apart, ..Past::default() }).await?;
        }
        let running = Filter { state: Some(JobState::Running), limit: 20, ..Filter::default() };
        for job in operate::list(&mut *on, store, &running).await?.jobs {
            JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await?;
        }
        Ok(())
    }
}

/// This binary as its user's command line, with nothing of our environment.
fn command(url: &str, words: &str) -> Result<Command, BenchError> {
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words.split_whitespace()).env_clear().env(AS_COMMAND, "1").env("DATABASE_URL", url).stdin(Stdio::null());
    Ok(command)
}

fn first_line(of: &mut Spawned) -> Result<String, BenchError> {
    let mut line = String::new();
    let stdout = of.0.stdout.take().ok_or_else(|| BenchError::Process("has no output".to_owned()))?;
    BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    if line.is_empty() { Err(BenchError::Process("ended without a word".to_owned())) } else { Ok(line) }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: std::io::Error) -> BenchError {
    BenchError::Process(format!("cannot be used: {error}"))
}

//! `sizes`: measures the latency of each dashboard page, each JSON API response and each command on a large store.
//!
//! `fill.sql` inserts the store's rows directly, which takes minutes instead of hours. A command is run as a process, so its latency
//! includes process start and connection. A page is requested from a running dashboard. Each request is sent once before it is measured.

mod client;
mod requests;

use std::{collections::BTreeMap, fmt};

use queue_worker::Database;
use serde::Serialize;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool};

use self::{client::RequestClient, requests::requests};
use crate::{BenchError, database::BenchDatabase, report::median};

/// Target for the latency of an operator's request, in milliseconds.
const GOAL_MS: f64 = 100.0;

/// Numbers of jobs by state and number of queues to create, before scaling.
const SIZES: [(&str, u64); 6] =
    [("done", 10_000_000), ("ready", 1_000_000), ("dead", 100_000), ("scheduled", 100_000), ("running", 10_000), ("queues", 10_000)];

/// Settings of the `sizes` benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizesOptions<'a> {
    /// Scale of [`SIZES`], or `None` to measure the existing store in the given database without changing the store.
    pub(crate) share: Option<f64>,
    /// Number of runs per request.
    pub(crate) runs: usize,
    /// Text that a request's name must contain.
    pub(crate) only: &'a str,
}

/// Measured latency of one request.
#[derive(Debug, Serialize)]
struct RequestLatency {
    ask: String,
    median_ms: f64,
    worst_ms: f64,
    /// Number of statements per request; `None` if the server does not count statements.
    statements: Option<f64>,
}

/// JSON report in the last line of output.
#[derive(Debug, Serialize)]
struct SizesReport<'a> {
    made: BTreeMap<&'static str, u64>,
    asked: usize,
    goal_ms: f64,
    /// Highest median of all requests.
    slowest_ms: f64,
    over_goal: Vec<&'a RequestLatency>,
}

impl fmt::Display for RequestLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statements = self.statements.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
        let mark = if self.median_ms > GOAL_MS { '!' } else { ' ' };
        write!(f, "{:>8.1} {:>8.1} {statements:>4} {mark} {}", self.median_ms, self.worst_ms, self.ask)
    }
}

/// Creates the store unless `options` selects an existing store, and measures the selected requests. Prints the median and maximum latency
/// in ms and the number of statements for each request. The last line contains the totals in JSON.
///
/// # Errors
/// Returns an error if a request or the server fails.
pub(crate) async fn run(
    server: &Database,
    options: SizesOptions<'_>,
    mut print: impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let Some(share) = options.share else {
        let url = server.pool().connect_options().to_url_lossy().to_string();
        return measure(server.pool(), &url, BTreeMap::new(), options, &mut print).await;
    };
    let database = BenchDatabase::create(server).await?;
    let measured = async {
        let made = SIZES.map(|(what, full)| (what, ((full as f64 * share) as u64).max(100))).into();
        fill(database.pool(), &made).await?;
        measure(database.pool(), database.url(), made, options, &mut print).await
    };
    let measured = tokio::select! {
        measured = measured => measured,
        () = queue_worker::shutdown_signal() => Err(BenchError::Interrupted),
    };
    let dropped = database.drop().await;
    measured.and(dropped)
}

/// Creates the jobs. Then vacuums and analyzes the tables, as autovacuum would.
async fn fill(pool: &PgPool, made: &BTreeMap<&'static str, u64>) -> Result<(), BenchError> {
    let mut connection = pool.acquire().await?;
    // The script creates temporary functions and changes session settings, which must not affect later users of the connection.
    connection.close_on_drop();
    let settings: Vec<String> = made.iter().map(|(what, count)| format!("set sizes.{what} = {count}")).collect();
    for statements in [&settings.join("; "), include_str!("fill.sql"), "vacuum analyze"] {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn measure(
    pool: &PgPool,
    url: &str,
    made: BTreeMap<&'static str, u64>,
    options: SizesOptions<'_>,
    print: &mut impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let client = RequestClient::start(pool, url).await?;
    let mut all = Vec::new();
    print("  median    worst statements")?;
    for request in requests(pool).await?.into_iter().filter(|request| request.to_string().contains(options.only)) {
        client.send(&request).await?;
        let (before, mut runs) = (client.statements().await, Vec::new());
        for _ in 0..options.runs {
            runs.push(client.send(&request).await?.as_secs_f64() * 1000.0);
        }
        let statements = client.statements().await.zip(before).map(|(after, before)| (after - before) as f64 / options.runs as f64);
        let worst_ms = runs.iter().copied().fold(0.0, f64::max);
        let latency = RequestLatency { ask: request.to_string(), median_ms: median(&runs), worst_ms, statements };
        print(&latency.to_string())?;
        all.push(latency);
    }
    let over_goal = all.iter().filter(|latency| latency.median_ms > GOAL_MS).collect();
    let slowest_ms = all.iter().map(|latency| latency.median_ms).fold(0.0, f64::max);
    let sum = SizesReport { made, asked: all.len(), goal_ms: GOAL_MS, slowest_ms, over_goal };
    print(&serde_json::to_string(&sum).map_err(std::io::Error::from)?)
}

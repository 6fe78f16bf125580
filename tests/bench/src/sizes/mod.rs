//! `sizes`: how long an operator waits for each page, each answer of the JSON API and each command, in a store at size.
//!
//! The store is made by SQL (`fill.sql`), so that it takes minutes, not hours. A command is a process, and what it takes has its start and its
//! connection in it; a page is a request to a dashboard that runs already. Each is asked once before it is measured.

mod asker;
mod asks;

use std::{collections::BTreeMap, fmt};

use queue_worker::Database;
use serde::Serialize;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool};

use self::{asker::Asker, asks::asks};
use crate::{BenchError, database::BenchDatabase, report::median};

/// So long may an operator wait.
const GOAL_MS: f64 = 100.0;

/// What is made, before it is scaled.
const SIZES: [(&str, u64); 6] =
    [("done", 10_000_000), ("ready", 1_000_000), ("dead", 100_000), ("scheduled", 100_000), ("running", 10_000), ("queues", 10_000)];

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Of the sizes above; `None`: the store that is in the given database is asked, and left as it is.
    pub(crate) share: Option<f64>,
    /// How often each is asked.
    pub(crate) runs: usize,
    /// Only what has this in its name.
    pub(crate) only: &'a str,
}

/// What came of one.
#[derive(Debug, Serialize)]
struct Waited {
    ask: String,
    median_ms: f64,
    worst_ms: f64,
    /// How many statements it took; none if the server does not count them.
    statements: Option<f64>,
}

/// The last line.
#[derive(Debug, Serialize)]
struct Sum<'a> {
    made: BTreeMap<&'static str, u64>,
    asked: usize,
    goal_ms: f64,
    /// The slowest median.
    slowest_ms: f64,
    over_goal: Vec<&'a Waited>,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statements = self.statements.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
        let mark = if self.median_ms > GOAL_MS { '!' } else { ' ' };
        write!(f, "{:>8.1} {:>8.1} {statements:>4} {mark} {}", self.median_ms, self.worst_ms, self.ask)
    }
}

/// Makes the store, asks, and says what came of each, in ms: the median, the worst, and how many statements. The last line is the sum, in JSON.
///
/// # Errors
/// When an answer was no success, or the server failed.
pub(crate) async fn run(
    server: &Database,
    wanted: Wanted<'_>,
    mut say: impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let Some(share) = wanted.share else {
        let url = server.pool().connect_options().to_url_lossy().to_string();
        return measure(server.pool(), &url, BTreeMap::new(), wanted, &mut say).await;
    };
    let database = BenchDatabase::create(server).await?;
    let measured = async {
        let made = SIZES.map(|(what, full)| (what, ((full as f64 * share) as u64).max(100))).into();
        fill(database.pool(), &made).await?;
        measure(database.pool(), database.url(), made, wanted, &mut say).await
    };
    let measured = tokio::select! {
        measured = measured => measured,
        () = queue_worker::shutdown_signal() => Err(BenchError::Interrupted),
    };
    let dropped = database.drop().await;
    measured.and(dropped)
}

/// Makes the jobs, and lets the server know what it has, as autovacuum would.
async fn fill(pool: &PgPool, made: &BTreeMap<&'static str, u64>) -> Result<(), BenchError> {
    let mut connection = pool.acquire().await?;
    let settings: Vec<String> = made.iter().map(|(what, count)| format!("set sizes.{what} = {count}")).collect();
    for statements in [&settings.join("; "), include_str!("fill.sql"), "vacuum analyze"] {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut *connection).await?;
    }
    // What it was told is of no use to anybody else.
    connection.close_on_drop();
    Ok(())
}

async fn measure(
    pool: &PgPool,
    url: &str,
    made: BTreeMap<&'static str, u64>,
    wanted: Wanted<'_>,
    say: &mut impl FnMut(&str) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let asker = Asker::start(pool, url).await?;
    let mut all = Vec::new();
    say("  median    worst statements")?;
    for ask in asks(pool).await?.into_iter().filter(|ask| ask.to_string().contains(wanted.only)) {
        asker.ask(&ask).await?;
        let (before, mut runs) = (asker.statements().await, Vec::new());
        for _ in 0..wanted.runs {
            runs.push(asker.ask(&ask).await?.as_secs_f64() * 1000.0);
        }
        let statements = asker.statements().await.zip(before).map(|(after, before)| (after - before) as f64 / wanted.runs as f64);
        let worst_ms = runs.iter().copied().fold(0.0, f64::max);
        let waited = Waited { ask: ask.to_string(), median_ms: median(&runs), worst_ms, statements };
        say(&waited.to_string())?;
        all.push(waited);
    }
    let over_goal = all.iter().filter(|waited| waited.median_ms > GOAL_MS).collect();
    let slowest_ms = all.iter().map(|waited| waited.median_ms).fold(0.0, f64::max);
    let sum = Sum { made, asked: all.len(), goal_ms: GOAL_MS, slowest_ms, over_goal };
    say(&serde_json::to_string(&sum).map_err(std::io::Error::from)?)
}

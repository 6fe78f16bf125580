//! What is asked of the store at size: whatever an operator may type, click or scrape.

use std::fmt;

use sqlx::PgPool;

use crate::BenchError;

/// One of them.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// A command, until it ends.
    Command(String),
    /// One that follows the store, until its first line.
    FirstLine(String),
    /// A page of the dashboard, or an answer of its JSON API.
    Page(String),
    /// What `top` asks each second.
    Top,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(words) | Self::FirstLine(words) => f.write_str(words),
            Self::Page(path) => write!(f, "GET {path}"),
            Self::Top => f.write_str("top"),
        }
    }
}

const STATES: [&str; 8] = ["blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled", "expired"];

/// As options of `list`: what is common, and what is rare.
const FILTERS: [&str; 9] = [
    "",
    "--queue q1",
    "--queue q9990",
    "--type t3",
    "--type rare",
    "--meta tenant=tenant7",
    "--since 1h",
    "--older-than 20d",
    "--queue q9 --type rare",
];

const COMMANDS: [&str; 23] = [
    "jobs",
    "stats",
    "stats --all",
    "list --limit 1000",
    "list --error refused",
    "list --error kind",
    "list --state dead --queue q1 --type t3 --error refused",
    "history",
    "history --last 1d",
    "history --last 7d --by time",
    "history --last 30d",
    "history --last 30d --by time",
    "history --queue q9 --last 1d",
    "history --type t3 --last 30d",
    "pauses",
    "cron list",
    "limits",
    "capacity",
    "weight",
    "doctor --ignore fsync_off --ignore no_worker",
    "migrate status",
    "list --json",
    "stats --json",
];

const PAGES: [&str; 35] = [
    "/",
    "/live",
    "/jobs?q=queue:q1",
    "/jobs?q=queue:q9990",
    "/jobs?q=type:t3",
    "/jobs?q=type:rare",
    "/jobs?q=type:rare&state=dead",
    "/jobs?q=type:rare&state=completed",
    "/jobs?q=error:refused",
    "/jobs?q=error:kind",
    "/jobs?q=meta.tenant:tenant7",
    "/jobs?q=since:1h",
    "/dead",
    "/history",
    "/history?last=24h",
    "/history?last=7d",
    "/history?last=30d",
    "/history?last=30d&queue=q9",
    "/queues",
    "/workers",
    "/schedules",
    "/limits",
    "/audit",
    "/api/v1/overview",
    "/api/v1/history",
    "/api/v1/history?last=30d&step=1d",
    "/api/v1/history?last=30d&apart=true",
    "/api/v1/dead/groups",
    "/api/v1/queues",
    "/api/v1/workers",
    "/api/v1/acts",
    "/api/v1/schedules",
    "/api/v1/limits",
    "/api/v1/audit",
    "/api/v1/openapi.json",
];

/// A job in each place.
const EXAMPLES: &str = "
select e.id
from (
  (select id from queue.ready offset 5000 limit 1) union all
  (select id from queue.scheduled order by run_at offset 7 limit 1) union all
  (select id from queue.dead order by id limit 1) union all
  (select id from queue.done where output is not null order by id limit 1) union all
  (select first_id from queue.done_many order by first_id limit 1) union all
  (select ids[1] from queue.lease limit 1) union all
  (select id from queue.blocked order by key, seq desc limit 1) union all
  (select id from queue.done where cancelled order by id limit 1)
) e";

/// All of it.
pub(super) async fn asks(pool: &PgPool) -> Result<Vec<Ask>, BenchError> {
    let examples: Vec<i64> = sqlx::query_scalar(EXAMPLES).fetch_all(pool).await?;
    let mut asks: Vec<Ask> = COMMANDS.map(|words| Ask::Command(words.to_owned())).into();
    for filter in FILTERS {
        asks.push(Ask::Command(format!("list {filter}")));
        asks.extend(STATES.map(|state| Ask::Command(format!("list --state {state} {filter}"))));
    }
    asks.extend(["tail", "tail --queue q1", "tail --type t3"].map(|words| Ask::FirstLine(words.to_owned())));
    asks.push(Ask::Top);
    asks.extend(["", "/api/v1"].into_iter().flat_map(|base| {
        let all = std::iter::once(Ask::Page(format!("{base}/jobs")));
        all.chain(STATES.map(|state| Ask::Page(format!("{base}/jobs?state={state}"))))
    }));
    asks.extend(PAGES.map(|path| Ask::Page(path.to_owned())));
    for id in examples {
        asks.extend([format!("show {id}"), format!("why {id}")].map(Ask::Command));
        let below = ["/jobs", "/api/v1/jobs"].map(|base| Ask::Page(format!("{base}/{id}")));
        asks.extend(below.into_iter().chain(["why", "logs"].map(|what| Ask::Page(format!("/api/v1/jobs/{id}/{what}")))));
    }
    Ok(asks)
}

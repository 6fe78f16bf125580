//! Requests to measure: the commands that an operator can run, and the pages and API responses that a client can request.

use std::fmt;

use sqlx::PgPool;

use crate::BenchError;

/// Request that the benchmark measures.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Command that exits by itself. Its latency is the time until it exits.
    Command(String),
    /// Command that runs until it is stopped. Its latency is the time until its first line of output.
    FirstLine(String),
    /// Page of the dashboard, or response of the JSON API, by path.
    Page(String),
    /// Queries that the command `top` executes every second.
    Top,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(words) | Self::FirstLine(words) => f.write_str(words),
            Self::Page(path) => write!(f, "GET {path}"),
            Self::Top => f.write_str("top"),
        }
    }
}

const STATES: [&str; 8] = ["blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled", "expired"];

/// Options of `list`, with common and rare values.
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

/// Query for the ids of example jobs: two completed jobs, and one ready, scheduled, dead, running, blocked and cancelled job each.
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

/// Returns all requests that the benchmark measures. The example jobs are read from the store.
pub(super) async fn requests(pool: &PgPool) -> Result<Vec<Request>, BenchError> {
    let examples: Vec<i64> = sqlx::query_scalar(EXAMPLES).fetch_all(pool).await?;
    let mut requests: Vec<Request> = COMMANDS.map(|words| Request::Command(words.to_owned())).into();
    for filter in FILTERS {
        requests.push(Request::Command(format!("list {filter}")));
        requests.extend(STATES.map(|state| Request::Command(format!("list --state {state} {filter}"))));
    }
    requests.extend(["tail", "tail --queue q1", "tail --type t3"].map(|words| Request::FirstLine(words.to_owned())));
    requests.push(Request::Top);
    requests.extend(["", "/api/v1"].into_iter().flat_map(|base| {
        let all = std::iter::once(Request::Page(format!("{base}/jobs")));
        all.chain(STATES.map(|state| Request::Page(format!("{base}/jobs?state={state}"))))
    }));
    requests.extend(PAGES.map(|path| Request::Page(path.to_owned())));
    for id in examples {
        requests.extend([format!("show {id}"), format!("why {id}")].map(Request::Command));
        let below = ["/jobs", "/api/v1/jobs"].map(|base| Request::Page(format!("{base}/{id}")));
        requests.extend(below.into_iter().chain(["why", "logs"].map(|what| Request::Page(format!("/api/v1/jobs/{id}/{what}")))));
    }
    Ok(requests)
}

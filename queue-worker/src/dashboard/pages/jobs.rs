//! Page with the job list and its search field.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use queue_core::{
    JobState, Queue,
    operate::{JobRecord, KeyQueueEntry, Patience},
    runner::LIBRARY_META_KEYS,
};
use serde::Deserialize;
use serde_json::Value;

use super::frame::{Frame, render};
use crate::dashboard::{
    api::{Button, JobQuery, MAX_PAGE_JOBS, QueryParams, buttons, list_page},
    app::{App, AppState},
    display::{self, Moment},
    problem::{HandlerResult, Problem},
};

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    /// Text of the search field.
    typed: String,
    problem: Option<String>,
    tabs: Vec<Tab>,
    rows: Vec<JobRow>,
    /// Names and values of the hidden form fields that pass the filter to a bulk operation.
    filter: Vec<(&'static str, String)>,
    /// Bulk operations that the selected job state permits.
    acts: Vec<&'static Button>,
    /// URL of the next page.
    next: Option<String>,
    /// Enqueue time at which an incomplete search has stopped without a match. The page automatically continues the search with jobs that
    /// were enqueued earlier. `None` if the page has jobs or the search is complete.
    back: Option<Moment>,
    /// Whether the page is not the first page of the list.
    is_later_page: bool,
    /// Whether the ordering key has more jobs than the page shows. The list of an ordering key has only one page.
    more: bool,
}

/// Maximum search time per request. The page shows the jobs found within this time. If no jobs were found, the page continues the search
/// automatically.
const SCAN_TIME: Duration = Duration::from_millis(40);

/// Tab that selects a job state.
struct Tab {
    name: &'static str,
    address: String,
    is_chosen: bool,
}

/// Table row of a job in the list.
pub(super) struct JobRow {
    id: String,
    state: &'static str,
    cancelling: bool,
    job_type: String,
    queue: String,
    attempts: String,
    enqueued: Moment,
    /// Label and value of the job's due time or finish time.
    when: Option<(&'static str, Moment)>,
    error: Option<String>,
    meta: Option<String>,
}

/// Query parameters of the job list page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ListParams {
    q: String,
    state: String,
    before: String,
}

impl JobRow {
    pub(super) fn new(job: &JobRecord, now: chrono::DateTime<chrono::Utc>) -> Self {
        let moment = |at| Moment::new(at, now);
        let version = if job.version > 1 { format!(" v{}", job.version) } else { String::new() };
        let when = match job.state {
            JobState::Scheduled | JobState::Blocked => job.run_at.map(|at| ("due", moment(at))),
            JobState::Parked => job.run_at.map(|at| ("until", moment(at))),
            JobState::Dead => job.finished_at.map(|at| ("died", moment(at))),
            _ => job.finished_at.map(|at| ("finished", moment(at))),
        };
        Self {
            id: job.id.to_string(),
            state: job.state.name(),
            cancelling: job.cancelling,
            job_type: display::line(&job.job_type) + &version,
            queue: display::line(&job.queue),
            attempts: format!("{}/{}", job.attempts, job.max_attempts),
            enqueued: moment(job.enqueued_at),
            when,
            error: job.error.as_deref().map(|error| display::truncate(error, 160)),
            meta: job.meta.as_deref().and_then(|meta| own_meta(meta.get())).map(|meta| display::truncate(&meta, 80)),
        }
    }
}

/// Formats the metadata set by the application, such as `tenant=acme region=eu`. Returns `None` if there is no such metadata. A pair
/// without whitespace can be entered in the search field, which accepts one pair at a time.
fn own_meta(meta: &str) -> Option<String> {
    let meta: serde_json::Map<String, Value> = serde_json::from_str(meta).ok()?;
    let own = meta.iter().filter(|(key, _)| !LIBRARY_META_KEYS.contains(&key.as_str()));
    // A string that contains whitespace or is valid JSON itself would be ambiguous without quotes, so it is formatted as JSON.
    let is_plain = |text: &str| !text.contains(char::is_whitespace) && serde_json::from_str::<Value>(text).is_err();
    let pair = |(key, value): (&String, &Value)| match value.as_str().filter(|text| is_plain(text)) {
        Some(text) => format!("{key}={text}"),
        None => format!("{key}={value}"),
    };
    let pairs: Vec<String> = own.map(pair).collect();
    (!pairs.is_empty()).then(|| pairs.join(" "))
}

pub(super) async fn page(
    State(app): State<AppState>,
    frame: Frame,
    QueryParams(address): QueryParams<ListParams>,
) -> HandlerResult<Response> {
    let (key, typed) = split_key(&address.q);
    let query = match JobQuery::parse_search(&typed) {
        Ok(query) => query,
        Err(id) => return Ok(Redirect::to(&format!("{}/jobs/{id}", frame.base)).into_response()),
    };
    let chosen = Some(address.state).filter(|state| !state.is_empty()).or_else(|| query.state.clone());
    let query = JobQuery { state: chosen, before: Some(address.before).filter(|before| !before.is_empty()), ..query };
    let is_later_page = query.before.is_some();
    // Invalid input does not fail the request. The page shows the error next to the search field.
    let problem = query.filter().err().map(|problem| problem.text);
    let mut session = app.begin_read().await?;
    let now = Queue::on(&mut session).store(app.store).now().await?;
    let (mut rows, mut next, mut more) = (Vec::new(), None, false);
    let mut problem = problem;
    if problem.is_none() {
        let found = match &key {
            Some(key) => in_line(&mut session, &app, key, &query).await.map(|line| (line.jobs, None, line.more)),
            None => list_page(&mut session, &app, &query, Patience { some: SCAN_TIME, none: SCAN_TIME })
                .await
                .map(|page| (page.jobs, page.next, false)),
        };
        match found {
            Ok((jobs, older, behind)) => {
                rows = jobs.iter().map(|job| JobRow::new(job, now)).collect();
                (next, more) = (older, behind);
            }
            Err(Problem { status, text, .. }) if status.is_client_error() => problem = Some(text),
            Err(problem) => return Err(problem),
        }
    }
    drop(session);
    let state = query.state.clone().unwrap_or_default();
    let filter = form_fields(&query);
    // The list of an ordering key has no state tabs, because it shows jobs in all states.
    let states = [""].into_iter().chain(JobState::ALL.map(JobState::name)).filter(|_| key.is_none());
    let acts = if key.is_none() { bulk_buttons(&state) } else { Vec::new() };
    let named = key.as_ref().map(|key| format!("key:{key}"));
    let typed: Vec<String> =
        named.into_iter().chain([JobQuery { state: None, ..query }.search_text()]).filter(|text| !text.is_empty()).collect();
    let typed = typed.join(" ");
    let address = |state: &str, before: &str| list_url(&frame.base, &typed, state, before);
    let tab =
        |name: &'static str| Tab { name: if name.is_empty() { "all" } else { name }, address: address(name, ""), is_chosen: name == state };
    let tabs = states.map(tab).collect();
    let back = next.filter(|_| rows.is_empty()).and_then(|next| Some(Moment::new(next.enqueued_at()?, now)));
    let next = next.map(|next| address(&state, &next.to_string()));
    Ok(render(&JobsPage { frame, typed, problem, tabs, rows, filter, acts, next, back, is_later_page, more })?.into_response())
}

/// Splits the search text into an ordering key, written as `key:acme`, and the remaining text.
fn split_key(typed: &str) -> (Option<String>, String) {
    let of = |word: &str| word.strip_prefix("key:").filter(|key| !key.is_empty()).map(str::to_owned);
    let Some(key) = typed.split_whitespace().find_map(of) else { return (None, typed.to_owned()) };
    let rest: Vec<&str> = typed.split_whitespace().filter(|word| of(word).as_ref() != Some(&key)).collect();
    (Some(key), rest.join(" "))
}

/// Loads the jobs with the ordering key `key`, in execution order. Rejects a `query` that restricts anything but the queue.
async fn in_line(on: &mut sqlx::PgConnection, app: &App, key: &str, query: &JobQuery) -> HandlerResult<KeyQueueEntry> {
    let queue = query.queue.clone().unwrap_or_else(|| "default".to_owned());
    if *query != (JobQuery { queue: query.queue.clone(), ..JobQuery::default() }) {
        return Err(Problem::bad_request("an ordering key can only be combined with a queue: `key:acme queue:mail`"));
    }
    Ok(Queue::on(on).store(app.store).jobs_of_key(&queue, key, MAX_PAGE_JOBS).await?)
}

/// Returns the filter as names and values of form fields.
fn form_fields(query: &JobQuery) -> Vec<(&'static str, String)> {
    let named = [("state", &query.state), ("queue", &query.queue), ("type", &query.job_type), ("meta", &query.meta)];
    let named = named.into_iter().chain([("error", &query.error), ("since", &query.since), ("older_than", &query.older_than)]);
    named.filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// Returns the bulk operations for jobs in `state`. Completed, cancelled and expired jobs have none, because they can only be requeued
/// individually.
fn bulk_buttons(state: &str) -> Vec<&'static Button> {
    use JobState::{Cancelled, Completed, Expired};
    state.parse().ok().filter(|state| ![Completed, Cancelled, Expired].contains(state)).map_or_else(Vec::new, buttons)
}

/// Builds the URL of the job list for a search text, state and page.
fn list_url(base: &str, typed: &str, state: &str, before: &str) -> String {
    let given = [("q", typed), ("state", state), ("before", before)].into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(key, value)| format!("{key}={}", display::percent_encode(value))).collect();
    if pairs.is_empty() { format!("{base}/jobs") } else { format!("{base}/jobs?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::own_meta;

    #[test]
    fn metadata_of_the_library_is_not_shown() {
        for (meta, shown) in [
            (r#"{"traceparent": "00-0a-0b-01", "of_tenant": "acme"}"#, None),
            (r#"{"region": "eu", "tracestate": "a=b", "n": 3}"#, Some("n=3 region=eu")),
            (r#"{"order": "42", "note": "a b"}"#, Some(r#"note="a b" order="42""#)),
            ("{}", None),
        ] {
            assert_eq!(own_meta(meta).as_deref(), shown, "{meta}");
        }
    }
}

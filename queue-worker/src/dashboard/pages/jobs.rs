//! Jobs by state, and the search for them.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use queue_core::{
    JobState,
    operate::{self, InLine, JobRecord, Patience},
};
use serde::Deserialize;

use super::frame::{Frame, page as write};
use crate::dashboard::{
    api::{Asked, AskedJobs, Button, MOST, buttons, listed},
    app::{App, Shared},
    problem::{Answer, Problem},
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    /// What is looked for, as it is typed.
    typed: String,
    problem: Option<String>,
    tabs: Vec<Tab>,
    rows: Vec<Row>,
    /// What is looked for, for acts on all of it: names of fields and their values.
    filter: Vec<(&'static str, String)>,
    /// What can be done to all of it.
    acts: Vec<&'static Button>,
    /// The address of the next page.
    next: Option<String>,
    /// How far back nothing was found: the page goes on by itself from there.
    back: Option<Moment>,
    /// Whether it begins somewhere else than at the newest job.
    is_further: bool,
    /// Whether more jobs of a key stand behind these: there is no next page of them.
    more: bool,
}

/// A page is there at once, with what was found; from there on it looks further by itself.
const PATIENCE: Duration = Duration::from_millis(40);

/// A state to choose.
struct Tab {
    name: &'static str,
    address: String,
    is_chosen: bool,
}

/// A job in a list.
pub(super) struct Row {
    id: String,
    state: &'static str,
    cancelling: bool,
    job_type: String,
    queue: String,
    attempts: String,
    enqueued: Moment,
    /// When it is due, or was over.
    when: Option<(&'static str, Moment)>,
    error: Option<String>,
    meta: Option<String>,
}

/// The address of this page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Address {
    q: String,
    state: String,
    before: String,
}

impl Row {
    pub(super) fn new(job: &JobRecord, now: chrono::DateTime<chrono::Utc>) -> Self {
        let moment = |at| Moment::new(at, now);
        let version = if job.version > 1 { format!(" v{}", job.version) } else { String::new() };
        let when = match job.state {
            JobState::Scheduled | JobState::Blocked => job.run_at.map(|at| ("due", moment(at))),
            JobState::Parked => job.run_at.map(|at| ("until", moment(at))),
            JobState::Dead => job.finished_at.map(|at| ("died", moment(at))),
            _ => job.finished_at.map(|at| ("over", moment(at))),
        };
        Self {
            id: job.id.to_string(),
            state: job.state.name(),
            cancelling: job.cancelling,
            job_type: show::line(&job.job_type) + &version,
            queue: show::line(&job.queue),
            attempts: format!("{}/{}", job.attempts, job.max_attempts),
            enqueued: moment(job.enqueued_at),
            when,
            error: job.error.as_deref().map(|error| show::short(error, 160)),
            meta: job.meta.as_deref().map(|meta| show::short(meta.get(), 80)),
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame, Asked(address): Asked<Address>) -> Answer<Response> {
    let (key, typed) = key_of(&address.q);
    let asked = match AskedJobs::typed(&typed) {
        Ok(asked) => asked,
        Err(id) => return Ok(Redirect::to(&format!("{}/jobs/{id}", frame.base)).into_response()),
    };
    let chosen = Some(address.state).filter(|state| !state.is_empty()).or_else(|| asked.state.clone());
    let asked = AskedJobs { state: chosen, before: Some(address.before).filter(|before| !before.is_empty()), ..asked };
    let is_further = asked.before.is_some();
    // What is typed wrong is said where it was typed.
    let problem = asked.filter().err().map(|problem| problem.text);
    let mut session = app.look().await?;
    let now = operate::now(&mut *session, app.store).await?;
    let (mut rows, mut next, mut more) = (Vec::new(), None, false);
    let mut problem = problem;
    if problem.is_none() {
        let found = match &key {
            Some(key) => in_line(&mut session, &app, key, &asked).await.map(|line| (line.jobs, None, line.more)),
            None => listed(&mut session, &app, &asked, Patience { some: PATIENCE, none: PATIENCE })
                .await
                .map(|page| (page.jobs, page.next, false)),
        };
        match found {
            Ok((jobs, older, behind)) => {
                rows = jobs.iter().map(|job| Row::new(job, now)).collect();
                (next, more) = (older, behind);
            }
            Err(Problem { status, text, .. }) if status.is_client_error() => problem = Some(text),
            Err(problem) => return Err(problem),
        }
    }
    drop(session);
    let state = asked.state.clone().unwrap_or_default();
    let filter = fields(&asked);
    // Of a key all states are shown, in its order: there is none to choose.
    let states = [""].into_iter().chain(JobState::ALL.map(JobState::name)).filter(|_| key.is_none());
    let acts = if key.is_none() { acts_of(&state) } else { Vec::new() };
    let named = key.as_ref().map(|key| format!("key:{key}"));
    let typed: Vec<String> = named.into_iter().chain([AskedJobs { state: None, ..asked }.text()]).filter(|text| !text.is_empty()).collect();
    let typed = typed.join(" ");
    let address = |state: &str, before: &str| address_of(&frame.base, &typed, state, before);
    let tab =
        |name: &'static str| Tab { name: if name.is_empty() { "all" } else { name }, address: address(name, ""), is_chosen: name == state };
    let tabs = states.map(tab).collect();
    let back = next.filter(|_| rows.is_empty()).and_then(|next| Some(Moment::new(next.enqueued_at()?, now)));
    let next = next.map(|next| address(&state, &next.to_string()));
    Ok(write(&JobsPage { frame, typed, problem, tabs, rows, filter, acts, next, back, is_further, more })?.into_response())
}

/// The ordering key that is looked for, as `key:acme`, and the rest of what is typed.
fn key_of(typed: &str) -> (Option<String>, String) {
    let of = |word: &str| word.strip_prefix("key:").filter(|key| !key.is_empty()).map(str::to_owned);
    let Some(key) = typed.split_whitespace().find_map(of) else { return (None, typed.to_owned()) };
    let rest: Vec<&str> = typed.split_whitespace().filter(|word| of(word).as_ref() != Some(&key)).collect();
    (Some(key), rest.join(" "))
}

/// The jobs of a key, in its order; beside it only its queue is looked for.
async fn in_line(on: &mut sqlx::PgConnection, app: &App, key: &str, asked: &AskedJobs) -> Answer<InLine> {
    let queue = asked.queue.clone().unwrap_or_else(|| "default".to_owned());
    if *asked != (AskedJobs { queue: asked.queue.clone(), ..AskedJobs::default() }) {
        return Err(Problem::wrong("a key is looked for alone, or with its queue: `key:acme queue:mail`"));
    }
    Ok(operate::in_line(on, app.store, &queue, key, MOST).await?)
}

/// As fields of a form.
fn fields(asked: &AskedJobs) -> Vec<(&'static str, String)> {
    let named = [("state", &asked.state), ("queue", &asked.queue), ("type", &asked.job_type), ("meta", &asked.meta)];
    let named = named.into_iter().chain([("error", &asked.error), ("since", &asked.since), ("older_than", &asked.older_than)]);
    named.filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// What can be done to all jobs of a state. What has ended well is brought back one by one.
fn acts_of(state: &str) -> Vec<&'static Button> {
    use JobState::{Cancelled, Completed, Expired};
    state.parse().ok().filter(|state| ![Completed, Cancelled, Expired].contains(state)).map_or_else(Vec::new, buttons)
}

/// The address of a list.
fn address_of(base: &str, typed: &str, state: &str, before: &str) -> String {
    let given = [("q", typed), ("state", state), ("before", before)].into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(key, value)| format!("{key}={}", show::in_address(value))).collect();
    if pairs.is_empty() { format!("{base}/jobs") } else { format!("{base}/jobs?{}", pairs.join("&")) }
}

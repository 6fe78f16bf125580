//! Jobs: lists of them, one of them, and what is done to one.

use std::time::Duration;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use queue_core::{
    JobId, JobRef, JobState,
    operate::{self, Act, Acted, AttemptLog, InLine, JobRecord, Page, Patience, Why},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};

use super::{
    asked::{AskedJobs, MOST},
    body::{Asked, Said, Who},
    redacted::{redact, redact_logs},
};
use crate::{
    dashboard::{
        app::{App, Shared},
        part::Path,
        problem::{Answer, Problem, Wrong},
    },
    program::name_commands,
};

/// A page of jobs, without payloads; a full one, if it can be had within this patience.
pub(in crate::dashboard) async fn listed(connection: &mut PgConnection, app: &App, asked: &AskedJobs, patience: Patience) -> Answer<Page> {
    Ok(operate::list_patiently(connection, app.store, &asked.filter()?, patience).await?)
}

/// A job with its history, without what is not to be shown of it.
pub(in crate::dashboard) async fn looked_at(connection: &mut PgConnection, app: &App, id: JobId) -> Answer<JobRecord> {
    let job = JobRef::from_id(id).in_store(app.store);
    if app.door.options.hide_payloads {
        return Ok(job.find_without_payload(connection).await?);
    }
    let mut found = job.find(connection).await?;
    redact(&app.door.options, &mut found);
    Ok(found)
}

/// Jobs, the newest first, without payloads. A page may have fewer than were asked for, even none, and still a next one: jobs that are rare are looked
/// for with a bounded effort.
#[utoipa::path(get, path = "/api/v1/jobs", params(AskedJobs), responses((status = 200, body = Page), (status = "default", body = Wrong)))]
pub(super) async fn list(State(app): State<Shared>, Asked(asked): Asked<AskedJobs>) -> Answer<Json<Page>> {
    Ok(Json(listed(&mut *app.look().await?, &app, &asked, Patience::default()).await?))
}

/// Which ordering key.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AskedKey {
    /// The queue; `default` if nothing is said.
    #[param(nullable = false)]
    queue: Option<String>,
    /// The key, as it was said when its jobs were enqueued; of none there are no jobs.
    #[param(nullable = false)]
    key: Option<String>,
}

/// The jobs of an ordering key that are not over, in its order, without payloads: the first 200, and whether there are more.
#[utoipa::path(get, path = "/api/v1/keys", params(AskedKey), responses((status = 200, body = InLine), (status = "default", body = Wrong)))]
pub(super) async fn in_line(State(app): State<Shared>, Asked(AskedKey { queue, key }): Asked<AskedKey>) -> Answer<Json<InLine>> {
    let Some(key) = key else { return Ok(Json(InLine::default())) };
    let queue = queue.unwrap_or_else(|| "default".to_owned());
    Ok(Json(operate::in_line(&mut *app.look().await?, app.store, &queue, &key, MOST).await?))
}

/// One job with its payload, its output, its failed attempts and how far it is.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobRecord), (status = "default", body = Wrong))
)]
pub(super) async fn find(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<JobRecord>> {
    Ok(Json(looked_at(&mut *app.look().await?, &app, job_id(&id)?).await?))
}

/// What the attempts of a job of this type have logged, without what is not to be shown.
pub(in crate::dashboard) async fn logs_of(connection: &mut PgConnection, app: &App, id: JobId, job_type: &str) -> Answer<Vec<AttemptLog>> {
    let mut logs = operate::logs(connection, app.store, id).await?;
    redact_logs(&app.door.options, job_type, &mut logs);
    Ok(logs)
}

/// What the attempts of a job have logged, in their order; none if its type keeps no logs.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/logs",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<AttemptLog>), (status = "default", body = Wrong))
)]
pub(super) async fn logs(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<AttemptLog>>> {
    let (id, mut session) = (job_id(&id)?, app.look().await?);
    let job = JobRef::from_id(id).in_store(app.store).find_without_payload(&mut *session).await?;
    Ok(Json(logs_of(&mut session, &app, id, &job.job_type).await?))
}

/// Why a job is not running, or what came of it: the causes, the most likely first, each with what to do about it. A job that is not there is an
/// answer as well.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/why",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Why), (status = "default", body = Wrong))
)]
pub(super) async fn why(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Why>> {
    Ok(Json(name_commands(operate::why(&mut *app.look().await?, app.store, job_id(&id)?).await?)))
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(in crate::dashboard) enum Wanted {
    /// A job that waits will not run; one that runs is told to stop.
    Cancel,
    /// A job that is over becomes ready, with all its attempts before it. Of many jobs: dead letters only. One whose uniqueness key another has
    /// taken is refused, and of many left as it is.
    Requeue,
    /// The same, also beside the job that has taken its uniqueness key.
    ForceRequeue,
    /// A dead letter is deleted with its payload and history, for good.
    Discard,
    /// A scheduled or parked job becomes ready.
    RunNow,
    /// A ready or scheduled job is put off.
    Snooze {
        /// For so many seconds from now.
        seconds: f64,
    },
    /// A ready or scheduled job is put off, or due earlier.
    Reschedule {
        /// Until then.
        at: DateTime<Utc>,
    },
    /// A ready or scheduled job gets another priority.
    Priority {
        /// Higher runs first.
        priority: i16,
    },
}

impl Wanted {
    pub(super) fn act(self) -> Answer<Act> {
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|_| Problem::wrong("a number of seconds is zero or more"));
        Ok(match self {
            Self::Cancel => Act::Cancel,
            Self::Requeue => Act::Requeue,
            Self::ForceRequeue => Act::ForceRequeue,
            Self::Discard => Act::Discard,
            Self::RunNow => Act::RunNow,
            Self::Snooze { seconds } => Act::Snooze(span(seconds)?),
            Self::Reschedule { at } => Act::Reschedule(at),
            Self::Priority { priority } => Act::Priority(priority),
        })
    }
}

/// An act that takes nothing but the job: a button of its page.
pub(in crate::dashboard) struct Button {
    /// As [`Wanted`] is written.
    pub(in crate::dashboard) act: &'static str,
    pub(in crate::dashboard) label: &'static str,
    /// The states of a job in which it can be done.
    states: &'static [JobState],
    /// What is asked first, if it cannot be taken back.
    pub(in crate::dashboard) question: Option<&'static str>,
}

/// All buttons, in their order on a page.
const BUTTONS: [Button; 4] = {
    use JobState::{Blocked, Cancelled, Completed, Dead, Expired, Parked, Ready, Running, Scheduled};
    let for_good = Some("Delete this job with its payload and history, for good?");
    [
        Button { act: "requeue", label: "Requeue", states: &[Dead, Completed, Cancelled, Expired], question: None },
        Button { act: "run_now", label: "Run now", states: &[Scheduled, Parked], question: None },
        Button {
            act: "cancel",
            label: "Cancel",
            states: &[Blocked, Scheduled, Ready, Running, Parked],
            question: Some("Cancel this job?"),
        },
        Button { act: "discard", label: "Discard", states: &[Dead], question: for_good },
    ]
};

/// What can be done in this state.
pub(in crate::dashboard) fn buttons(state: JobState) -> Vec<&'static Button> {
    BUTTONS.iter().filter(|button| button.states.contains(&state)).collect()
}

/// What became of it.
#[derive(Serialize, ToSchema)]
pub(super) struct Became {
    /// `done`, or `cancelling` of a job that runs.
    acted: Acted,
    /// The same in a sentence.
    text: String,
}

/// Does something to one job.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/act",
    params(("id" = String, Path, description = "The job's id")),
    request_body = Wanted,
    responses((status = 200, body = Became), (status = "default", body = Wrong))
)]
pub(super) async fn act(State(app): State<Shared>, who: Who, Path(id): Path<String>, Said(wanted): Said<Wanted>) -> Answer<Json<Became>> {
    let (id, act) = (job_id(&id)?, wanted.act()?);
    let mut session = app.change().await?;
    let acted = JobRef::from_id(id).in_store(app.store).act(&mut *session, act).await?;
    operate::note_act(&mut *session, app.store, &who.note(act.done(), format!("job {id}")), 1).await?;
    session.commit().await?;
    let what = if acted == Acted::Cancelling { "cancelling" } else { act.done() };
    Ok(Json(Became { acted, text: format!("job {id} is {what}") }))
}

/// The id in an address.
pub(in crate::dashboard) fn job_id(text: &str) -> Answer<JobId> {
    text.parse().map_err(|_| Problem::missing("a job's id is a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_is_an_act_and_a_job_has_those_of_its_state() {
        for button in &BUTTONS {
            assert!(serde_json::from_value::<Wanted>(serde_json::json!({ "act": button.act })).is_ok(), "{}", button.act);
        }
        let acts = |state| buttons(state).iter().map(|button| button.act).collect::<Vec<_>>();
        assert_eq!(acts(JobState::Dead), ["requeue", "discard"]);
        assert_eq!(acts(JobState::Parked), ["run_now", "cancel"]);
        assert_eq!((acts(JobState::Running), acts(JobState::Expired)), (vec!["cancel"], vec!["requeue"]));
    }
}

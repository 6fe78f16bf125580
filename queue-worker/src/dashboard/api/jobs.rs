//! Routes that list jobs, show a job, or apply an operation to a job.

use std::time::Duration;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use queue_core::{
    JobId, JobRef, JobState, Queue,
    operate::{AttemptLog, JobRecord, KeyQueueEntry, Operation, OperationOutcome, Page, Patience, Why},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};

use super::{
    body::{JsonBody, Operator, QueryParams},
    job_query::{JobQuery, MAX_PAGE_JOBS},
    redaction::{redact, redact_logs},
};
use crate::{
    dashboard::{
        app::{App, AppState},
        path::Path,
        problem::{ErrorResponse, HandlerResult, Problem},
    },
    program::name_commands,
};

/// Loads a page of jobs without payloads. `patience` limits the duration of the scan, so the page may have fewer jobs than requested.
pub(in crate::dashboard) async fn list_page(
    connection: &mut PgConnection,
    app: &App,
    query: &JobQuery,
    patience: Patience,
) -> HandlerResult<Page> {
    Ok(Queue::on(connection).store(app.store).jobs().matching(&query.filter()?).list_patiently(patience).await?)
}

/// Loads a job with its history. Redacts the configured keys, or omits the payload and the output if payloads are hidden.
pub(in crate::dashboard) async fn load_job(connection: &mut PgConnection, app: &App, id: JobId) -> HandlerResult<JobRecord> {
    let job = JobRef::from_id(id).in_store(app.store);
    if app.dashboard.options.hide_payloads {
        return Ok(job.find_without_payload(connection).await?);
    }
    let mut found = job.find(connection).await?;
    redact(&app.dashboard.options, &mut found);
    Ok(found)
}

/// Lists jobs without payloads, newest first. The duration of the scan is limited. A page may therefore contain fewer jobs than requested
/// and still have a next page.
#[utoipa::path(
    get,
    path = "/api/v1/jobs",
    params(JobQuery),
    responses((status = 200, body = Page), (status = "default", body = ErrorResponse))
)]
pub(super) async fn list(State(app): State<AppState>, QueryParams(query): QueryParams<JobQuery>) -> HandlerResult<Json<Page>> {
    Ok(Json(list_page(&mut *app.begin_read().await?, &app, &query, Patience::default()).await?))
}

/// Query parameters that select an ordering key.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeyQuery {
    /// Queue of the ordering key. Default: `default`.
    #[param(nullable = false)]
    queue: Option<String>,
    /// Ordering key, as set by the producer. Without a key, the list is empty.
    #[param(nullable = false)]
    key: Option<String>,
}

/// Lists the first 200 unfinished jobs with an ordering key, in execution order and without payloads. Reports whether the key has more
/// unfinished jobs.
#[utoipa::path(
    get,
    path = "/api/v1/keys",
    params(KeyQuery),
    responses((status = 200, body = KeyQueueEntry), (status = "default", body = ErrorResponse))
)]
pub(super) async fn in_line(
    State(app): State<AppState>,
    QueryParams(KeyQuery { queue, key }): QueryParams<KeyQuery>,
) -> HandlerResult<Json<KeyQueueEntry>> {
    let Some(key) = key else { return Ok(Json(KeyQueueEntry::default())) };
    let queue = queue.unwrap_or_else(|| "default".to_owned());
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).jobs_of_key(&queue, &key, MAX_PAGE_JOBS).await?))
}

/// Returns a job with its payload, output, failed attempts and progress.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobRecord), (status = "default", body = ErrorResponse))
)]
pub(super) async fn find(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<JobRecord>> {
    Ok(Json(load_job(&mut *app.begin_read().await?, &app, job_id(&id)?).await?))
}

/// Loads the logs of a job's attempts. Redacts the logs if payloads are hidden, or if the job type has redacted keys.
pub(in crate::dashboard) async fn load_logs(
    connection: &mut PgConnection,
    app: &App,
    id: JobId,
    job_type: &str,
) -> HandlerResult<Vec<AttemptLog>> {
    let mut logs = Queue::on(connection).store(app.store).job(id).logs().await?;
    redact_logs(&app.dashboard.options, job_type, &mut logs);
    Ok(logs)
}

/// Lists the logs of a job's last twenty attempts, in attempt order. The list is empty if the job type keeps no logs.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/logs",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<AttemptLog>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn logs(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Vec<AttemptLog>>> {
    let (id, mut session) = (job_id(&id)?, app.begin_read().await?);
    let job = JobRef::from_id(id).in_store(app.store).find_without_payload(&mut *session).await?;
    Ok(Json(load_logs(&mut session, &app, id, &job.job_type).await?))
}

/// Explains why a job is not running, or how it ended. Returns the causes with their remedies, most likely cause first. For an unknown
/// job id, the response is an explanation instead of an error.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/why",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Why), (status = "default", body = ErrorResponse))
)]
pub(super) async fn why(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Why>> {
    Ok(Json(name_commands(Queue::on(&mut *app.begin_read().await?).store(app.store).job(job_id(&id)?).why().await?)))
}

/// Operation on a job.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(in crate::dashboard) enum JobOperation {
    /// Cancels the job. A waiting job never runs. The handler of a running job is asked to stop.
    Cancel,
    /// Makes a finished job ready again and resets its attempt count. A bulk operation requeues only dead letters. If another job holds the
    /// uniqueness key of the job, an operation on a single job is rejected, and a bulk operation skips the job.
    Requeue,
    /// Requeues the job even if another job holds its uniqueness key.
    ForceRequeue,
    /// Permanently deletes a dead letter with its payload and history.
    Discard,
    /// Makes a scheduled or parked job ready immediately.
    RunNow,
    /// Postpones a ready or scheduled job.
    Snooze {
        /// Delay in seconds from now.
        seconds: f64,
    },
    /// Sets an earlier or later due time for a ready or scheduled job.
    Reschedule {
        /// New due time.
        at: DateTime<Utc>,
    },
    /// Changes the priority of a ready or scheduled job.
    Priority {
        /// New priority. Higher priorities run first.
        priority: i16,
    },
}

impl JobOperation {
    pub(super) fn act(self) -> HandlerResult<Operation> {
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|_| Problem::bad_request("`seconds` must be zero or more"));
        Ok(match self {
            Self::Cancel => Operation::Cancel,
            Self::Requeue => Operation::Requeue,
            Self::ForceRequeue => Operation::ForceRequeue,
            Self::Discard => Operation::Discard,
            Self::RunNow => Operation::RunNow,
            Self::Snooze { seconds } => Operation::Snooze(span(seconds)?),
            Self::Reschedule { at } => Operation::Reschedule(at),
            Self::Priority { priority } => Operation::Priority(priority),
        })
    }
}

/// Button for an operation without parameters, on the job page or above the job list.
pub(in crate::dashboard) struct Button {
    /// JSON tag of the [`JobOperation`] variant that the button sends.
    pub(in crate::dashboard) act: &'static str,
    pub(in crate::dashboard) label: &'static str,
    /// Job states that allow the operation.
    states: &'static [JobState],
    /// Confirmation question, or `None` if the operation needs no confirmation.
    pub(in crate::dashboard) question: Option<&'static str>,
}

/// Buttons of the operations without parameters except [`JobOperation::ForceRequeue`], in display order.
const BUTTONS: [Button; 4] = {
    use JobState::{Blocked, Cancelled, Completed, Dead, Expired, Parked, Ready, Running, Scheduled};
    let discard_question = Some("Permanently delete this job with its payload and history?");
    [
        Button { act: "requeue", label: "Requeue", states: &[Dead, Completed, Cancelled, Expired], question: None },
        Button { act: "run_now", label: "Run now", states: &[Scheduled, Parked], question: None },
        Button {
            act: "cancel",
            label: "Cancel",
            states: &[Blocked, Scheduled, Ready, Running, Parked],
            question: Some("Cancel this job?"),
        },
        Button { act: "discard", label: "Discard", states: &[Dead], question: discard_question },
    ]
};

/// Returns the buttons for a job in `state`.
pub(in crate::dashboard) fn buttons(state: JobState) -> Vec<&'static Button> {
    BUTTONS.iter().filter(|button| button.states.contains(&state)).collect()
}

/// Outcome of an operation on a job.
#[derive(Serialize, ToSchema)]
pub(super) struct JobOperationResponse {
    /// Outcome: `done`, or `cancelling` if a cancelled job is still running.
    acted: OperationOutcome,
    /// One sentence that describes the outcome.
    text: String,
}

/// Applies an operation to one job.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/act",
    params(("id" = String, Path, description = "The job's id")),
    request_body = JobOperation,
    responses((status = 200, body = JobOperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn act(
    State(app): State<AppState>,
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(operation): JsonBody<JobOperation>,
) -> HandlerResult<Json<JobOperationResponse>> {
    let (id, act) = (job_id(&id)?, operation.act()?);
    let mut session = app.begin_write().await?;
    let acted = JobRef::from_id(id).in_store(app.store).apply(&mut *session, act).await?;
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry(act.done(), format!("job {id}")), 1).await?;
    session.commit().await?;
    let what = if acted == OperationOutcome::Cancelling { "cancelling" } else { act.done() };
    Ok(Json(JobOperationResponse { acted, text: format!("job {id} is {what}") }))
}

/// Parses a job id from a URL path.
pub(in crate::dashboard) fn job_id(text: &str) -> HandlerResult<JobId> {
    text.parse().map_err(|_| Problem::not_found("a job id must be a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buttons_match_operations_and_job_states() {
        for button in &BUTTONS {
            assert!(serde_json::from_value::<JobOperation>(serde_json::json!({ "act": button.act })).is_ok(), "{}", button.act);
        }
        let names = |state| buttons(state).iter().map(|button| button.act).collect::<Vec<_>>();
        assert_eq!(names(JobState::Dead), ["requeue", "discard"]);
        assert_eq!(names(JobState::Parked), ["run_now", "cancel"]);
        assert_eq!((names(JobState::Running), names(JobState::Expired)), (vec!["cancel"], vec!["requeue"]));
    }
}

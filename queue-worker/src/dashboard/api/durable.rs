//! Routes of durable jobs: steps, children, maps and signals.

use axum::{Json, extract::State};
use queue_core::{
    JobId, JobRef, Queue,
    operate::{JobChild, JobGather, JobRecord, JobSignal, JobStep, SignalOutcome},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{
    body::{JsonBody, OperationResponse, Operator},
    jobs::job_id,
};
use crate::{
    dashboard::{
        app::{AppState, DbSession},
        path::Path,
        problem::{ErrorResponse, HandlerResult, Problem},
    },
    program,
};

/// Loads a job without its payload in a new read-only transaction. Returns the transaction and the job.
async fn open_job(app: &AppState, id: &str) -> HandlerResult<(DbSession, JobRecord)> {
    let (id, mut session) = (job_id(id)?, app.begin_read().await?);
    let job = JobRef::from_id(id).in_store(app.store).find_without_payload(&mut *session).await?;
    Ok((session, job))
}

/// Lists the first thousand journaled steps of a durable job, without their results. The list is empty if the job is not durable.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/steps",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobStep>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn steps(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Vec<JobStep>>> {
    let (mut session, job) = open_job(&app, &id).await?;
    Ok(Json(Queue::on(&mut session).store(app.store).job(job.id).steps().await?))
}

/// Parent and children of a job.
#[derive(Serialize, ToSchema)]
pub(super) struct JobRelations {
    /// Id of the job that spawned this job, if this job is a child.
    parent: Option<JobId>,
    /// First thousand children, in spawn order.
    children: Vec<JobChild>,
}

/// Returns the id of the job that spawned `job`, if `job` is a child.
pub(in crate::dashboard) fn parent_of(job: &JobRecord) -> Option<JobId> {
    let system: Value = serde_json::from_str(job.system.as_ref()?.get()).ok()?;
    system.get("child_of")?.as_str()?.parse().ok()
}

/// Lists the children of a durable job and its parent, if any.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/children",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobRelations), (status = "default", body = ErrorResponse))
)]
pub(super) async fn children(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<JobRelations>> {
    let (mut session, job) = open_job(&app, &id).await?;
    Ok(Json(JobRelations { parent: parent_of(&job), children: Queue::on(&mut session).store(app.store).job(job.id).children().await? }))
}

/// Lists the first thousand map batches of a durable job, ordered by step name. A map batch is the set of jobs spawned by one map step.
/// Each entry counts the batch's jobs by outcome.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/gathers",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobGather>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn gathers(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Vec<JobGather>>> {
    let (mut session, job) = open_job(&app, &id).await?;
    Ok(Json(Queue::on(&mut session).store(app.store).job(job.id).gathers().await?))
}

/// Lists the first thousand signals that a durable job has not received yet, without payloads, oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/signals",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobSignal>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn signals(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Vec<JobSignal>>> {
    let (mut session, job) = open_job(&app, &id).await?;
    Ok(Json(Queue::on(&mut session).store(app.store).job(job.id).signals().await?))
}

/// Name and payload of a signal to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendSignalRequest {
    /// Name under which the job receives the signal, 1 to 200 bytes.
    name: String,
    /// Payload as a JSON value. Default: `null`.
    #[schema(nullable = false)]
    payload: Option<Value>,
    /// Payload as a JSON document in a string, for clients that cannot represent every number exactly. A number that cannot be stored
    /// exactly is rejected. Cannot be combined with `payload`.
    #[schema(nullable = false)]
    payload_json: Option<String>,
}

impl SendSignalRequest {
    /// Returns the signal's name and its payload as JSON text.
    fn into_parts(self) -> HandlerResult<(String, Box<RawValue>)> {
        let text = match (self.payload, self.payload_json) {
            (Some(_), Some(_)) => return Err(Problem::bad_request("give either `payload` or `payload_json`, not both")),
            (None, Some(text)) => text,
            (payload, None) => payload.unwrap_or_default().to_string(),
        };
        let payload = RawValue::from_string(text.trim().to_owned()).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Problem::bad_request(format!("the payload is not valid JSON at line {line}, column {column}; strings need double quotes"))
        })?;
        Ok((self.name, payload))
    }
}

/// Sends a signal to a durable job. The job receives each signal once, in sending order.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/signals",
    params(("id" = String, Path, description = "The job's id")),
    request_body = SendSignalRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn signal(
    State(app): State<AppState>,
    operator: Operator,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<SendSignalRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    let (id, (name, payload)) = (job_id(&id)?, request.into_parts()?);
    let mut session = app.begin_write().await?;
    let job = JobRef::from_id(id).in_store(app.store);
    match job.signal(&mut *session, &name, &payload).await? {
        SignalOutcome::Sent => {}
        SignalOutcome::Over => return Err(Problem::conflict(format!("job {id} has finished and receives no signals"))),
        _ => return Err(Problem::not_found(format!("there is no job {id}"))),
    }
    // If the job is not durable, returning the error drops the session, which rolls back the signal.
    if program::ignores_signals(&job.find_without_payload(&mut *session).await?.job_type) {
        return Err(Problem::conflict(format!("job {id} is not durable and receives no signals")));
    }
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("signalled", format!("job {id}: {name}")), 1).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("sent {name} to job {id}")))
}

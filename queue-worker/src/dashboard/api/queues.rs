//! Routes of queues, pauses, capacities and workers.

use axum::{Json, extract::State};
use queue_core::{
    Queue,
    operate::{Capacity, Scope, WorkerRecord},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, OperationResponse, Operator};
use crate::dashboard::{
    app::AppState,
    path::Path,
    problem::{ErrorResponse, HandlerResult, Problem},
};

/// Names and capacities of the queues.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueList {
    /// Names of the queues in alphabetical order.
    queues: Vec<String>,
    /// Configured capacities. Queues without a capacity are omitted.
    capacities: Vec<Capacity>,
}

/// Lists the queues by name, without job counts.
#[utoipa::path(get, path = "/api/v1/queues", responses((status = 200, body = QueueList), (status = "default", body = ErrorResponse)))]
pub(super) async fn queues(State(app): State<AppState>) -> HandlerResult<Json<QueueList>> {
    let mut session = app.begin_read().await?;
    let queues = Queue::on(&mut session).store(app.store).queues().await?;
    Ok(Json(QueueList { queues, capacities: Queue::on(&mut session).store(app.store).capacities().await? }))
}

/// Lists the registered workers with their numbers of claimed jobs.
#[utoipa::path(
    get,
    path = "/api/v1/workers",
    responses((status = 200, body = Vec<WorkerRecord>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn workers(State(app): State<AppState>) -> HandlerResult<Json<Vec<WorkerRecord>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).workers().await?))
}

/// Scope of a pause: a queue, a job type, a job type within a queue, or the whole store. A new pause may also have a reason.
#[derive(Deserialize, ToSchema)]
pub(super) struct PauseRequest {
    /// Queue to pause or resume. Default: all queues.
    #[serde(default)]
    queue: Option<String>,
    /// Job type to pause or resume. Default: all job types.
    #[serde(default)]
    job_type: Option<String>,
    /// Whether the scope is the whole store. Must be `true` if neither a queue nor a job type is given, and `false` otherwise.
    #[serde(default)]
    everything: bool,
    /// Reason for the pause, shown to other operators.
    #[serde(default)]
    reason: Option<String>,
}

impl PauseRequest {
    fn scope(&self) -> HandlerResult<Scope> {
        let scope = Scope { queue: self.queue.clone(), job_type: self.job_type.clone() };
        if (scope == Scope::EVERYTHING) == self.everything {
            return Ok(scope);
        }
        Err(Problem::bad_request("give `queue`, `job_type`, both, or `everything`"))
    }
}

/// Pauses a queue, a job type, or the whole store. Workers then start no jobs in the paused scope. Running jobs continue.
#[utoipa::path(
    post,
    path = "/api/v1/pause",
    request_body = PauseRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn pause(
    State(app): State<AppState>,
    operator: Operator,
    JsonBody(request): JsonBody<PauseRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    let scope = request.scope()?;
    let mut session = app.begin_write().await?;
    Queue::on(&mut session).store(app.store).pause_with_reason(&scope, request.reason.as_deref()).await?;
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("paused", scope.to_string()), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("{scope} is paused")))
}

/// Removes the pause with exactly the given scope. Overlapping pauses stay in effect.
#[utoipa::path(
    post,
    path = "/api/v1/resume",
    request_body = PauseRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn resume(
    State(app): State<AppState>,
    operator: Operator,
    JsonBody(request): JsonBody<PauseRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    let scope = request.scope()?;
    let mut session = app.begin_write().await?;
    if !Queue::on(&mut session).store(app.store).resume(&scope).await? {
        return Err(Problem::not_found(format!("{scope} is not paused")));
    }
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("resumed", scope.to_string()), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("{scope} is resumed")))
}

/// Capacity to set for a queue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityRequest {
    /// Maximum number of waiting jobs in the queue, or `null` for no maximum.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required)]
    capacity: Option<u64>,
}

/// Sets or removes the capacity of a queue.
#[utoipa::path(
    post,
    path = "/api/v1/queues/{queue}/capacity",
    params(("queue" = String, Path, description = "The queue")),
    request_body = CapacityRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn set_capacity(
    State(app): State<AppState>,
    operator: Operator,
    Path(queue): Path<String>,
    JsonBody(CapacityRequest { capacity }): JsonBody<CapacityRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    let mut session = app.begin_write().await?;
    Queue::on(&mut session).store(app.store).set_capacity(&queue, capacity).await?;
    let text =
        capacity.map_or_else(|| format!("queue {queue} has unlimited capacity"), |most| format!("queue {queue} has a capacity of {most}"));
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("capacity", text.clone()), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(text))
}

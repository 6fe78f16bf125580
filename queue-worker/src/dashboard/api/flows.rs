//! Routes of flows. A flow is addressed by the id of any of its jobs.

use axum::{Json, extract::State};
use queue_core::{
    Queue,
    operate::{FlowNode, JobRecord},
};
use serde_json::Value;

use super::{
    body::{OperationResponse, Operator},
    jobs::job_id,
};
use crate::dashboard::{
    app::AppState,
    path::Path,
    problem::{ErrorResponse, HandlerResult, Problem},
};

/// Returns whether the job is a node of a flow, according to its `system` attributes.
pub(in crate::dashboard) fn is_node(job: &JobRecord) -> bool {
    let system: Option<Value> = job.system.as_ref().and_then(|system| serde_json::from_str(system.get()).ok());
    system.is_some_and(|system| system.get("node_of").is_some())
}

/// Lists the first ten thousand nodes of a job's flow, in the order they were added. The list is empty if the job is not part of a flow.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/flow",
    params(("id" = String, Path, description = "The id of the flow, or of any of its jobs")),
    responses((status = 200, body = Vec<FlowNode>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn flow(State(app): State<AppState>, Path(id): Path<String>) -> HandlerResult<Json<Vec<FlowNode>>> {
    let (id, mut session) = (job_id(&id)?, app.begin_read().await?);
    Ok(Json(Queue::on(&mut session).store(app.store).job(id).flow().await?))
}

/// Cancels all unfinished jobs in a flow.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/flow/cancel",
    params(("id" = String, Path, description = "The id of the flow, or of any of its jobs")),
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn cancel(
    State(app): State<AppState>,
    operator: Operator,
    Path(id): Path<String>,
) -> HandlerResult<Json<OperationResponse>> {
    let (id, mut session) = (job_id(&id)?, app.begin_write().await?);
    if Queue::on(&mut session).store(app.store).job(id).flow().await?.is_empty() {
        return Err(Problem::not_found(format!("job {id} belongs to no flow")));
    }
    let count = Queue::on(&mut session).store(app.store).job(id).cancel_flow().await?;
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("cancelled", format!("flow {id}")), count).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("cancelled {count} jobs of the flow")))
}

//! The flow that a job is a node of.

use axum::{Json, extract::State};
use queue_core::operate::{self, FlowNode, JobRecord};
use serde_json::Value;

use super::{
    body::{Told, Who},
    jobs::job_id,
};
use crate::dashboard::{
    app::Shared,
    part::Path,
    problem::{Answer, Problem, Wrong},
};

/// Whether it is a node of a flow, as its store has it.
pub(in crate::dashboard) fn is_node(job: &JobRecord) -> bool {
    let system: Option<Value> = job.system.as_ref().and_then(|system| serde_json::from_str(system.get()).ok());
    system.is_some_and(|system| system.get("node_of").is_some())
}

/// The nodes of the flow that a job belongs to, in the order in which they were added: the first ten thousand. None if it belongs to no flow.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/flow",
    params(("id" = String, Path, description = "The id of the flow, or of any of its jobs")),
    responses((status = 200, body = Vec<FlowNode>), (status = "default", body = Wrong))
)]
pub(super) async fn flow(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<FlowNode>>> {
    let (id, mut session) = (job_id(&id)?, app.look().await?);
    Ok(Json(operate::flow(&mut *session, app.store, id).await?))
}

/// Cancels all jobs of the flow that a job belongs to and that are not over.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/flow/cancel",
    params(("id" = String, Path, description = "The id of the flow, or of any of its jobs")),
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn cancel(State(app): State<Shared>, who: Who, Path(id): Path<String>) -> Answer<Json<Told>> {
    let (id, mut session) = (job_id(&id)?, app.change().await?);
    if operate::flow(&mut *session, app.store, id).await?.is_empty() {
        return Err(Problem::missing(format!("job {id} belongs to no flow")));
    }
    let count = operate::cancel_flow(&mut *session, app.store, id).await?;
    operate::note_act(&mut *session, app.store, &who.note("cancelled", format!("flow {id}")), count).await?;
    session.commit().await?;
    Ok(Told::new(format!("cancelled {count} jobs of the flow")))
}

//! What a durable job has done so far.

use axum::{
    Json,
    extract::{Path, State},
};
use queue_core::{
    JobRef,
    operate::{self, JobStep},
};

use super::jobs::job_id;
use crate::dashboard::{
    app::Shared,
    problem::{Answer, Wrong},
};

/// What a durable job has done so far: the first thousand of its steps, without what they gave. None of a job that is not durable.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/steps",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobStep>), (status = "default", body = Wrong))
)]
pub(super) async fn steps(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<JobStep>>> {
    let (id, mut session) = (job_id(&id)?, app.look().await?);
    let job = JobRef::from_id(id).in_store(app.store).find_without_payload(&mut *session).await?;
    Ok(Json(operate::steps(&mut *session, app.store, job.id).await?))
}

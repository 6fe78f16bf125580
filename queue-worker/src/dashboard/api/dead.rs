//! Route that lists dead letters grouped by error.

use axum::{Json, extract::State};
use queue_core::operate::{self, DeadGroups};

use crate::dashboard::{
    app::AppState,
    problem::{ErrorResponse, HandlerResult},
};

/// Groups the most recent dead letters by job type and by the common part of their errors.
#[utoipa::path(get, path = "/api/v1/dead/groups", responses((status = 200, body = DeadGroups), (status = "default", body = ErrorResponse)))]
pub(super) async fn groups(State(app): State<AppState>) -> HandlerResult<Json<DeadGroups>> {
    Ok(Json(operate::dead_groups(&mut *app.begin_read().await?, app.store).await?))
}

//! Route that lists dead letters grouped by error.

use axum::{Json, extract::State};
use queue_core::{Queue, operate::DeadGroups};

use crate::dashboard::{
    app::AppState,
    problem::{ErrorResponse, HandlerResult},
};

/// Groups the most recent dead letters by job type and by the common part of their errors.
#[utoipa::path(get, path = "/api/v1/dead/groups", responses((status = 200, body = DeadGroups), (status = "default", body = ErrorResponse)))]
pub(super) async fn groups(State(app): State<AppState>) -> HandlerResult<Json<DeadGroups>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).dead_groups().await?))
}

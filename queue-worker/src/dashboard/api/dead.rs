//! Dead letters by why they died.

use axum::{Json, extract::State};
use queue_core::operate::{self, DeadGroups};

use crate::dashboard::{
    app::Shared,
    problem::{Answer, Wrong},
};

/// Those that died last, grouped by type and by what their errors have in common.
#[utoipa::path(get, path = "/api/v1/dead/groups", responses((status = 200, body = DeadGroups), (status = "default", body = Wrong)))]
pub(super) async fn groups(State(app): State<Shared>) -> Answer<Json<DeadGroups>> {
    Ok(Json(operate::dead_groups(&mut *app.look().await?, app.store).await?))
}

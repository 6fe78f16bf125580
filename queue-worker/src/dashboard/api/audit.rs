//! Who did what.

use axum::{Json, extract::State};
use queue_core::operate::{self, AuditRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::Asked;
use crate::dashboard::{
    app::Shared,
    problem::{Answer, Wrong},
};

/// Which part of it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
#[derive(Default)]
pub(in crate::dashboard) struct AskedAudit {
    /// Before this act: the last number of the page before.
    #[param(nullable = false)]
    pub(in crate::dashboard) before: Option<i64>,
}

/// The acts that were noted, 100 at a time, the newest first.
#[utoipa::path(get, path = "/api/v1/audit", params(AskedAudit), responses((status = 200, body = Vec<AuditRecord>), (status = "default", body = Wrong)))]
pub(super) async fn list(State(app): State<Shared>, Asked(asked): Asked<AskedAudit>) -> Answer<Json<Vec<AuditRecord>>> {
    Ok(Json(operate::audit(&mut *app.look().await?, app.store, asked.before, 100).await?))
}

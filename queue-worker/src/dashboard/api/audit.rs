//! Route that lists the audit log.

use axum::{Json, extract::State};
use queue_core::{Queue, operate::AuditRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::QueryParams;
use crate::dashboard::{
    app::AppState,
    problem::{ErrorResponse, HandlerResult},
};

/// Query parameters that select a page of the audit log.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
#[derive(Default)]
pub(in crate::dashboard) struct AuditQuery {
    /// Exclusive upper bound of the listed entry ids, usually the last id of the previous page. Default: no bound.
    #[param(nullable = false)]
    pub(in crate::dashboard) before: Option<i64>,
}

/// Lists up to 100 entries of the audit log, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    params(AuditQuery),
    responses((status = 200, body = Vec<AuditRecord>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn list(
    State(app): State<AppState>,
    QueryParams(query): QueryParams<AuditQuery>,
) -> HandlerResult<Json<Vec<AuditRecord>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).audit(query.before, 100).await?))
}

//! Routes of limits. A limit bounds the number of jobs that run concurrently or start within a period.

use std::time::Duration;

use axum::{Json, extract::State};
use queue_core::{
    Queue,
    operate::{LimitKey, LimitStatus},
    options::Limit,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{JsonBody, OperationResponse, Operator};
use crate::dashboard::{
    app::AppState,
    path::Path,
    problem::{ErrorResponse, HandlerResult, Problem},
};

/// Limit to set: a concurrency, a rate, or both. An omitted concurrency or rate is unlimited.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLimitRequest {
    /// Maximum number of jobs that run concurrently.
    #[serde(default)]
    concurrency: Option<u32>,
    /// Maximum number of jobs that start within `period`. Requires `period`.
    #[serde(default)]
    starts: Option<u32>,
    /// Length of the period for `starts`, in seconds.
    #[serde(default)]
    period: Option<f64>,
    /// Maximum number of jobs that may start in quick succession. Default: the value of `starts`.
    #[serde(default)]
    burst: Option<u32>,
    /// Reason for the limit, shown to other operators.
    #[serde(default)]
    reason: Option<String>,
}

/// Lists the limits by name, each with the number of permits in use and the number of waiting jobs.
#[utoipa::path(
    get,
    path = "/api/v1/limits",
    responses((status = 200, body = Vec<LimitStatus>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn list(State(app): State<AppState>) -> HandlerResult<Json<Vec<LimitStatus>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).limits().await?))
}

/// Lists the keys of a keyed limit that hold permits, have waiting jobs, or have a concurrency of their own, busiest first.
#[utoipa::path(
    get,
    path = "/api/v1/limits/{name}/keys",
    params(("name" = String, Path, description = "The limit")),
    responses((status = 200, body = Vec<LimitKey>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn keys(State(app): State<AppState>, Path(name): Path<String>) -> HandlerResult<Json<Vec<LimitKey>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).limit_keys(&name).await?))
}

/// Sets a limit for all workers. The new limit overrides the limit declared in code.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}",
    params(("name" = String, Path, description = "The limit: `type:send_email`, `queue:mail`, or a name that types share")),
    request_body = SetLimitRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn set(
    State(app): State<AppState>,
    operator: Operator,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<SetLimitRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    if request.concurrency.is_none() && request.starts.is_none() {
        return Err(Problem::bad_request("set `concurrency`, or `starts` with `period`, or both"));
    }
    let mut limit = Limit::new();
    limit = request.concurrency.into_iter().fold(limit, Limit::concurrency);
    if let Some(starts) = request.starts {
        let period = request.period.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        limit = limit.rate(starts, period.ok_or_else(|| Problem::bad_request("`starts` requires `period`, in seconds"))?);
    }
    limit = request.burst.into_iter().fold(limit, Limit::burst);
    let mut session = app.begin_write().await?;
    Queue::on(&mut session).store(app.store).set_limit(&name, limit, request.reason.as_deref()).await?;
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("limited", format!("limit {name}")), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("the limit {name} is set")))
}

/// Removes the limit set by an operator. The limit declared in code then applies again.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}/unset",
    params(("name" = String, Path, description = "The limit")),
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn unset(
    State(app): State<AppState>,
    operator: Operator,
    Path(name): Path<String>,
) -> HandlerResult<Json<OperationResponse>> {
    let mut session = app.begin_write().await?;
    if !Queue::on(&mut session).store(app.store).unset_limit(&name).await? {
        return Err(Problem::not_found(format!("no operator has set the limit {name}")));
    }
    Queue::on(&mut session).store(app.store).record_operation(&operator.audit_entry("unlimited", format!("limit {name}")), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(format!("the limit {name} declared in code applies again")))
}

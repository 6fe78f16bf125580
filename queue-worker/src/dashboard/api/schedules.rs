//! Routes of schedules.

use axum::{Json, extract::State};
use queue_core::{
    Queue,
    schedule::{ScheduleRecord, TickRecord},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, OperationResponse, Operator};
use crate::dashboard::{
    app::AppState,
    path::Path,
    problem::{ErrorResponse, HandlerResult},
};

/// Maximum number of ticks listed in a response.
const MAX_TICKS: u16 = 50;

/// Operation on a schedule.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(super) enum ScheduleOperation {
    /// Stops the ticks of the schedule until the schedule is resumed.
    Pause,
    /// Resumes the schedule, so that its next tick enqueues a job.
    Resume,
    /// Enqueues a job of the schedule immediately, without waiting for a tick.
    Run,
    /// Skips the next tick. The skipped tick enqueues no job.
    Skip,
}

/// Lists the schedules by name.
#[utoipa::path(
    get,
    path = "/api/v1/schedules",
    responses((status = 200, body = Vec<ScheduleRecord>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn list(State(app): State<AppState>) -> HandlerResult<Json<Vec<ScheduleRecord>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).schedules().await?))
}

/// Lists the outcomes of a schedule's 50 most recent ticks, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/schedules/{name}/fires",
    params(("name" = String, Path, description = "The schedule")),
    responses((status = 200, body = Vec<TickRecord>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn fires(State(app): State<AppState>, Path(name): Path<String>) -> HandlerResult<Json<Vec<TickRecord>>> {
    Ok(Json(Queue::on(&mut *app.begin_read().await?).store(app.store).schedule(&name).ticks(MAX_TICKS).await?))
}

/// Pauses or resumes a schedule, runs it immediately, or skips its next tick.
#[utoipa::path(
    post,
    path = "/api/v1/schedules/{name}/act",
    params(("name" = String, Path, description = "The schedule")),
    request_body = ScheduleOperation,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn act(
    State(app): State<AppState>,
    operator: Operator,
    Path(name): Path<String>,
    JsonBody(operation): JsonBody<ScheduleOperation>,
) -> HandlerResult<Json<OperationResponse>> {
    let (mut session, store) = (app.begin_write().await?, app.store);
    let (word, text) = match operation {
        ScheduleOperation::Pause => {
            ("paused", Queue::on(&mut session).store(store).schedule(&name).pause().await.map(|()| format!("{name} is paused"))?)
        }
        ScheduleOperation::Resume => {
            ("resumed", Queue::on(&mut session).store(store).schedule(&name).resume().await.map(|()| format!("{name} is resumed"))?)
        }
        ScheduleOperation::Run => (
            "run",
            Queue::on(&mut session).store(store).schedule(&name).run_now().await.map(|job| format!("job {job} of {name} is ready"))?,
        ),
        ScheduleOperation::Skip => {
            let tick = Queue::on(&mut session).store(store).schedule(&name).skip_next().await?;
            ("skipped", format!("the tick of {} is skipped", tick.format("%Y-%m-%d %H:%M:%SZ")))
        }
    };
    Queue::on(&mut session).store(store).record_operation(&operator.audit_entry(word, format!("schedule {name}")), 0).await?;
    session.commit().await?;
    Ok(OperationResponse::new(text))
}

//! Routes of bulk operations on jobs. A client first requests the number of matching jobs, which the operator confirms. An operation
//! changes at most the confirmed number of jobs. The audit log records each operation.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use queue_core::{
    Queue,
    operate::{BulkOperation, BulkOutcome, Note, Operation},
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::{
    body::{JsonBody, OperationResponse, Operator},
    job_query::JobQuery,
    jobs::JobOperation,
};
use crate::dashboard::{
    app::{App, AppState},
    operations::BulkOperationStatus,
    problem::{ErrorResponse, HandlerResult, Problem},
};

/// Maximum time that a response waits for its operation to finish. A longer operation continues in the background.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Operation on all jobs that match a filter.
#[derive(Deserialize, ToSchema)]
pub(super) struct BulkRequest {
    #[serde(flatten)]
    operation: JobOperation,
    /// Filter that selects the jobs. `{}` selects all jobs. The fields `before` and `limit` are ignored.
    filter: JobQuery,
    /// Number of jobs that the operator has confirmed. Required for operations, ignored for counts. The operation is rejected if more
    /// jobs match when it starts.
    #[serde(default)]
    at_most: Option<u64>,
    /// Maximum number of jobs to change per second. Default: unlimited.
    #[serde(default)]
    rate: Option<f64>,
}

/// Operation on a group of dead letters.
#[derive(Deserialize, ToSchema)]
pub(super) struct GroupRequest {
    #[serde(flatten)]
    operation: JobOperation,
    /// Job type of the group.
    job_type: String,
    /// Common part of the group's errors, as returned by the list of groups.
    error: String,
    /// Number of jobs that the operator has confirmed. Required for operations, ignored for counts. The operation is rejected if the
    /// group has more jobs when it starts.
    #[serde(default)]
    at_most: Option<u64>,
    /// Maximum number of jobs to change per second. Default: unlimited.
    #[serde(default)]
    rate: Option<f64>,
}

/// Result of counting the matching jobs, or of a bulk operation.
#[derive(Serialize, ToSchema)]
pub(super) struct BulkResponse {
    /// Number of matching jobs after a count, or number of changed jobs after an operation.
    jobs: u64,
    /// Whether the operation continues in the background. If so, `jobs` is the number of jobs to change. The audit log shows the
    /// progress.
    goes_on: bool,
    /// One sentence that describes the result.
    text: String,
}

/// Counts the jobs that an operation would change. The request is rejected if the count exceeds the configured maximum, which is a
/// million jobs by default.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/count",
    request_body = BulkRequest,
    responses((status = 200, body = BulkResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn count(State(app): State<AppState>, JsonBody(request): JsonBody<BulkRequest>) -> HandlerResult<Json<BulkResponse>> {
    let (act, filter) = (request.operation.act()?, request.filter.filter()?);
    let most = app.dashboard.options.most_jobs;
    let jobs = Queue::on(&mut *app.begin_read().await?).store(app.store).jobs().matching(&filter).apply(act).count_up_to(most).await?;
    if jobs > most { Err(too_many(most)) } else { Ok(preview(jobs, act)) }
}

fn too_many(most: u64) -> Problem {
    let text = format!("more than {most} jobs match; narrow the filter, or use the command line, which has no maximum");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text)
}

/// Applies an operation to all jobs that match a filter. An operation that takes longer than three seconds continues in the background,
/// and the audit log shows its progress.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/act",
    request_body = BulkRequest,
    responses((status = 200, body = BulkResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn act(
    State(app): State<AppState>,
    operator: Operator,
    JsonBody(request): JsonBody<BulkRequest>,
) -> HandlerResult<Json<BulkResponse>> {
    app.check_writable()?;
    let (act, filter) = (request.operation.act()?, request.filter.filter()?);
    let at_most = request.at_most.unwrap_or_default();
    if at_most > app.dashboard.options.most_jobs {
        return Err(too_many(app.dashboard.options.most_jobs));
    }
    let jobs = Queue::on(&mut *app.begin_read().await?).store(app.store).jobs().matching(&filter).apply(act).count_up_to(at_most).await?;
    let what = request.filter.search_text();
    let note = operator.audit_entry(act.done(), if what.is_empty() { "all jobs".to_owned() } else { format!("jobs of {what}") });
    let (store, rate) = (app.store, request.rate);
    let confirmed = ConfirmedOperation { jobs, at_most: request.at_most, act, rate, note };
    let start = move |pool, control: RunControl| async move {
        control.run(Queue::new(&pool).store(store).jobs().matching(&filter).apply(act).at_most(at_most)).await
    };
    confirmed.run(&app, start).await
}

/// Counts the dead letters of a group.
#[utoipa::path(
    post,
    path = "/api/v1/dead/count",
    request_body = GroupRequest,
    responses((status = 200, body = BulkResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn count_group(State(app): State<AppState>, JsonBody(group): JsonBody<GroupRequest>) -> HandlerResult<Json<BulkResponse>> {
    let act = group.act()?;
    Ok(preview(group.ids(&app).await?.len() as u64, act))
}

/// Requeues or discards the dead letters of a group. Groups cover only the store's 2,000 most recent dead letters.
#[utoipa::path(
    post,
    path = "/api/v1/dead/act",
    request_body = GroupRequest,
    responses((status = 200, body = BulkResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn act_on_group(
    State(app): State<AppState>,
    operator: Operator,
    JsonBody(group): JsonBody<GroupRequest>,
) -> HandlerResult<Json<BulkResponse>> {
    app.check_writable()?;
    let (act, ids) = (group.act()?, group.ids(&app).await?);
    let note = operator.audit_entry(act.done(), format!("dead letters of {}: {}", group.job_type, group.error));
    let (store, rate) = (app.store, group.rate);
    let confirmed = ConfirmedOperation { jobs: ids.len() as u64, at_most: group.at_most, act, rate, note };
    confirmed
        .run(&app, move |pool, control: RunControl| async move { control.run(Queue::new(&pool).store(store).apply_to(ids, act)).await })
        .await
}

/// Lists the bulk operations that this process is running in the store, oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/acts",
    responses((status = 200, body = Vec<BulkOperationStatus>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn list_running(State(app): State<AppState>) -> Json<Vec<BulkOperationStatus>> {
    Json(app.dashboard.operations.list(&app.name))
}

/// Request to stop a bulk operation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopOperationRequest {
    /// Number of the bulk operation, as returned by the list of running operations.
    number: u64,
}

/// Stops a bulk operation after its current batch. Already changed jobs stay changed.
#[utoipa::path(
    post,
    path = "/api/v1/acts/stop",
    request_body = StopOperationRequest,
    responses((status = 200, body = OperationResponse), (status = "default", body = ErrorResponse))
)]
pub(super) async fn stop(
    State(app): State<AppState>,
    operator: Operator,
    JsonBody(StopOperationRequest { number }): JsonBody<StopOperationRequest>,
) -> HandlerResult<Json<OperationResponse>> {
    app.check_writable()?;
    let stopped = app
        .dashboard
        .operations
        .stop(&app.name, number)
        .ok_or_else(|| Problem::not_found("this process has no such operation in progress"))?;
    let mut session = app.begin_write().await?;
    Queue::on(&mut session)
        .store(app.store)
        .record_operation(&operator.audit_entry("stopped", format!("{}: {}", stopped.act, stopped.what)), 0)
        .await?;
    session.commit().await?;
    Ok(OperationResponse::new("the operation stops after its current batch"))
}

impl GroupRequest {
    fn act(&self) -> HandlerResult<Operation> {
        match self.operation.act()? {
            act @ (Operation::Requeue | Operation::ForceRequeue | Operation::Discard) => Ok(act),
            _ => Err(Problem::bad_request("dead letters can only be requeued or discarded")),
        }
    }

    async fn ids(&self, app: &App) -> HandlerResult<Vec<queue_core::JobId>> {
        let found = Queue::on(&mut *app.begin_read().await?).store(app.store).dead_groups().await?;
        let group = found.groups.into_iter().find(|group| group.job_type == self.job_type && group.error == self.error);
        Ok(group.map(|group| group.ids).unwrap_or_default())
    }
}

fn preview(jobs: u64, act: Operation) -> Json<BulkResponse> {
    Json(BulkResponse { jobs, goes_on: false, text: format!("{} would be {}", job_count(jobs), act.done()) })
}

fn job_count(jobs: u64) -> String {
    if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") }
}

/// Rate, cancellation token and audit log entry of a bulk operation.
struct RunControl {
    note: Note,
    rate: Option<f64>,
    stop: CancellationToken,
}

impl RunControl {
    async fn run(self, operation: BulkOperation<'_>) -> Result<BulkOutcome, queue_core::Error> {
        let operation = operation.noted(self.note).until(self.stop.cancelled_owned());
        match self.rate {
            Some(rate) => operation.rate(rate).await,
            None => operation.await,
        }
    }
}

/// Bulk operation with its number of matching jobs and the number confirmed by the operator.
struct ConfirmedOperation {
    /// Number of jobs that match when the operation starts.
    jobs: u64,
    /// Number of jobs that the operator has confirmed.
    at_most: Option<u64>,
    act: Operation,
    rate: Option<f64>,
    note: Note,
}

impl ConfirmedOperation {
    fn check(&self) -> HandlerResult<()> {
        let at_most = self.at_most.ok_or_else(|| Problem::bad_request("set `at_most` to the number of jobs that was counted"))?;
        if self.jobs > at_most {
            let text = format!("there are {} by now, more than the confirmed {at_most}; nothing was changed", job_count(self.jobs));
            return Err(Problem::new(StatusCode::CONFLICT, text));
        }
        if self.rate.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
            return Err(Problem::bad_request("`rate` must be between 0.001 and 1000000 jobs per second"));
        }
        Ok(())
    }

    /// Checks the confirmed number of jobs and starts the operation. Responds when the operation finishes, or after [`RESPONSE_TIMEOUT`].
    async fn run<F>(self, app: &App, start: impl FnOnce(PgPool, RunControl) -> F) -> HandlerResult<Json<BulkResponse>>
    where
        F: Future<Output = Result<BulkOutcome, queue_core::Error>> + Send + 'static,
    {
        self.check()?;
        let Self { jobs, act, rate, note, .. } = self;
        let full = || Problem::unavailable("four bulk operations are in progress; try again later, or stop one on the audit page");
        let slot = app.dashboard.operations.begin(&app.name, note.clone()).ok_or_else(full)?;
        let operation = start(app.pool.clone(), RunControl { note, rate, stop: slot.stop.clone() });
        let mut task = tokio::spawn(async move {
            let swept = operation.await;
            drop(slot);
            if let Err(error) = &swept {
                tracing::warn!(%error, "a bulk operation failed before it was complete");
            }
            swept
        });
        match timeout(RESPONSE_TIMEOUT, &mut task).await {
            Ok(Ok(swept)) => {
                let BulkOutcome { done, cancelling, .. } = swept?;
                let also = if cancelling > 0 { format!(", {} cancelling", job_count(cancelling)) } else { String::new() };
                Ok(Json(BulkResponse {
                    jobs: done + cancelling,
                    goes_on: false,
                    text: format!("{} {}{also}", job_count(done), act.done()),
                }))
            }
            Ok(Err(_)) => Err(Problem::unavailable("the operation failed before it was complete; see the server log")),
            Err(_) => Ok(Json(BulkResponse {
                jobs,
                goes_on: true,
                text: format!("in progress: {}; the audit log shows how far it is", job_count(jobs)),
            })),
        }
    }
}

//! Route that returns attempt statistics over time.

use axum::{Json, extract::State};
use queue_core::{
    Queue,
    operate::{AttemptStatistics, HistoryRange},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{body::QueryParams, job_query::parse_duration};
use crate::dashboard::{
    app::{App, AppState},
    problem::{ErrorResponse, HandlerResult},
};

/// Query parameters of the history: period, step length, queue and job type.
#[derive(Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(in crate::dashboard) struct HistoryQuery {
    /// Length of the period, such as `1h` or `7d`. The period ends now. Maximum: 30 days. Default: one hour.
    #[param(nullable = false)]
    pub(in crate::dashboard) last: Option<String>,
    /// Length of a time step, such as `10m`. Default: a single step for the whole period.
    #[param(nullable = false)]
    pub(in crate::dashboard) step: Option<String>,
    /// Queue whose attempts are counted. Default: all queues.
    #[param(nullable = false)]
    pub(in crate::dashboard) queue: Option<String>,
    /// Job type whose attempts are counted. Default: all job types.
    #[param(rename = "type", nullable = false)]
    #[serde(rename = "type")]
    pub(in crate::dashboard) job_type: Option<String>,
    /// Whether to return separate statistics for each pair of queue and job type. Default: `false`.
    #[param(nullable = false)]
    pub(in crate::dashboard) apart: Option<bool>,
}

impl HistoryQuery {
    fn past(&self) -> HandlerResult<HistoryRange> {
        let mut past = HistoryRange {
            queue: self.queue.clone(),
            job_type: self.job_type.clone(),
            apart: self.apart == Some(true),
            ..HistoryRange::default()
        };
        if let Some(last) = &self.last {
            past.last = parse_duration(last)?;
        }
        past.step = self.step.as_deref().map(parse_duration).transpose()?;
        Ok(past)
    }
}

/// Loads the attempt statistics selected by the query parameters.
pub(in crate::dashboard) async fn load_history(app: &App, query: &HistoryQuery) -> HandlerResult<Vec<AttemptStatistics>> {
    let past = query.past()?;
    Ok(Queue::on(&mut *app.begin_read().await?).store(app.store).history(&past).await?)
}

/// Returns attempt outcomes, run times and start latencies for each time step. With `apart`, each pair of queue and job type has separate
/// statistics.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(HistoryQuery),
    responses((status = 200, body = Vec<AttemptStatistics>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn history(
    State(app): State<AppState>,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> HandlerResult<Json<Vec<AttemptStatistics>>> {
    Ok(Json(load_history(&app, &query).await?))
}

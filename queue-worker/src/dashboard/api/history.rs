//! Routes of stored attempt outcomes over time.

use axum::{Json, extract::State};
use queue_core::operate::{self, Figures, Past};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{body::QueryParams, job_query::parse_duration};
use crate::dashboard::{
    app::{App, AppState},
    problem::{ErrorResponse, HandlerResult},
};

/// Query parameters that select a part of the history.
#[derive(Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(in crate::dashboard) struct HistoryQuery {
    /// Length of the period up to now, such as `1h` or `7d`, at most 30 days. Default: one hour.
    #[param(nullable = false)]
    pub(in crate::dashboard) last: Option<String>,
    /// Length of a step, such as `10m`. Default: a single step for the whole period.
    #[param(nullable = false)]
    pub(in crate::dashboard) step: Option<String>,
    /// Only attempts of jobs in this queue.
    #[param(nullable = false)]
    pub(in crate::dashboard) queue: Option<String>,
    /// Only attempts of jobs of this type.
    #[param(rename = "type", nullable = false)]
    #[serde(rename = "type")]
    pub(in crate::dashboard) job_type: Option<String>,
    /// Whether to report each queue and job type separately.
    #[param(nullable = false)]
    pub(in crate::dashboard) apart: Option<bool>,
}

impl HistoryQuery {
    fn past(&self) -> HandlerResult<Past> {
        let mut past =
            Past { queue: self.queue.clone(), job_type: self.job_type.clone(), apart: self.apart == Some(true), ..Past::default() };
        if let Some(last) = &self.last {
            past.last = parse_duration(last)?;
        }
        past.step = self.step.as_deref().map(parse_duration).transpose()?;
        Ok(past)
    }
}

/// Loads the statistics of the selected part of the history.
pub(in crate::dashboard) async fn load_history(app: &App, query: &HistoryQuery) -> HandlerResult<Vec<Figures>> {
    let past = query.past()?;
    Ok(operate::history(&mut *app.begin_read().await?, app.store, &past).await?)
}

/// Returns attempt outcomes, run times and start latencies by step. With `apart`, they are also reported by queue and job type.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(HistoryQuery),
    responses((status = 200, body = Vec<Figures>), (status = "default", body = ErrorResponse))
)]
pub(super) async fn history(
    State(app): State<AppState>,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> HandlerResult<Json<Vec<Figures>>> {
    Ok(Json(load_history(&app, &query).await?))
}

//! What came of attempts.

use axum::{Json, extract::State};
use queue_core::operate::{self, Figures, Past};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{asked::span, body::Asked};
use crate::dashboard::{
    app::{App, Shared},
    problem::{Answer, Wrong},
};

/// Which part of the past.
#[derive(Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(in crate::dashboard) struct AskedHistory {
    /// How far back, as `1h` or `7d`; at most 30 days. An hour if nothing is said.
    #[param(nullable = false)]
    pub(in crate::dashboard) last: Option<String>,
    /// In steps of so long, as `10m`; else in one.
    #[param(nullable = false)]
    pub(in crate::dashboard) step: Option<String>,
    /// Of this queue.
    #[param(nullable = false)]
    pub(in crate::dashboard) queue: Option<String>,
    /// Of this job type.
    #[param(rename = "type", nullable = false)]
    #[serde(rename = "type")]
    pub(in crate::dashboard) job_type: Option<String>,
    /// Each queue and type apart.
    #[param(nullable = false)]
    pub(in crate::dashboard) apart: Option<bool>,
}

impl AskedHistory {
    fn past(&self) -> Answer<Past> {
        let mut past =
            Past { queue: self.queue.clone(), job_type: self.job_type.clone(), apart: self.apart == Some(true), ..Past::default() };
        if let Some(last) = &self.last {
            past.last = span(last)?;
        }
        past.step = self.step.as_deref().map(span).transpose()?;
        Ok(past)
    }
}

/// The figures of a part of the past.
pub(in crate::dashboard) async fn figures(app: &App, asked: &AskedHistory) -> Answer<Vec<Figures>> {
    let past = asked.past()?;
    Ok(operate::history(&mut *app.look().await?, app.store, &past).await?)
}

/// What came of attempts, how long they took and how long their jobs had waited: by step, and by queue and type if they are wanted apart.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    params(AskedHistory),
    responses((status = 200, body = Vec<Figures>), (status = "default", body = Wrong))
)]
pub(super) async fn history(State(app): State<Shared>, Asked(asked): Asked<AskedHistory>) -> Answer<Json<Vec<Figures>>> {
    Ok(Json(figures(&app, &asked).await?))
}

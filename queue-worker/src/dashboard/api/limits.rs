//! Limits: how many jobs may run at once, or begin in a time.

use std::time::Duration;

use axum::{Json, extract::State};
use queue_core::{
    Limit,
    operate::{self, LimitKey, LimitStatus},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{Said, Told, Who};
use crate::dashboard::{
    app::Shared,
    part::Path,
    problem::{Answer, Problem, Wrong},
};

/// The figures of a limit: how many at once, or how many in a period, or both; what is not said is unbounded.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitWanted {
    /// How many run at once.
    #[serde(default)]
    concurrency: Option<u32>,
    /// How many begin in a period.
    #[serde(default)]
    starts: Option<u32>,
    /// The period, in seconds.
    #[serde(default)]
    period: Option<f64>,
    /// How many begin close together.
    #[serde(default)]
    burst: Option<u32>,
    /// Why, for whoever asks later.
    #[serde(default)]
    reason: Option<String>,
}

/// The limits by name, with what is used and what waits.
#[utoipa::path(get, path = "/api/v1/limits", responses((status = 200, body = Vec<LimitStatus>), (status = "default", body = Wrong)))]
pub(super) async fn list(State(app): State<Shared>) -> Answer<Json<Vec<LimitStatus>>> {
    Ok(Json(operate::limits(&mut *app.look().await?, app.store).await?))
}

/// The keys of a limit by key that hold permits or wait, the busiest first.
#[utoipa::path(
    get,
    path = "/api/v1/limits/{name}/keys",
    params(("name" = String, Path, description = "The limit")),
    responses((status = 200, body = Vec<LimitKey>), (status = "default", body = Wrong))
)]
pub(super) async fn keys(State(app): State<Shared>, Path(name): Path<String>) -> Answer<Json<Vec<LimitKey>>> {
    Ok(Json(operate::limit_keys(&mut *app.look().await?, app.store, &name).await?))
}

/// Sets a limit for all workers, whatever code says of it.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}",
    params(("name" = String, Path, description = "The limit: `type:send_email`, `queue:mail`, or a name that types share")),
    request_body = LimitWanted,
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn set(
    State(app): State<Shared>,
    who: Who,
    Path(name): Path<String>,
    Said(wanted): Said<LimitWanted>,
) -> Answer<Json<Told>> {
    if wanted.concurrency.is_none() && wanted.starts.is_none() {
        return Err(Problem::wrong(
            "say how many may run at once with `concurrency`, or how many may begin in a period with `starts` and `period`",
        ));
    }
    let mut limit = Limit::new();
    limit = wanted.concurrency.into_iter().fold(limit, Limit::concurrency);
    if let Some(starts) = wanted.starts {
        let period = wanted.period.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        limit = limit.rate(starts, period.ok_or_else(|| Problem::wrong("a rate has a period in seconds"))?);
    }
    limit = wanted.burst.into_iter().fold(limit, Limit::burst);
    let mut session = app.change().await?;
    operate::set_limit(&mut *session, app.store, &name, limit, wanted.reason.as_deref()).await?;
    operate::note_act(&mut *session, app.store, &who.note("limited", format!("limit {name}")), 0).await?;
    session.commit().await?;
    Ok(Told::new(format!("the limit {name} is set")))
}

/// Takes away what an operator set, so that code's word holds again.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}/unset",
    params(("name" = String, Path, description = "The limit")),
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn unset(State(app): State<Shared>, who: Who, Path(name): Path<String>) -> Answer<Json<Told>> {
    let mut session = app.change().await?;
    if !operate::unset_limit(&mut *session, app.store, &name).await? {
        return Err(Problem::missing(format!("no operator has set the limit {name}")));
    }
    operate::note_act(&mut *session, app.store, &who.note("unlimited", format!("limit {name}")), 0).await?;
    session.commit().await?;
    Ok(Told::new(format!("what code says of the limit {name} holds again")))
}

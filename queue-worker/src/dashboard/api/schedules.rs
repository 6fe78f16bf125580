//! Schedules: what the clock enqueues.

use axum::{Json, extract::State};
use queue_core::{
    operate,
    schedule::{self, Fire, ScheduleRecord},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{Said, Told, Who};
use crate::dashboard::{
    app::Shared,
    part::Path,
    problem::{Answer, Wrong},
};

/// So many ticks are told.
const FIRES: u16 = 50;

/// What is to be done to a schedule.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(super) enum ScheduleWanted {
    /// It has no ticks until it is resumed.
    Pause,
    /// It goes on with the next tick.
    Resume,
    /// A job at once.
    Run,
    /// The next tick has no job.
    Skip,
}

/// The schedules by name.
#[utoipa::path(get, path = "/api/v1/schedules", responses((status = 200, body = Vec<ScheduleRecord>), (status = "default", body = Wrong)))]
pub(super) async fn list(State(app): State<Shared>) -> Answer<Json<Vec<ScheduleRecord>>> {
    Ok(Json(schedule::list(&mut *app.look().await?, app.store).await?))
}

/// What came of the last ticks of a schedule, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/schedules/{name}/fires",
    params(("name" = String, Path, description = "The schedule")),
    responses((status = 200, body = Vec<Fire>), (status = "default", body = Wrong))
)]
pub(super) async fn fires(State(app): State<Shared>, Path(name): Path<String>) -> Answer<Json<Vec<Fire>>> {
    Ok(Json(schedule::fires(&mut *app.look().await?, app.store, &name, FIRES).await?))
}

/// Pauses or resumes a schedule, runs it now, or skips its next tick.
#[utoipa::path(
    post,
    path = "/api/v1/schedules/{name}/act",
    params(("name" = String, Path, description = "The schedule")),
    request_body = ScheduleWanted,
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn act(
    State(app): State<Shared>,
    who: Who,
    Path(name): Path<String>,
    Said(wanted): Said<ScheduleWanted>,
) -> Answer<Json<Told>> {
    let (mut session, store) = (app.change().await?, app.store);
    let (word, text) = match wanted {
        ScheduleWanted::Pause => ("paused", schedule::pause(&mut *session, store, &name).await.map(|()| format!("{name} is paused"))?),
        ScheduleWanted::Resume => ("resumed", schedule::resume(&mut *session, store, &name).await.map(|()| format!("{name} is resumed"))?),
        ScheduleWanted::Run => {
            ("run", schedule::run_now(&mut *session, store, &name).await.map(|job| format!("job {job} of {name} is ready"))?)
        }
        ScheduleWanted::Skip => {
            let tick = schedule::skip_next(&mut *session, store, &name).await?;
            ("skipped", format!("the tick of {} is skipped", tick.format("%Y-%m-%d %H:%M:%SZ")))
        }
    };
    operate::note_act(&mut *session, store, &who.note(word, format!("schedule {name}")), 0).await?;
    session.commit().await?;
    Ok(Told::new(text))
}

//! Queues: what waits in them, what is paused, how much may wait.

use axum::{Json, extract::State};
use queue_core::operate::{self, Capacity, Scope, WorkerRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{Said, Told, Who};
use crate::dashboard::{
    app::Shared,
    part::Path,
    problem::{Answer, Problem, Wrong},
};

/// Queues, and how many jobs may wait in them.
#[derive(Serialize, ToSchema)]
pub(super) struct Queues {
    /// The queues that there are, by name.
    queues: Vec<String>,
    /// Those that have a capacity.
    capacities: Vec<Capacity>,
}

/// The queues by name. How many jobs wait in each is in the overview.
#[utoipa::path(get, path = "/api/v1/queues", responses((status = 200, body = Queues), (status = "default", body = Wrong)))]
pub(super) async fn queues(State(app): State<Shared>) -> Answer<Json<Queues>> {
    let mut session = app.look().await?;
    let queues = operate::queues(&mut *session, app.store).await?;
    Ok(Json(Queues { queues, capacities: operate::capacities(&mut *session, app.store).await? }))
}

/// The workers that announced themselves, and how many jobs each holds.
#[utoipa::path(get, path = "/api/v1/workers", responses((status = 200, body = Vec<WorkerRecord>), (status = "default", body = Wrong)))]
pub(super) async fn workers(State(app): State<Shared>) -> Answer<Json<Vec<WorkerRecord>>> {
    Ok(Json(operate::workers(&mut *app.look().await?, app.store).await?))
}

/// What is to be paused or resumed.
#[derive(Deserialize, ToSchema)]
pub(super) struct PauseWanted {
    /// This queue only.
    #[serde(default)]
    queue: Option<String>,
    /// This job type only.
    #[serde(default)]
    job_type: Option<String>,
    /// Neither: everything.
    #[serde(default)]
    everything: bool,
    /// Why, for whoever asks later.
    #[serde(default)]
    reason: Option<String>,
}

impl PauseWanted {
    fn scope(&self) -> Answer<Scope> {
        let scope = Scope { queue: self.queue.clone(), job_type: self.job_type.clone() };
        if (scope == Scope::EVERYTHING) == self.everything {
            return Ok(scope);
        }
        Err(Problem::wrong("say which queue, which job type, or `everything`"))
    }
}

/// Lets workers begin nothing of it. What runs goes on.
#[utoipa::path(post, path = "/api/v1/pause", request_body = PauseWanted, responses((status = 200, body = Told), (status = "default", body = Wrong)))]
pub(super) async fn pause(State(app): State<Shared>, who: Who, Said(wanted): Said<PauseWanted>) -> Answer<Json<Told>> {
    let scope = wanted.scope()?;
    let mut session = app.change().await?;
    operate::pause(&mut *session, app.store, &scope, wanted.reason.as_deref()).await?;
    operate::note_act(&mut *session, app.store, &who.note("paused", scope.to_string()), 0).await?;
    session.commit().await?;
    Ok(Told::new(format!("{scope} is paused")))
}

/// Ends exactly that pause.
#[utoipa::path(post, path = "/api/v1/resume", request_body = PauseWanted, responses((status = 200, body = Told), (status = "default", body = Wrong)))]
pub(super) async fn resume(State(app): State<Shared>, who: Who, Said(wanted): Said<PauseWanted>) -> Answer<Json<Told>> {
    let scope = wanted.scope()?;
    let mut session = app.change().await?;
    if !operate::resume(&mut *session, app.store, &scope).await? {
        return Err(Problem::missing(format!("{scope} is not paused")));
    }
    operate::note_act(&mut *session, app.store, &who.note("resumed", scope.to_string()), 0).await?;
    session.commit().await?;
    Ok(Told::new(format!("{scope} is resumed")))
}

/// How many jobs may wait.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityWanted {
    /// So many; any number if it is null.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required)]
    capacity: Option<u64>,
}

/// Gives a queue a capacity, or takes it away.
#[utoipa::path(
    post,
    path = "/api/v1/queues/{queue}/capacity",
    params(("queue" = String, Path, description = "The queue")),
    request_body = CapacityWanted,
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn set_capacity(
    State(app): State<Shared>,
    who: Who,
    Path(queue): Path<String>,
    Said(CapacityWanted { capacity }): Said<CapacityWanted>,
) -> Answer<Json<Told>> {
    let mut session = app.change().await?;
    operate::set_capacity(&mut *session, app.store, &queue, capacity).await?;
    let text = capacity.map_or_else(|| format!("queue {queue} has no capacity"), |most| format!("queue {queue} has a capacity of {most}"));
    operate::note_act(&mut *session, app.store, &who.note("capacity", text.clone()), 0).await?;
    session.commit().await?;
    Ok(Told::new(text))
}

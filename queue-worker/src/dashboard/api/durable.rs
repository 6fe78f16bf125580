//! What a durable job has done, whom it has spawned and mapped, what it was sent; and a signal to it.

use axum::{Json, extract::State};
use queue_core::{
    JobId, JobRef,
    operate::{self, JobChild, JobGather, JobRecord, JobSignal, JobStep, Signalled},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{
    body::{Said, Told, Who},
    jobs::job_id,
};
use crate::{
    dashboard::{
        app::{Session, Shared},
        part::Path,
        problem::{Answer, Problem, Wrong},
    },
    program,
};

/// A job that is there, in a session that only reads.
async fn found(app: &Shared, id: &str) -> Answer<(Session, JobRecord)> {
    let (id, mut session) = (job_id(id)?, app.look().await?);
    let job = JobRef::from_id(id).in_store(app.store).find_without_payload(&mut *session).await?;
    Ok((session, job))
}

/// What a durable job has done so far: the first thousand of its steps, without what they gave. None of a job that is not durable.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/steps",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobStep>), (status = "default", body = Wrong))
)]
pub(super) async fn steps(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<JobStep>>> {
    let (mut session, job) = found(&app, &id).await?;
    Ok(Json(operate::steps(&mut *session, app.store, job.id).await?))
}

/// Whom a job has spawned, and who has spawned it.
#[derive(Serialize, ToSchema)]
pub(super) struct Family {
    /// The job that has spawned it, if it is a child.
    parent: Option<JobId>,
    /// Its children, in the order in which they were spawned: the first thousand.
    children: Vec<JobChild>,
}

/// The job that has spawned this one.
pub(in crate::dashboard) fn parent_of(job: &JobRecord) -> Option<JobId> {
    let system: Value = serde_json::from_str(job.system.as_ref()?.get()).ok()?;
    system.get("child_of")?.as_str()?.parse().ok()
}

/// Whom a durable job has spawned, and who has spawned this one.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/children",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Family), (status = "default", body = Wrong))
)]
pub(super) async fn children(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Family>> {
    let (mut session, job) = found(&app, &id).await?;
    Ok(Json(Family { parent: parent_of(&job), children: operate::children(&mut *session, app.store, job.id).await? }))
}

/// What a durable job has mapped, and how many jobs of each map came to what: the first thousand, by the names of the steps.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/gathers",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobGather>), (status = "default", body = Wrong))
)]
pub(super) async fn gathers(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<JobGather>>> {
    let (mut session, job) = found(&app, &id).await?;
    Ok(Json(operate::gathers(&mut *session, app.store, job.id).await?))
}

/// What a durable job was sent and has not received, without what it says: the first thousand signals, in the order in which they came.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{id}/signals",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, body = Vec<JobSignal>), (status = "default", body = Wrong))
)]
pub(super) async fn signals(State(app): State<Shared>, Path(id): Path<String>) -> Answer<Json<Vec<JobSignal>>> {
    let (mut session, job) = found(&app, &id).await?;
    Ok(Json(operate::signals(&mut *session, app.store, job.id).await?))
}

/// A signal.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToSend {
    /// Its name, as the job asks for it: 1 to 200 bytes.
    name: String,
    /// What it says; nothing if it is left out.
    #[schema(nullable = false)]
    payload: Option<Value>,
    /// The same as a text that is JSON, from whoever cannot say each number: one that would not be kept is refused.
    #[schema(nullable = false)]
    payload_json: Option<String>,
}

impl ToSend {
    /// What it says, as it is stored.
    fn said(self) -> Answer<(String, Box<RawValue>)> {
        let text = match (self.payload, self.payload_json) {
            (Some(_), Some(_)) => return Err(Problem::wrong("a signal says one thing: `payload` or `payload_json`")),
            (None, Some(text)) => text,
            (payload, None) => payload.unwrap_or_default().to_string(),
        };
        let payload = RawValue::from_string(text.trim().to_owned()).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Problem::wrong(format!("the payload is no JSON, at line {line}, column {column}; a text stands in double quotes"))
        })?;
        Ok((self.name, payload))
    }
}

/// Sends a signal to a durable job. Each is received once, in the order in which they were sent.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{id}/signals",
    params(("id" = String, Path, description = "The job's id")),
    request_body = ToSend,
    responses((status = 200, body = Told), (status = "default", body = Wrong))
)]
pub(super) async fn signal(State(app): State<Shared>, who: Who, Path(id): Path<String>, Said(said): Said<ToSend>) -> Answer<Json<Told>> {
    let (id, (name, payload)) = (job_id(&id)?, said.said()?);
    let mut session = app.change().await?;
    let job = JobRef::from_id(id).in_store(app.store);
    match job.signal(&mut *session, &name, &payload).await? {
        Signalled::Sent => {}
        Signalled::Over => return Err(Problem::conflict(format!("job {id} is over, and receives nothing any more"))),
        _ => return Err(Problem::missing(format!("there is no job {id}"))),
    }
    // Rolled back with the session's transaction.
    if program::ignores_signals(&job.find_without_payload(&mut *session).await?.job_type) {
        return Err(Problem::conflict(format!("job {id} is not durable, and receives no signals")));
    }
    operate::note_act(&mut *session, app.store, &who.note("signalled", format!("job {id}: {name}")), 1).await?;
    session.commit().await?;
    Ok(Told::new(format!("sent {name} to job {id}")))
}

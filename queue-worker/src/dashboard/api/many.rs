//! What is done to many jobs: first counted, then done to no more than that, and noted.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use queue_core::operate::{self, Act, ActAll, Note, Swept};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::{
    asked::AskedJobs,
    body::{Said, Told, Who},
    jobs::Wanted,
};
use crate::dashboard::{
    acts::ActOnItsWay,
    app::{App, Shared},
    problem::{Answer, Problem, Wrong},
};

/// One that takes longer goes on after it was answered.
const ANSWERED_AFTER: Duration = Duration::from_secs(3);

/// What is to be done to which jobs.
#[derive(Deserialize, ToSchema)]
pub(super) struct ManyWanted {
    #[serde(flatten)]
    wanted: Wanted,
    /// To which, and `{}` for all; `before` and `limit` do not count.
    filter: AskedJobs,
    /// Not if there are more by now. Not wanted where they are only counted.
    #[serde(default)]
    at_most: Option<u64>,
    /// So many a second at most; as fast as it goes if nothing is said.
    #[serde(default)]
    rate: Option<f64>,
}

/// A group of dead letters, and what is to be done to it.
#[derive(Deserialize, ToSchema)]
pub(super) struct GroupWanted {
    #[serde(flatten)]
    wanted: Wanted,
    /// The group's type.
    job_type: String,
    /// What its errors have in common.
    error: String,
    /// Not if there are more by now. Not wanted where they are only counted.
    #[serde(default)]
    at_most: Option<u64>,
    /// So many a second at most; as fast as it goes if nothing is said.
    #[serde(default)]
    rate: Option<f64>,
}

/// How many jobs.
#[derive(Serialize, ToSchema)]
pub(super) struct Many {
    /// How many it would be, or was.
    jobs: u64,
    /// Whether it goes on: then so many are to be done, and the audit tells how many are.
    goes_on: bool,
    /// The same in a sentence.
    text: String,
}

/// Counts to how many jobs something would be done. More than a million are refused, or than the dashboard was told.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/count",
    request_body = ManyWanted,
    responses((status = 200, body = Many), (status = "default", body = Wrong))
)]
pub(super) async fn count(State(app): State<Shared>, Said(many): Said<ManyWanted>) -> Answer<Json<Many>> {
    let (act, filter) = (many.wanted.act()?, many.filter.filter()?);
    let most = app.door.options.most_jobs;
    let jobs = operate::count_matching_up_to(&mut *app.look().await?, app.store, &filter, act, most).await?;
    if jobs > most { Err(too_many(most)) } else { Ok(would_be(jobs, act)) }
}

fn too_many(most: u64) -> Problem {
    let text = format!("these are more than {most} jobs: choose fewer, or let the command line do it, which takes any number");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text)
}

/// Does something to all jobs of a filter. What takes longer than three seconds goes on, and is counted in the audit.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/act",
    request_body = ManyWanted,
    responses((status = 200, body = Many), (status = "default", body = Wrong))
)]
pub(super) async fn act(State(app): State<Shared>, who: Who, Said(many): Said<ManyWanted>) -> Answer<Json<Many>> {
    app.check_changes()?;
    let (act, filter) = (many.wanted.act()?, many.filter.filter()?);
    let at_most = many.at_most.unwrap_or_default();
    if at_most > app.door.options.most_jobs {
        return Err(too_many(app.door.options.most_jobs));
    }
    let jobs = operate::count_matching_up_to(&mut *app.look().await?, app.store, &filter, act, at_most).await?;
    let what = many.filter.text();
    let note = who.note(act.done(), if what.is_empty() { "all jobs".to_owned() } else { format!("jobs of {what}") });
    let (store, rate) = (app.store, many.rate);
    let confirmed = Confirmed { jobs, at_most: many.at_most, act, rate, note };
    let doing =
        move |pool, steered: Steered| async move { steered.steer(operate::act_all(&pool, store, &filter, act).at_most(at_most)).await };
    confirmed.run(&app, doing).await
}

/// Counts the dead letters of a group.
#[utoipa::path(
    post,
    path = "/api/v1/dead/count",
    request_body = GroupWanted,
    responses((status = 200, body = Many), (status = "default", body = Wrong))
)]
pub(super) async fn count_group(State(app): State<Shared>, Said(group): Said<GroupWanted>) -> Answer<Json<Many>> {
    let act = group.act()?;
    Ok(would_be(group.ids(&app).await?.len() as u64, act))
}

/// Requeues or discards the dead letters of a group: those among the ones that died last.
#[utoipa::path(
    post,
    path = "/api/v1/dead/act",
    request_body = GroupWanted,
    responses((status = 200, body = Many), (status = "default", body = Wrong))
)]
pub(super) async fn act_on_group(State(app): State<Shared>, who: Who, Said(group): Said<GroupWanted>) -> Answer<Json<Many>> {
    app.check_changes()?;
    let (act, ids) = (group.act()?, group.ids(&app).await?);
    let note = who.note(act.done(), format!("dead letters of {}: {}", group.job_type, group.error));
    let (store, rate) = (app.store, group.rate);
    let confirmed = Confirmed { jobs: ids.len() as u64, at_most: group.at_most, act, rate, note };
    confirmed.run(&app, move |pool, steered: Steered| async move { steered.steer(operate::act_on(&pool, store, ids, act)).await }).await
}

/// The acts on many jobs that are on their way in this process, the oldest first.
#[utoipa::path(get, path = "/api/v1/acts", responses((status = 200, body = Vec<ActOnItsWay>), (status = "default", body = Wrong)))]
pub(super) async fn on_their_way(State(app): State<Shared>) -> Json<Vec<ActOnItsWay>> {
    Json(app.door.acts.list(&app.name))
}

/// Which is to end.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopWanted {
    /// Its number.
    number: u64,
}

/// Lets an act on many jobs end after the batch that is on its way. What it has done stays done.
#[utoipa::path(post, path = "/api/v1/acts/stop", request_body = StopWanted, responses((status = 200, body = Told), (status = "default", body = Wrong)))]
pub(super) async fn stop(State(app): State<Shared>, who: Who, Said(StopWanted { number }): Said<StopWanted>) -> Answer<Json<Told>> {
    app.check_changes()?;
    let stopped = app.door.acts.stop(&app.name, number).ok_or_else(|| Problem::missing("this act is over, or is not of this process"))?;
    let mut session = app.change().await?;
    operate::note_act(&mut *session, app.store, &who.note("stopped", format!("{}: {}", stopped.act, stopped.what)), 0).await?;
    session.commit().await?;
    Ok(Told::new("it ends after the batch that is on its way"))
}

impl GroupWanted {
    fn act(&self) -> Answer<Act> {
        match self.wanted.act()? {
            act @ (Act::Requeue | Act::ForceRequeue | Act::Discard) => Ok(act),
            _ => Err(Problem::wrong("dead letters are requeued or discarded")),
        }
    }

    async fn ids(&self, app: &App) -> Answer<Vec<queue_core::JobId>> {
        let found = operate::dead_groups(&mut *app.look().await?, app.store).await?;
        let group = found.groups.into_iter().find(|group| group.job_type == self.job_type && group.error == self.error);
        Ok(group.map(|group| group.ids).unwrap_or_default())
    }
}

fn would_be(jobs: u64, act: Act) -> Json<Many> {
    Json(Many { jobs, goes_on: false, text: format!("{} would be {}", of(jobs), act.done()) })
}

fn of(jobs: u64) -> String {
    if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") }
}

/// How an act goes on by itself.
struct Steered {
    note: Note,
    rate: Option<f64>,
    stop: CancellationToken,
}

impl Steered {
    async fn steer(self, acting: ActAll<'_>) -> Result<Swept, queue_core::Error> {
        let acting = acting.noted(self.note).until(self.stop.cancelled_owned());
        match self.rate {
            Some(rate) => acting.rate(rate).await,
            None => acting.await,
        }
    }
}

/// An act on many jobs that somebody has seen the number of.
struct Confirmed {
    /// So many there are now.
    jobs: u64,
    /// So many there were.
    at_most: Option<u64>,
    act: Act,
    rate: Option<f64>,
    note: Note,
}

impl Confirmed {
    fn check(&self) -> Answer<()> {
        let at_most = self.at_most.ok_or_else(|| Problem::wrong("say with `at_most` how many there were when they were counted"))?;
        if self.jobs > at_most {
            let text = format!("by now there are {}, which is more than {at_most}; nothing was done", of(self.jobs));
            return Err(Problem::new(StatusCode::CONFLICT, text));
        }
        if self.rate.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
            return Err(Problem::wrong("a rate is from 0.001 to 1000000 a second"));
        }
        Ok(())
    }

    /// Begins it, if it is what was confirmed, and answers when it is over or takes long.
    async fn run<F>(self, app: &App, doing: impl FnOnce(PgPool, Steered) -> F) -> Answer<Json<Many>>
    where
        F: Future<Output = Result<Swept, queue_core::Error>> + Send + 'static,
    {
        self.check()?;
        let Self { jobs, act, rate, note, .. } = self;
        let full =
            || Problem::busy("four other acts on many jobs are on their way; try again, or stop one of them on the page of the audit");
        let place = app.door.acts.begin(&app.name, note.clone()).ok_or_else(full)?;
        let doing = doing(app.pool.clone(), Steered { note, rate, stop: place.stop.clone() });
        let mut task = tokio::spawn(async move {
            let swept = doing.await;
            drop(place);
            if let Err(error) = &swept {
                tracing::warn!(%error, "an act on many jobs ended half-way");
            }
            swept
        });
        match timeout(ANSWERED_AFTER, &mut task).await {
            Ok(Ok(swept)) => {
                let Swept { done, cancelling, .. } = swept?;
                let also = if cancelling > 0 { format!(", {} cancelling", of(cancelling)) } else { String::new() };
                Ok(Json(Many { jobs: done + cancelling, goes_on: false, text: format!("{} {}{also}", of(done), act.done()) }))
            }
            Ok(Err(_)) => Err(Problem::busy("this failed half-way; the log says why")),
            Err(_) => Ok(Json(Many { jobs, goes_on: true, text: format!("on its way: {}; the audit tells how far it is", of(jobs)) })),
        }
    }
}

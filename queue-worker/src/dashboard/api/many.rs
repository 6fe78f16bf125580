//! What is done to many jobs: first counted, then done to no more than that, and noted.

use std::{sync::LazyLock, time::Duration};

use axum::{Json, extract::State};
use queue_core::operate::{self, Act, ActAll, Swept};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::{sync::Semaphore, time::timeout};
use utoipa::ToSchema;

use super::{
    asked::AskedJobs,
    body::{Said, Who},
    jobs::Wanted,
};
use crate::dashboard::{
    app::{App, Shared},
    problem::{Answer, Problem, Wrong},
};

/// So many acts on many jobs go on at a time in a process.
static AT_ONCE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(4));

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

/// Counts to how many jobs something would be done.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/count",
    request_body = ManyWanted,
    responses((status = 200, body = Many), (status = "default", body = Wrong))
)]
pub(super) async fn count(State(app): State<Shared>, Said(many): Said<ManyWanted>) -> Answer<Json<Many>> {
    let (act, filter) = (many.wanted.act()?, many.filter.filter()?);
    let jobs = operate::count_matching(&mut *app.look().await?, app.store, &filter, act).await?;
    Ok(would_be(jobs, act))
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
    let jobs = operate::count_matching_up_to(&mut *app.look().await?, app.store, &filter, act, at_most).await?;
    let what = many.filter.text();
    let note = who.note(act.done(), if what.is_empty() { "all jobs".to_owned() } else { format!("jobs of {what}") });
    let store = app.store;
    run(&app, jobs, many.at_most, act, many.rate, move |pool| {
        let (filter, note) = (filter.clone(), note.clone());
        async move { finished(operate::act_all(&pool, store, &filter, act).noted(note).at_most(at_most), many.rate).await }
    })
    .await
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
    run(&app, ids.len() as u64, group.at_most, act, rate, move |pool| async move {
        finished(operate::act_on(&pool, store, ids, act).noted(note), rate).await
    })
    .await
}

impl GroupWanted {
    fn act(&self) -> Answer<Act> {
        match self.wanted.act()? {
            act @ (Act::Requeue | Act::Discard) => Ok(act),
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

/// Begins it, if it is what was confirmed, and answers when it is over or takes long.
async fn run<F>(
    app: &App,
    jobs: u64,
    at_most: Option<u64>,
    act: Act,
    rate: Option<f64>,
    doing: impl FnOnce(PgPool) -> F,
) -> Answer<Json<Many>>
where
    F: Future<Output = Result<Swept, queue_core::Error>> + Send + 'static,
{
    let at_most = at_most.ok_or_else(|| Problem::wrong("say with `at_most` how many there were when they were counted"))?;
    if jobs > at_most {
        let text = format!("by now there are {}, which is more than {at_most}; nothing was done", of(jobs));
        return Err(Problem::new(axum::http::StatusCode::CONFLICT, text));
    }
    if rate.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
        return Err(Problem::wrong("a rate is from 0.001 to 1000000 a second"));
    }
    let place = AT_ONCE.try_acquire().map_err(|_| Problem::busy("four other acts on many jobs are on their way; try again"))?;
    let doing = doing(app.pool.clone());
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

async fn finished(acting: ActAll<'_>, rate: Option<f64>) -> Result<Swept, queue_core::Error> {
    match rate {
        Some(rate) => acting.rate(rate).await,
        None => acting.await,
    }
}

//! How many jobs are in each of many stores. One that fails, or has not answered in time, is told of beside the others and holds none of them up.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use queue_core::{
    JobState,
    operate::{self, StateCount},
};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};
use utoipa::ToSchema;

use super::{app::Shared, problem::Problem, way::path_of};

/// Many stores in figures.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct StoresOverview {
    /// Each store, by name.
    pub(super) stores: Vec<StoreInFigures>,
    /// How many jobs there are in all of them, by state: at least so many where `partial` is set, as it is if a store did not answer.
    pub(super) totals: Vec<StateCount>,
    /// How many stores did not answer.
    pub(super) silent: usize,
}

/// One of many stores in figures.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct StoreInFigures {
    /// What it goes by.
    pub(super) name: String,
    /// Its schema.
    pub(super) schema: String,
    /// Below this path, from where this dashboard is, it has its own pages and its own API.
    pub(super) path: String,
    /// How many jobs it has, by state; nothing if it did not answer.
    pub(super) totals: Vec<StateCount>,
    /// Why it did not answer.
    pub(super) error: Option<String>,
    /// When it was asked last, it did not.
    #[serde(skip)]
    is_silent: bool,
}

/// A store that has not answered by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many stores of a database are asked at a time: it has one more connection for whoever looks at a store.
const TOGETHER: usize = 2;

/// Counts in each of these, those last that were silent at the last count: lest they take the time of those that answer. Databases are asked beside each other, so that one that is away takes its own stores' time only.
pub(super) async fn count_each(apps: impl Iterator<Item = Shared>, last: Option<&StoresOverview>) -> StoresOverview {
    let silent: HashSet<&str> =
        last.into_iter().flat_map(|last| &last.stores).filter(|store| store.is_silent).map(|store| &*store.name).collect();
    let was_silent = |app: &Shared| silent.contains(&*app.name);
    let mut databases: Vec<Vec<Shared>> = Vec::new();
    for app in apps {
        match databases.iter_mut().find(|known| known[0].shares_with(&app)) {
            Some(known) => known.push(app),
            None => databases.push(vec![app]),
        }
    }
    for apps in &mut databases {
        apps.sort_by_cached_key(was_silent);
    }
    let until = Instant::now() + PATIENCE;
    let of_each = |apps| stream::iter(apps).map(|app| ask(was_silent(&app), app, until)).buffer_unordered(TOGETHER).collect::<Vec<_>>();
    let mut found: Vec<_> = join_all(databases.into_iter().map(of_each)).await.into_iter().flatten().collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    StoresOverview::new(found)
}

/// What is late goes on to its own end: a transaction that is left while it begins would be in the way of whoever has its connection next.
async fn ask(was_silent: bool, app: Shared, until: Instant) -> StoreInFigures {
    let (name, schema, path) = (app.name.to_string(), app.store.schema().to_owned(), path_of(&app.name));
    let late = || Problem::busy("it has not answered within ten seconds");
    let is_asked = Instant::now() < until;
    let answer = if is_asked {
        let asked = tokio::spawn(async move {
            let mut session = app.look().await?;
            let counts =
                timeout(PATIENCE, operate::busiest(&mut *session, app.store, 1)).await.map_err(|_| Problem::busy("it is silent"))?;
            Ok(counts?.totals)
        });
        match timeout_at(until, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Problem::busy("this failed; the log says why")),
            Err(_) => Err(late()),
        }
    } else {
        Err(late())
    };
    let (totals, error) = answer.map_or_else(|problem: Problem| (Vec::new(), Some(problem.text)), |totals| (totals, None));
    let is_silent = if is_asked { error.is_some() } else { was_silent };
    StoreInFigures { name, schema, path, totals, error, is_silent }
}

impl StoresOverview {
    fn new(stores: Vec<StoreInFigures>) -> Self {
        let silent = stores.iter().filter(|store| store.error.is_some()).count();
        let mut sums: BTreeMap<JobState, StateCount> = BTreeMap::new();
        for count in stores.iter().flat_map(|store| &store.totals) {
            let add = |sum: &mut StateCount| (sum.jobs, sum.partial) = (sum.jobs + count.jobs, sum.partial | count.partial);
            sums.entry(count.state).and_modify(add).or_insert_with(|| count.clone());
        }
        for sum in sums.values_mut() {
            sum.partial |= silent > 0;
        }
        Self { stores, totals: sums.into_values().collect(), silent }
    }
}

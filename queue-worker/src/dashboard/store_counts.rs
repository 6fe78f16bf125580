//! Counts the jobs in each store of a roster. A store that fails or times out is listed with its error and does not delay the other stores.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use queue_core::{JobState, Queue, operate::StateCount};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};
use utoipa::ToSchema;

use super::{app::AppState, problem::Problem, request_context::store_path};

/// Stores of a dashboard, with their job counts.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct StoresOverview {
    /// Stores, sorted by name.
    pub(super) stores: Vec<StoreSummary>,
    /// Number of jobs in all stores, by state. A count is a lower bound if its `partial` is `true`. If a store did not respond, all
    /// counts are lower bounds.
    pub(super) totals: Vec<StateCount>,
    /// Number of stores that did not respond.
    pub(super) silent: usize,
}

/// Store with its job counts.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct StoreSummary {
    /// Name of the store in the roster.
    pub(super) name: String,
    /// Schema of the store.
    pub(super) schema: String,
    /// Path of the store's pages and API, relative to the dashboard.
    pub(super) path: String,
    /// Number of jobs by state. Empty if the store did not respond.
    pub(super) totals: Vec<StateCount>,
    /// Reason why the store did not respond, or `None` if it responded.
    pub(super) error: Option<String>,
    /// Whether the store failed or timed out the last time that it was queried. A count that times out before it queries the store sets
    /// `error`, but does not change this flag.
    #[serde(skip)]
    is_silent: bool,
}

/// Timeout for counting the jobs of all stores.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of stores of one database that are queried in parallel. The dashboard has three connections to each database, and one
/// remains for requests to single stores.
const QUERIES_PER_DATABASE: usize = 2;

/// Counts the jobs of each store. Stores that did not respond to the previous count are queried last, so that they do not use up the time
/// of the other stores. Databases are queried in parallel, so an unreachable database delays only its own stores.
pub(super) async fn count_stores(apps: impl Iterator<Item = AppState>, last: Option<&StoresOverview>) -> StoresOverview {
    let silent: HashSet<&str> =
        last.into_iter().flat_map(|last| &last.stores).filter(|store| store.is_silent).map(|store| &*store.name).collect();
    let was_silent = |app: &AppState| silent.contains(&*app.name);
    let mut databases: Vec<Vec<AppState>> = Vec::new();
    for app in apps {
        match databases.iter_mut().find(|known| known[0].shares_connections_with(&app)) {
            Some(known) => known.push(app),
            None => databases.push(vec![app]),
        }
    }
    for apps in &mut databases {
        apps.sort_by_cached_key(was_silent);
    }
    let until = Instant::now() + COUNT_TIMEOUT;
    let of_each = |apps| {
        stream::iter(apps).map(|app| count_store(was_silent(&app), app, until)).buffer_unordered(QUERIES_PER_DATABASE).collect::<Vec<_>>()
    };
    let mut found: Vec<_> = join_all(databases.into_iter().map(of_each)).await.into_iter().flatten().collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    StoresOverview::new(found)
}

/// Counts the jobs of one store. After a timeout, the query still runs to completion in the background. Abandoning a transaction while it
/// begins would break the connection for its next user.
async fn count_store(was_silent: bool, app: AppState, until: Instant) -> StoreSummary {
    let (name, schema, path) = (app.name.to_string(), app.store.schema().to_owned(), store_path(&app.name));
    let late = || Problem::unavailable("no response within 10 seconds");
    let is_in_time = Instant::now() < until;
    let answer = if is_in_time {
        let query = tokio::spawn(async move {
            let mut session = app.begin_read().await?;
            let counts = timeout(COUNT_TIMEOUT, Queue::on(&mut session).store(app.store).busiest(1))
                .await
                .map_err(|_| Problem::unavailable("the query timed out"))?;
            Ok(counts?.totals)
        });
        match timeout_at(until, query).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Problem::unavailable("internal error; see the server log")),
            Err(_) => Err(late()),
        }
    } else {
        Err(late())
    };
    let (totals, error) = answer.map_or_else(|problem: Problem| (Vec::new(), Some(problem.text)), |totals| (totals, None));
    let is_silent = if is_in_time { error.is_some() } else { was_silent };
    StoreSummary { name, schema, path, totals, error, is_silent }
}

impl StoresOverview {
    fn new(stores: Vec<StoreSummary>) -> Self {
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

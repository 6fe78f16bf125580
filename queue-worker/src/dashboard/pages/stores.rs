//! Home page of a dashboard for many stores. Shows job counts by store and state.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{JobState, operate::StateCount};

use super::frame::{Frame, render};
use crate::dashboard::{display, problem::HandlerResult, store_counts::StoreSummary, stores::StoresState};

#[derive(Template)]
#[template(path = "stores.html")]
struct StoresPage {
    frame: Frame,
    totals: Vec<StateCell>,
    stores: Vec<StoreRow>,
    silent: usize,
}

/// Table cell with the number of jobs in one state, for one store or for all stores.
struct StateCell {
    state: &'static str,
    count: String,
    is_some: bool,
}

struct StoreRow {
    name: String,
    schema: String,
    path: String,
    counts: Vec<StateCell>,
    error: Option<String>,
}

impl StoreRow {
    fn new(store: &StoreSummary) -> Self {
        let StoreSummary { name, schema, path, totals, error, .. } = store.clone();
        Self { name, schema, path, counts: cells(&totals), error }
    }
}

fn cells(totals: &[StateCount]) -> Vec<StateCell> {
    let cell = |state: JobState| {
        let total = totals.iter().find(|total| total.state == state);
        let (jobs, partial) = total.map(|total| (total.jobs, total.partial)).unwrap_or_default();
        StateCell { state: state.name(), count: display::count(jobs, partial), is_some: jobs > 0 }
    };
    JobState::ALL.map(cell).into()
}

pub(super) async fn page(State(stores): State<StoresState>, frame: Frame) -> HandlerResult<Html<String>> {
    let overview = stores.count().await;
    render(&StoresPage {
        frame,
        totals: cells(&overview.totals),
        stores: overview.stores.iter().map(StoreRow::new).collect(),
        silent: overview.silent,
    })
}

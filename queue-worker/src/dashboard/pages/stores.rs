//! The first page over many stores: how many jobs are where, in each of them.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{JobState, operate::StateCount};

use super::frame::{Frame, page as write};
use crate::dashboard::{counted::StoreInFigures, problem::Answer, show, stores::SharedStores};

#[derive(Template)]
#[template(path = "stores.html")]
struct StoresPage {
    frame: Frame,
    totals: Vec<Cell>,
    stores: Vec<Row>,
    silent: usize,
}

/// How many jobs are in a state.
struct Cell {
    state: &'static str,
    count: String,
    is_some: bool,
}

struct Row {
    name: String,
    schema: String,
    path: String,
    counts: Vec<Cell>,
    error: Option<String>,
}

impl Row {
    fn new(store: &StoreInFigures) -> Self {
        let StoreInFigures { name, schema, path, totals, error, .. } = store.clone();
        Self { name, schema, path, counts: cells(&totals), error }
    }
}

fn cells(totals: &[StateCount]) -> Vec<Cell> {
    let cell = |state: JobState| {
        let total = totals.iter().find(|total| total.state == state);
        let (jobs, partial) = total.map(|total| (total.jobs, total.partial)).unwrap_or_default();
        Cell { state: state.name(), count: show::count(jobs, partial), is_some: jobs > 0 }
    };
    JobState::ALL.map(cell).into()
}

pub(super) async fn page(State(stores): State<SharedStores>, frame: Frame) -> Answer<Html<String>> {
    let overview = stores.count().await;
    write(&StoresPage {
        frame,
        totals: cells(&overview.totals),
        stores: overview.stores.iter().map(Row::new).collect(),
        silent: overview.silent,
    })
}

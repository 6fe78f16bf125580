//! `stores list` and `stores counts`: show the stores and their job counts.

use std::process::ExitCode;

use queue_core::{JobState, operate::StateCount, stores::StoreRecord};
use serde::Serialize;
use serde_json::json;

use super::{
    failures::{FailedStore, report_failures},
    open::{StoreScope, StoreSession},
};
use crate::{
    cli::{print, problem::Problem, settings::Settings, values::counted},
    program,
};

pub(super) const NONE: &str = "no stores; `queue-worker stores add` adds one";

/// Runs `stores list`, which lists the stores recorded in the home database. Does not query the stores.
pub(super) async fn list(settings: &Settings, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_reading(settings, StoreScope::Home).await?;
    let records = opened.records.clone();
    opened.close().await;
    if as_json {
        return print::json(&json!({ "stores": records }));
    }
    if records.is_empty() {
        return print::lines(&program::commands(NONE));
    }
    let rows = records.iter().map(|StoreRecord { name, database, schema, is_open, tenants, .. }| {
        let takes = if *is_open { "open" } else { "closed" };
        [name.clone(), database.clone(), schema.clone(), takes.to_owned(), tenants.to_string()]
    });
    print::lines(&print::table(["store", "database", "schema", "new tenants", "tenants"], rows))
}

/// JSON document of `stores counts --json`.
#[derive(Serialize)]
struct CountsDocument<'a> {
    stores: Vec<CountsOfStore<'a>>,
    /// Totals over the stores that have responded. The totals are lower bounds if a store has not responded.
    totals: Vec<StateCount>,
    failed: &'a [FailedStore],
}

#[derive(Serialize)]
struct CountsOfStore<'a> {
    store: &'a str,
    counts: &'a [StateCount],
}

/// Runs `stores counts`, which counts jobs by state, per store and in total.
pub(super) async fn counts(settings: &Settings, as_json: bool) -> Result<ExitCode, Problem> {
    let mut opened = StoreSession::for_reading(settings, StoreScope::All).await?;
    let ask = |member: queue_core::stores::Member| async move { member.queue().busiest(1).await };
    let answers = opened.query_all(false, ask).await?;
    let mut totals = sum(answers.iter().flat_map(|(_, busiest)| &busiest.totals));
    for total in &mut totals {
        total.partial |= !opened.failed.is_empty();
    }
    if as_json {
        let stores = answers.iter().map(|(member, busiest)| CountsOfStore { store: member.name(), counts: &busiest.totals }).collect();
        print::json(&CountsDocument { stores, totals, failed: &opened.failed })?;
    } else if opened.records.is_empty() {
        print::lines(&program::commands(NONE))?;
    } else if answers.is_empty() {
        print::lines("no store has answered")?;
    } else {
        let each = answers.iter().map(|(member, busiest)| row(member.name(), &busiest.totals));
        let all = (answers.len() > 1).then(|| row("all", &totals));
        print::lines(&print::table(["store"].into_iter().chain(JobState::ALL.map(JobState::name)), each.chain(all)))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

fn sum<'a>(counts: impl Iterator<Item = &'a StateCount>) -> Vec<StateCount> {
    let mut totals: Vec<StateCount> = Vec::new();
    for count in counts {
        match totals.iter_mut().find(|total| total.state == count.state) {
            Some(total) => {
                total.jobs = total.jobs.saturating_add(count.jobs);
                total.partial |= count.partial;
            }
            None => totals.push(count.clone()),
        }
    }
    totals.sort_by_key(|total| JobState::ALL.iter().position(|state| *state == total.state));
    totals
}

fn row(name: &str, counts: &[StateCount]) -> Vec<String> {
    let of = |state| {
        let found = counts.iter().find(|count| count.state == state);
        found.map_or_else(|| "-".to_owned(), |count| counted(count.jobs, count.partial))
    };
    std::iter::once(name.to_owned()).chain(JobState::ALL.map(of)).collect()
}

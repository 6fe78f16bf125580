//! `stats`: the store in figures.

use std::{collections::BTreeMap, time::Duration};

use humantime::format_duration;
use queue_core::{
    JobState,
    operate::{self, Count, Oldest, Pause, Unserved, WorkerRecord},
};
use serde::Serialize;

use super::{
    list::of_version,
    open::open_store,
    pause, print,
    problem::Problem,
    settings::Settings,
    values::{Exact, counted},
};

/// What `--json` shows.
#[derive(Serialize)]
struct Stats {
    counts: Vec<Count>,
    oldest: Vec<Oldest>,
    paused: Vec<Pause>,
    unserved: Vec<Unserved>,
    workers: Vec<WorkerRecord>,
}

pub(super) async fn stats(settings: &Settings, Exact { exact }: Exact, as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    let counts =
        if exact { operate::counts_exactly(database.pool(), store).await? } else { operate::counts(database.pool(), store).await? };
    let stats = Stats {
        counts,
        oldest: operate::oldest(database.pool(), store).await?,
        paused: operate::pauses(database.pool(), store).await?,
        unserved: operate::unserved(database.pool(), store).await?,
        workers: operate::workers(database.pool(), store).await?,
    };
    database.close().await;
    if as_json {
        return print::json(&stats);
    }
    let parts = [by_state(&stats.counts), waiting(&stats.oldest)].into_iter();
    let parts = parts.chain(pause::table(&stats.paused));
    let parts = parts.chain(without_worker(&stats.unserved)).chain([working(&stats.workers)]);
    print::lines(&parts.collect::<Vec<_>>().join("\n\n"))
}

/// A row for each queue and type, a column for each state.
fn by_state(counts: &[Count]) -> String {
    let mut rows: BTreeMap<(&str, &str), [String; JobState::ALL.len()]> = BTreeMap::new();
    for count in counts {
        let row = rows.entry((&count.queue, &count.job_type)).or_insert_with(|| JobState::ALL.map(|_| "-".to_owned()));
        if let Some(place) = JobState::ALL.iter().position(|state| *state == count.state) {
            row[place] = counted(count.jobs, count.partial);
        }
    }
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let rows = rows.into_iter().map(|((queue, job_type), counts)| [queue, job_type].map(str::to_owned).into_iter().chain(counts));
    print::table(["queue", "type"].into_iter().chain(JobState::ALL.map(JobState::name)), rows)
}

fn waiting(oldest: &[Oldest]) -> String {
    if oldest.is_empty() {
        return "no job is waiting for a worker".to_owned();
    }
    let rows = oldest.iter().map(|first| {
        let waited = first.waited.map_or_else(String::new, |waited| format_duration(Duration::from_secs(waited.as_secs())).to_string());
        [first.queue.clone(), first.since.map_or_else(|| "not seen".to_owned(), print::time), counted(waited, first.partial)]
    });
    print::table(["queue", "oldest ready since", "waited"], rows)
}

/// Nothing where all is well.
fn without_worker(unserved: &[Unserved]) -> Option<String> {
    let rows =
        unserved.iter().map(|waits| [waits.queue.clone(), of_version(&waits.job_type, waits.version), counted(waits.jobs, waits.partial)]);
    (!unserved.is_empty()).then(|| print::table(["no worker for queue", "type", "ready"], rows))
}

fn working(workers: &[WorkerRecord]) -> String {
    if workers.is_empty() {
        return "no workers".to_owned();
    }
    let rows = workers.iter().map(|worker| {
        let queues = if worker.queues.is_empty() { "any".to_owned() } else { worker.queues.join(", ") };
        let state = if worker.alive { "alive" } else { "silent" };
        [
            worker.name.clone(),
            format!("{}:{}", worker.host, worker.pid),
            queues,
            worker.jobs.to_string(),
            state.to_owned(),
            print::time(worker.started_at),
            worker.version.clone(),
        ]
    });
    print::table(["worker", "host:pid", "queues", "jobs", "state", "started", "version"], rows)
}

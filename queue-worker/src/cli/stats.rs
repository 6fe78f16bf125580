//! `stats` command: shows job counts, waiting times and workers.

use std::{collections::BTreeMap, time::Duration};

use humantime::format_duration;
use queue_core::{
    JobState, Queue,
    operate::{Count, Oldest, Pause, StateCount, Unserved, WorkerRecord},
};
use serde::Serialize;

use super::{
    list::versioned_type,
    open::open_for_reading,
    pause, print,
    problem::Problem,
    settings::Settings,
    values::{ExactArgs, counted},
};

/// JSON document of `stats --json`.
#[derive(Serialize)]
struct Stats {
    counts: Vec<Count>,
    /// Totals over all queues and types. Empty with `--all` or `--exact`, which list all queues and types.
    totals: Vec<StateCount>,
    /// Number of queue and type pairs that were counted but are not listed.
    more: i64,
    oldest: Vec<Oldest>,
    paused: Vec<Pause>,
    unserved: Vec<Unserved>,
    workers: Vec<WorkerRecord>,
}

/// Maximum number of queue and type pairs in the table of job counts, and of queues in the table of oldest jobs. `--all` and `--exact`
/// remove this limit.
const SHOWN_QUEUES: u16 = 50;

pub(super) async fn stats(settings: &Settings, all: bool, ExactArgs { exact }: ExactArgs, as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_for_reading(settings).await?;
    let pool = database.pool();
    let queue = Queue::new(pool).store(store);
    let counted = async {
        if exact {
            return queue.counts_exactly().await.map(|counts| (counts, Vec::new(), 0));
        }
        if all {
            return queue.counts().await.map(|counts| (counts, Vec::new(), 0));
        }
        queue.busiest(SHOWN_QUEUES).await.map(|busiest| (busiest.counts, busiest.totals, busiest.more))
    };
    // These queries run concurrently with the counts. They share one connection, because each new connection would first have to load the
    // system catalog into its caches.
    let others = async {
        let mut on = pool.acquire().await?;
        let queue = Queue::on(&mut on).store(store);
        let oldest = if all || exact { queue.oldest().await? } else { queue.oldest_of(SHOWN_QUEUES).await? };
        let (paused, unserved) = (queue.pauses().await?, queue.unserved().await?);
        Ok::<_, queue_core::Error>((oldest, paused, unserved, queue.workers().await?))
    };
    let ((counts, totals, more), (oldest, paused, unserved, workers)) = tokio::try_join!(counted, others)?;
    database.close().await;
    let stats = Stats { counts, totals, more, oldest, paused, unserved, workers };
    if as_json {
        return print::json(&stats);
    }
    let parts = [count_table(&stats), oldest_table(&stats.oldest)].into_iter();
    let parts = parts.chain(pause::table(&stats.paused));
    let parts = parts.chain(unserved_table(&stats.unserved)).chain([worker_table(&stats.workers)]);
    print::lines(&parts.collect::<Vec<_>>().join("\n\n"))
}

/// Formats one row per queue and type, with one column per state. Adds a row of totals if some rows are omitted.
fn count_table(stats: &Stats) -> String {
    let none = || JobState::ALL.map(|_| "-".to_owned());
    let mut rows: BTreeMap<(&str, &str), [String; JobState::ALL.len()]> = BTreeMap::new();
    for count in &stats.counts {
        set_cell(rows.entry((&count.queue, &count.job_type)).or_insert_with(none), count.state, count.jobs, count.partial);
    }
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let mut of_all = none();
    for total in &stats.totals {
        set_cell(&mut of_all, total.state, total.jobs, total.partial);
    }
    let last = (stats.more > 0).then_some((("all", "all"), of_all));
    let rows = rows.into_iter().chain(last);
    let rows = rows.map(|((queue, job_type), counts)| [queue, job_type].map(str::to_owned).into_iter().chain(counts));
    let table = print::table(["queue", "type"].into_iter().chain(JobState::ALL.map(JobState::name)), rows);
    if stats.more > 0 { format!("{table}\n{} more queues and types: --all", stats.more) } else { table }
}

fn set_cell(row: &mut [String; JobState::ALL.len()], state: JobState, jobs: i64, partial: bool) {
    if let Some(place) = JobState::ALL.iter().position(|one| *one == state) {
        row[place] = counted(jobs, partial);
    }
}

fn oldest_table(oldest: &[Oldest]) -> String {
    if oldest.is_empty() {
        return "no job is waiting for a worker".to_owned();
    }
    let rows = oldest.iter().map(|first| {
        let waited = first.waited.map_or_else(String::new, |waited| format_duration(Duration::from_secs(waited.as_secs())).to_string());
        [first.queue.clone(), first.since.map_or_else(|| "not seen".to_owned(), print::time), counted(waited, first.partial)]
    });
    print::table(["queue", "oldest ready since", "waited"], rows)
}

/// Formats the ready jobs that no worker serves. Returns `None` if there are none.
fn unserved_table(unserved: &[Unserved]) -> Option<String> {
    let rows = unserved
        .iter()
        .map(|waits| [waits.queue.clone(), versioned_type(&waits.job_type, waits.version), counted(waits.jobs, waits.partial)]);
    (!unserved.is_empty()).then(|| print::table(["no worker for queue", "type", "ready"], rows))
}

fn worker_table(workers: &[WorkerRecord]) -> String {
    if workers.is_empty() {
        return "no workers".to_owned();
    }
    let rows = workers.iter().map(|worker| {
        let queues = if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(", ") };
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

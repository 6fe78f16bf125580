//! `list` command: shows jobs in a table, newest first.

use std::{
    collections::HashSet,
    io::{IsTerminal as _, stderr, stdout},
    time::Duration,
};

use queue_core::{
    JobId, JobState, Queue, Store,
    operate::{Filter, JobRecord, Page, Patience, Pause},
};
use serde::Serialize;
use sqlx::PgPool;

use super::{
    job_name::JobName,
    name_check::check_filter,
    open::open_for_reading,
    pause::find_pause,
    print,
    problem::{Problem, replace_note, warn},
    selection::ListArgs,
    settings::Settings,
};
use crate::{escape, live::shutdown_signal};

/// Delay before the first progress note on a terminal.
const FIRST_NOTE_DELAY: Duration = Duration::from_millis(40);
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn list(settings: &Settings, args: &ListArgs) -> Result<(), Problem> {
    args.check()?;
    let (database, store) = open_for_reading(settings).await?;
    check_filter(&database, store, &args.filter()).await?;
    if !args.output.json && args.filter().limit > Filter::MOST {
        let on = if args.of_key().is_some() { "" } else { "; continue with `--before`" };
        warn(&format!("a list has at most {} jobs{on}", Filter::MOST));
    }
    let (jobs, next, more) = if let Some((queue, key, most)) = args.of_key() {
        let line = database.queue().store(store).jobs_of_key(queue, key, most).await?;
        (line.jobs, None, line.more)
    } else {
        let is_interactive = !args.output.json && stdout().is_terminal() && stderr().is_terminal();
        let page = if is_interactive {
            list_with_notes(database.pool(), store, args.filter()).await?
        } else {
            database.queue().store(store).jobs().matching(&args.filter()).list_patiently(Patience::default()).await?
        };
        (page.jobs, page.next, page.next.is_some())
    };
    let unserved = database.queue().store(store).unserved_of(&jobs).await?;
    let pauses = database.queue().store(store).pauses().await?;
    database.close().await;
    if args.output.json {
        let jobs = jobs.iter().map(|job| ListedJob::new(job, &pauses, &unserved)).collect();
        return print::json(&ListedPage { jobs, next, more });
    }
    let text = match jobs.as_slice() {
        [] => args.empty_text(),
        jobs => table(jobs.iter().map(|job| (job.id, ListedJob::new(job, &pauses, &unserved)))),
    };
    let rest = match next {
        Some(next) => format!("\n\nolder jobs: --before {next}"),
        None if more => format!("\n\nand more after the first {}{}", jobs.len(), more_hint(jobs.len())),
        None => String::new(),
    };
    print::lines(&(text + &rest))
}

/// Loads a page of jobs for output on a terminal. While no job is found, prints how far back the search has progressed and continues. The
/// search ends when a job is found, when all jobs have been searched, or when a signal arrives. After a signal, the output names the option
/// that continues the search.
async fn list_with_notes(pool: &PgPool, store: Store, mut filter: Filter) -> Result<Page, Problem> {
    let stop = shutdown_signal();
    tokio::pin!(stop);
    let within = |none| Patience { none, ..Patience::default() };
    let queue = Queue::new(pool).store(store);
    let (mut page, mut is_first) = (queue.jobs().matching(&filter).list_patiently(within(FIRST_NOTE_DELAY)).await?, true);
    while let (true, Some(next)) = (page.jobs.is_empty(), page.next) {
        let back = next.enqueued_at().map_or_else(String::new, |at| format!(" back to {}", print::time(at)));
        replace_note(&format!("no matching job{back}; searching further back, Ctrl-C stops"), is_first);
        is_first = false;
        filter.before = Some(next);
        page = tokio::select! {
            found = queue.jobs().matching(&filter).list_patiently(within(NOTE_INTERVAL)) => found?,
            () = &mut stop => break,
        };
    }
    Ok(page)
}

/// Formats a table with one row per job. The first column contains the job's name.
pub(super) fn table<'a>(jobs: impl Iterator<Item = (impl JobName, ListedJob<'a>)>) -> String {
    let jobs: Vec<_> = jobs.collect();
    let with_meta = jobs.iter().any(|(_, served)| served.job.meta.is_some());
    let header = ["id", "state", "queue", "type", "attempts", "enqueued", "note"].into_iter().chain(with_meta.then_some("meta"));
    let cells = |(name, served): &(_, ListedJob<'a>)| row(name, served).into_iter().chain(with_meta.then(|| metadata(served.job)));
    print::table(header, jobs.iter().map(cells))
}

/// Returns a hint about `--limit` if a higher limit would show more jobs of the ordering key.
fn more_hint(shown: usize) -> &'static str {
    if shown < Filter::MOST as usize { ": `--limit` shows more" } else { "" }
}

/// Page of jobs in the `--json` output.
#[derive(Serialize)]
struct ListedPage<'a> {
    jobs: Vec<ListedJob<'a>>,
    /// Value of `--before` for the next page. `None` on the last page and for a list of an ordering key's jobs.
    next: Option<JobId>,
    /// Whether more jobs match than the page contains.
    more: bool,
}

/// Row of the job list, also used for `--json`. Contains two possible reasons why a ready job does not start.
#[derive(Serialize)]
pub(super) struct ListedJob<'a> {
    #[serde(flatten)]
    job: &'a JobRecord,
    /// Whether the job is ready, but no live worker serves its queue and type.
    unserved: bool,
    /// Pause that blocks the job, if any.
    paused: Option<&'a Pause>,
}

impl<'a> ListedJob<'a> {
    pub(super) fn new(job: &'a JobRecord, pauses: &'a [Pause], unserved: &HashSet<JobId>) -> Self {
        Self { job, unserved: unserved.contains(&job.id), paused: blocking_pause(job, pauses) }
    }
}

/// Returns the pause that blocks a ready job, or `None` if no pause does.
pub(super) fn blocking_pause<'a>(job: &JobRecord, pauses: &'a [Pause]) -> Option<&'a Pause> {
    if job.state == JobState::Ready { find_pause(pauses, &job.queue, &job.job_type) } else { None }
}

fn row(name: &impl JobName, &ListedJob { job, unserved, paused }: &ListedJob<'_>) -> [String; 7] {
    let error = || job.error.as_deref().map(|error| escape::short(error, 60)).unwrap_or_default();
    let paused =
        paused.map(|pause| pause.reason.as_deref().map_or("paused".to_owned(), |reason| format!("paused ({})", escape::short(reason, 60))));
    let note = match job.state {
        _ if paused.is_some() => format!("{} {}", paused.unwrap_or_default(), error()),
        JobState::Scheduled => format!("due {} {}", job.run_at.map(print::time).unwrap_or_default(), error()),
        JobState::Parked => job.run_at.map(|at| format!("until {}", print::time(at))).unwrap_or_default(),
        JobState::Running => job.worker.map(|worker| format!("by {worker}")).unwrap_or_default(),
        JobState::Ready if unserved => format!("no worker serves it {}", error()),
        _ => error(),
    };
    [
        name.to_string(),
        job.state.to_string(),
        job.queue.clone(),
        versioned_type(&job.job_type, job.version),
        format!("{}/{}", job.attempts, job.max_attempts),
        print::time(job.enqueued_at),
        note,
    ]
}

/// Returns the job type, followed by the payload version unless the version is 1.
pub(super) fn versioned_type(job_type: &str, version: i16) -> String {
    if version > 1 { format!("{job_type}, version {version}") } else { job_type.to_owned() }
}

fn metadata(job: &JobRecord) -> String {
    job.meta.as_ref().map(|meta| escape::short(meta.get(), 60)).unwrap_or_default()
}

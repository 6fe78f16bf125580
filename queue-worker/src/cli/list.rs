//! `list`: jobs in a table, the newest first.

use std::{
    collections::HashSet,
    io::{IsTerminal as _, stderr, stdout},
    time::Duration,
};

use queue_core::{
    JobId, JobState, Store,
    operate::{self, Filter, JobRecord, Page, Patience, Pause},
};
use serde::Serialize;
use sqlx::PgPool;

use super::{
    chosen::List,
    known_queue::check_filter,
    named::JobName,
    open::open_to_look,
    pause::pause_of,
    print,
    problem::{Problem, note_again, warn},
    settings::Settings,
};
use crate::{inert, live::shutdown_signal};

/// So long somebody at a terminal waits for a first word, and then for each further one.
const FIRST_WORD: Duration = Duration::from_millis(40);
const WORD: Duration = Duration::from_secs(1);

pub(super) async fn list(settings: &Settings, asked: &List) -> Result<(), Problem> {
    asked.check()?;
    let (database, store) = open_to_look(settings).await?;
    check_filter(&database, store, &asked.filter()).await?;
    if !asked.output.json && asked.filter().limit > Filter::MOST {
        let on = if asked.of_key().is_some() { "" } else { "; `--before` goes on" };
        warn(&format!("a list has at most {} jobs{on}", Filter::MOST));
    }
    let (jobs, next, more) = if let Some((queue, key, most)) = asked.of_key() {
        let line = operate::in_line(database.pool(), store, queue, key, most).await?;
        (line.jobs, None, line.more)
    } else {
        let is_watched = !asked.output.json && stdout().is_terminal() && stderr().is_terminal();
        let page = if is_watched {
            list_aloud(database.pool(), store, asked.filter()).await?
        } else {
            operate::list_patiently(database.pool(), store, &asked.filter(), Patience::default()).await?
        };
        (page.jobs, page.next, page.next.is_some())
    };
    let unserved = operate::unserved_of(database.pool(), store, &jobs).await?;
    let pauses = operate::pauses(database.pool(), store).await?;
    database.close().await;
    if asked.output.json {
        let jobs = jobs.iter().map(|job| Served::new(job, &pauses, &unserved)).collect();
        return print::json(&ServedPage { jobs, next, more });
    }
    let text = match jobs.as_slice() {
        [] => asked.none(),
        jobs => table(jobs.iter().map(|job| (job.id, Served::new(job, &pauses, &unserved)))),
    };
    let rest = match next {
        Some(next) => format!("\n\nolder jobs: --before {next}"),
        None if more => format!("\n\nand more behind the first {}{}", jobs.len(), enough(jobs.len())),
        None => String::new(),
    };
    print::lines(&(text + &rest))
}

/// The page for somebody who watches: while nothing is found it says how far back it has looked, and goes on, until something is, or all was looked
/// at, or a signal comes. What is printed then says from where to go on.
async fn list_aloud(pool: &PgPool, store: Store, mut filter: Filter) -> Result<Page, Problem> {
    let stop = shutdown_signal();
    tokio::pin!(stop);
    let within = |none| Patience { none, ..Patience::default() };
    let (mut page, mut is_first) = (operate::list_patiently(pool, store, &filter, within(FIRST_WORD)).await?, true);
    while let (true, Some(next)) = (page.jobs.is_empty(), page.next) {
        let back = next.enqueued_at().map_or_else(String::new, |at| format!(" back to {}", print::time(at)));
        note_again(&format!("no such job{back}; looking further back, Ctrl-C ends that"), is_first);
        is_first = false;
        filter.before = Some(next);
        page = tokio::select! {
            found = operate::list_patiently(pool, store, &filter, within(WORD)) => found?,
            () = &mut stop => break,
        };
    }
    Ok(page)
}

/// A row for each job, which goes by the name beside it.
pub(super) fn table<'a>(jobs: impl Iterator<Item = (impl JobName, Served<'a>)>) -> String {
    let jobs: Vec<_> = jobs.collect();
    let with_meta = jobs.iter().any(|(_, served)| served.job.meta.is_some());
    let header = ["id", "state", "queue", "type", "attempts", "enqueued", "note"].into_iter().chain(with_meta.then_some("meta"));
    let cells = |(name, served): &(_, Served<'a>)| row(name, served).into_iter().chain(with_meta.then(|| metadata(served.job)));
    print::table(header, jobs.iter().map(cells))
}

/// How more of a key's jobs are shown, if that can be.
fn enough(shown: usize) -> &'static str {
    if shown < Filter::MOST as usize { ": `--limit` shows more" } else { "" }
}

/// A page as it is printed in JSON.
#[derive(Serialize)]
struct ServedPage<'a> {
    jobs: Vec<Served<'a>>,
    /// What `--before` has to be for the next page; of a key there is none.
    next: Option<JobId>,
    /// Whether there are more.
    more: bool,
}

/// A job in JSON, and what it waits for beside its turn.
#[derive(Serialize)]
pub(super) struct Served<'a> {
    #[serde(flatten)]
    job: &'a JobRecord,
    /// It is ready, and no worker that lives serves its queue and type.
    unserved: bool,
    /// The pause for whose end it waits.
    paused: Option<&'a Pause>,
}

impl<'a> Served<'a> {
    pub(super) fn new(job: &'a JobRecord, pauses: &'a [Pause], unserved: &HashSet<JobId>) -> Self {
        Self { job, unserved: unserved.contains(&job.id), paused: paused_by(job, pauses) }
    }
}

/// The pause for whose end a job waits.
pub(super) fn paused_by<'a>(job: &JobRecord, pauses: &'a [Pause]) -> Option<&'a Pause> {
    if job.state == JobState::Ready { pause_of(pauses, &job.queue, &job.job_type) } else { None }
}

fn row(name: &impl JobName, &Served { job, unserved, paused }: &Served<'_>) -> [String; 7] {
    let error = || job.error.as_deref().map(|error| inert::short(error, 60)).unwrap_or_default();
    let paused =
        paused.map(|pause| pause.reason.as_deref().map_or("paused".to_owned(), |reason| format!("paused ({})", inert::short(reason, 60))));
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
        of_version(&job.job_type, job.version),
        format!("{}/{}", job.attempts, job.max_attempts),
        print::time(job.enqueued_at),
        note,
    ]
}

/// A job type, with the version of a payload if that is not the first.
pub(super) fn of_version(job_type: &str, version: i16) -> String {
    if version > 1 { format!("{job_type}, version {version}") } else { job_type.to_owned() }
}

fn metadata(job: &JobRecord) -> String {
    job.meta.as_ref().map(|meta| inert::short(meta.get(), 60)).unwrap_or_default()
}

//! `pause`, `resume` and `pauses` commands: create, end and list pauses. A pause stops workers from starting jobs of its scope.

use std::time::{Duration, Instant};

use queue_core::{
    Error, Queue, Store,
    operate::{AwaitedWorker, Filter, Pause, Scope},
    registry::Registry,
};
use serde_json::json;
use sqlx::PgPool;
use tokio::time::timeout;

use super::{
    audit::AuditedTransaction,
    name_check::check_filter,
    open::open_store,
    print,
    problem::{Problem, note},
    settings::Settings,
    values::{OutputArgs, counted},
};
use crate::live::shutdown_signal;

/// Arguments that select the scope to pause or resume.
#[derive(clap::Args)]
pub(super) struct PauseScopeArgs {
    /// Select this queue; with --type, select only the queue's jobs of that type
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Select this job type in every queue, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Select all queues and types
    #[arg(long, conflicts_with_all = ["queue", "job_type"])]
    all: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Arguments of `pause`.
#[derive(clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    pub(super) which: PauseScopeArgs,
    /// Reason to show to other operators, up to 1000 characters
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// Return once every live worker has confirmed that it no longer starts these jobs
    #[arg(long)]
    pub(super) wait: bool,
}

impl PauseScopeArgs {
    /// Returns the selected scope. Requires `--all` to pause everything, because a forgotten option must not stop all workers.
    pub(super) fn scope(&self) -> Result<Scope, Problem> {
        if self.queue.is_none() && self.job_type.is_none() && !self.all {
            return Err(Problem::usage("no scope is given; give `--queue NAME`, `--type NAME` or `--all`"));
        }
        Ok(Scope { queue: self.queue.clone(), job_type: self.job_type.clone() })
    }
}

/// Pauses the scope. With `--wait`, also waits until all workers have stopped starting its jobs.
pub(super) async fn pause(settings: &Settings, args: &PauseArgs) -> Result<(), Problem> {
    let scope = args.which.scope()?;
    let (database, store) = open_store(settings).await?;
    check_filter(&database, store, &filter_of(&scope)).await?;
    // Signals are handled from here on, so that the command reports the state of the pause if a signal interrupts the wait.
    let interrupted = shutdown_signal();
    let queue = database.queue().store(store);
    let number = create_pause((database.pool(), store), &scope, args.reason.as_deref()).await?;
    let stopped = if args.wait {
        tokio::select! {
            stopped = wait_for_workers(&queue, &scope) => Some(stopped?),
            () = interrupted => return Err(interrupted_wait(&queue, &scope).await?),
        }
    } else {
        None
    };
    database.close().await;
    if stopped == Some(false) {
        return Err(Problem::failed(format!("{scope}: resumed by another operator during the wait; pause it again if needed")));
    }
    if args.which.output.json {
        return print::json(&json!({ "paused": scope, "number": number, "stopped": stopped.is_some() }));
    }
    let more = if stopped.is_some() { "; no worker starts these jobs" } else { "" };
    print::lines(&format!("paused {scope}{more}"))
}

/// Creates a pause and records it in the audit log. Returns the number of the pause.
pub(super) async fn create_pause((pool, store): (&PgPool, Store), scope: &Scope, reason: Option<&str>) -> Result<i64, Error> {
    let mut tx = AuditedTransaction::begin(pool, store).await?;
    let number = Queue::on(&mut tx).store(store).pause_with_reason(scope, reason).await?;
    tx.commit("paused", scope.to_string(), 0).await?;
    Ok(number)
}

/// Ends the pause with exactly this scope and records the operation in the audit log. Returns whether such a pause existed.
pub(super) async fn end_pause((pool, store): (&PgPool, Store), scope: &Scope) -> Result<bool, Error> {
    let mut tx = AuditedTransaction::begin(pool, store).await?;
    let resumed = Queue::on(&mut tx).store(store).resume(scope).await?;
    if resumed {
        tx.commit("resumed", scope.to_string(), 0).await?;
    }
    Ok(resumed)
}

/// Ends the pause with exactly this scope.
pub(super) async fn resume(settings: &Settings, which: &PauseScopeArgs) -> Result<(), Problem> {
    let scope = which.scope()?;
    let (database, store) = open_store(settings).await?;
    let resumed = end_pause((database.pool(), store), &scope).await?;
    let left = database.queue().store(store).pauses().await?;
    database.close().await;
    if !resumed {
        let paused: Vec<String> = left.iter().map(|pause| pause.scope.to_string()).collect();
        let fix = if paused.is_empty() {
            "nothing is paused; `queue-worker pauses` shows what is".to_owned()
        } else {
            format!("paused: {}", paused.join(", "))
        };
        return Err(Problem::refused(format!("{scope}: not paused; {fix}")));
    }
    if which.output.json {
        return print::json(&json!({ "resumed": scope, "paused": left }));
    }
    let still = left.iter().filter(|pause| overlaps(&pause.scope, &scope)).map(|pause| format!("\nstill {}", describe_pause(pause)));
    print::lines(&format!("resumed {scope}{}", still.collect::<String>()))
}

pub(super) async fn pauses(settings: &Settings, as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    let found = database.queue().store(store).pauses().await?;
    database.close().await;
    if as_json {
        return print::json(&json!({ "paused": found }));
    }
    print::lines(&table(&found).unwrap_or_else(|| "nothing is paused".to_owned()))
}

/// Formats the pauses as a table. Returns `None` if there are no pauses.
pub(super) fn table(pauses: &[Pause]) -> Option<String> {
    (!pauses.is_empty()).then(|| print::table(COLUMNS, pauses.iter().map(cells)))
}

/// Column headings of the table of pauses.
pub(super) const COLUMNS: [&str; 6] = ["paused", "reason", "since", "by", "ready", "workers"];

/// Returns a pause's cells in the columns [`COLUMNS`].
pub(super) fn cells(pause: &Pause) -> [String; 6] {
    let workers = if pause.awaits > 0 { format!("{} to stop", pause.awaits) } else { "stopped".to_owned() };
    [
        pause.scope.to_string(),
        pause.reason.clone().unwrap_or_default(),
        print::time(pause.paused_at),
        pause.paused_by.clone(),
        counted(pause.ready, pause.partial),
        workers,
    ]
}

/// Returns a pause that covers jobs of this queue and type, if there is one. The type matches under any of its names in this binary.
pub(super) fn find_pause<'a>(pauses: &'a [Pause], queue: &str, job_type: &str) -> Option<&'a Pause> {
    if pauses.is_empty() {
        return None;
    }
    let registry = Registry::linked().unwrap_or_default();
    let named = |name: &str| registry.get(name).map(|registration| registration.options().name);
    pauses.iter().find(|pause| {
        pause.covers(queue, job_type)
            || pause
                .scope
                .job_type
                .as_deref()
                .is_some_and(|paused| named(paused).is_some() && named(paused) == named(job_type) && pause.covers(queue, paused))
    })
}

/// Formats a pause with its reason, scope, start time and role.
pub(super) fn describe_pause(pause: &Pause) -> String {
    let reason = pause.reason.as_deref().unwrap_or("no reason given");
    format!("paused ({reason}): {} since {} by {}", pause.scope, print::time(pause.paused_at), pause.paused_by)
}

/// Returns whether a job can be in both scopes.
pub(super) fn overlaps(one: &Scope, other: &Scope) -> bool {
    let meet = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
    meet(&one.queue, &other.queue) && meet(&one.job_type, &other.job_type)
}

/// Returns a filter with the scope's queue and job type.
pub(super) fn filter_of(scope: &Scope) -> Filter {
    let filter = Filter { queue: scope.queue.clone(), ..Filter::default() };
    scope.job_type.as_deref().into_iter().fold(filter, Filter::job_type)
}

/// Poll interval while waiting for workers.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of one poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between notes that list the awaited workers.
const NOTE_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until all workers have stopped starting the scope's jobs. Returns false if the pause was ended during the wait.
pub(super) async fn wait_for_workers(queue: &Queue, scope: &Scope) -> Result<bool, Error> {
    let mut next_note = Instant::now() + NOTE_INTERVAL;
    loop {
        let polled = timeout(POLL_TIMEOUT, queue.pause_awaits(scope)).await;
        let Some(awaited) = polled.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))? else { return Ok(false) };
        if awaited.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= next_note {
            note(&format!("waiting for {}; it stays paused if the wait is interrupted", worker_names(&awaited)));
            next_note = Instant::now() + NOTE_INTERVAL;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn interrupted_wait(queue: &Queue, scope: &Scope) -> Result<Problem, Problem> {
    let awaited = queue.pause_awaits(scope).await?.unwrap_or_default();
    Ok(Problem::failed(format!(
        "{scope}: interrupted while waiting for {}; it stays paused, and `queue-worker pauses` shows how many workers have not stopped",
        worker_names(&awaited)
    )))
}

/// Maximum number of workers named in a note.
const SHOWN_WORKERS: usize = 5;

fn worker_names(awaited: &[AwaitedWorker]) -> String {
    let named: Vec<String> = awaited.iter().take(SHOWN_WORKERS).map(|one| format!("{} ({}:{})", one.name, one.host, one.pid)).collect();
    let more = awaited.len().saturating_sub(SHOWN_WORKERS);
    let workers = if awaited.len() == 1 { "worker" } else { "workers" };
    format!("{} {workers}: {}{}", awaited.len(), named.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

//! `pause`, `resume` and `pauses`: what workers begin nothing of for now.

use std::time::{Duration, Instant};

use queue_core::{
    Registry, Store,
    operate::{self, Awaited, Pause, Scope},
};
use serde_json::json;

use super::{
    known_queue::{check_queue, check_type},
    noted::Noted,
    open::open_store,
    print,
    problem::{Problem, note},
    settings::Settings,
    values::{Output, counted},
};
use crate::live::{Database, shutdown_signal};

/// What is paused or resumed.
#[derive(clap::Args)]
pub(super) struct Which {
    /// This queue; with --type: only jobs of that type in it
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// This job type, in every queue, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Everything: every queue and every type
    #[arg(long, conflicts_with_all = ["queue", "job_type"])]
    all: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// What is paused, and why.
#[derive(clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    which: Which,
    /// Why, for whoever wonders: up to 1000 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Return once every living worker has said that it begins nothing of it any more
    #[arg(long)]
    wait: bool,
}

impl Which {
    /// What is chosen. Nothing is not everything: whoever forgot to say what would stop all workers.
    fn scope(&self) -> Result<Scope, Problem> {
        if self.queue.is_none() && self.job_type.is_none() && !self.all {
            return Err(Problem::usage("nothing is chosen; choose `--queue NAME`, `--type NAME` or `--all`"));
        }
        Ok(Scope { queue: self.queue.clone(), job_type: self.job_type.clone() })
    }
}

/// Pauses it, and waits for the workers if that is asked for.
pub(super) async fn pause(settings: &Settings, args: &PauseArgs) -> Result<(), Problem> {
    let scope = args.which.scope()?;
    let (database, store) = open_store(settings).await?;
    check_names(&database, store, &scope).await?;
    // Heard from here on: a signal must not end the wait before it says what stands.
    let interrupted = shutdown_signal();
    let mut noted = Noted::begin(database.pool(), store).await?;
    let number = operate::pause(&mut *noted, store, &scope, args.reason.as_deref()).await?;
    noted.commit("paused", scope.to_string(), 0).await?;
    let stopped = if args.wait {
        tokio::select! {
            stopped = wait(&database, store, &scope) => Some(stopped?),
            () = interrupted => return Err(given_up(&database, store, &scope).await?),
        }
    } else {
        None
    };
    database.close().await;
    if stopped == Some(false) {
        return Err(Problem::failed(format!("{scope}: resumed by somebody else while this waited; pause it again if it is to be paused")));
    }
    if args.which.output.json {
        return print::json(&json!({ "paused": scope, "number": number, "stopped": stopped.is_some() }));
    }
    let more = if stopped.is_some() { "; no worker begins any of it" } else { "" };
    print::lines(&format!("paused {scope}{more}"))
}

/// Ends the pause of exactly this.
pub(super) async fn resume(settings: &Settings, which: &Which) -> Result<(), Problem> {
    let scope = which.scope()?;
    let (database, store) = open_store(settings).await?;
    let mut noted = Noted::begin(database.pool(), store).await?;
    let resumed = operate::resume(&mut *noted, store, &scope).await?;
    if resumed {
        noted.commit("resumed", scope.to_string(), 0).await?;
    } else {
        // What it holds of the pool is needed below.
        drop(noted);
    }
    let left = operate::pauses(database.pool(), store).await?;
    database.close().await;
    if !resumed {
        let paused: Vec<String> = left.iter().map(|pause| pause.scope.to_string()).collect();
        let fix = if paused.is_empty() {
            "nothing is paused; `queue-worker pauses` shows what is".to_owned()
        } else {
            format!("paused are: {}", paused.join(", "))
        };
        return Err(Problem::refused(format!("{scope}: not paused; {fix}")));
    }
    if which.output.json {
        return print::json(&json!({ "resumed": scope, "paused": left }));
    }
    let still = left.iter().filter(|pause| meets(&pause.scope, &scope)).map(|pause| format!("\nstill {}", told(pause)));
    print::lines(&format!("resumed {scope}{}", still.collect::<String>()))
}

/// What is paused.
pub(super) async fn pauses(settings: &Settings, as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    let found = operate::pauses(database.pool(), store).await?;
    database.close().await;
    if as_json {
        return print::json(&json!({ "paused": found }));
    }
    print::lines(&table(&found).unwrap_or_else(|| "nothing is paused".to_owned()))
}

/// What is paused, as a table; nothing if nothing is.
pub(super) fn table(pauses: &[Pause]) -> Option<String> {
    let rows = pauses.iter().map(|pause| {
        let workers = if pause.awaits > 0 { format!("{} to stop", pause.awaits) } else { "stopped".to_owned() };
        [
            pause.scope.to_string(),
            pause.reason.clone().unwrap_or_default(),
            print::time(pause.paused_at),
            pause.paused_by.clone(),
            counted(pause.ready, pause.partial),
            workers,
        ]
    });
    (!pauses.is_empty()).then(|| print::table(["paused", "reason", "since", "by", "ready", "workers"], rows))
}

/// The pause for whose end a job waits, if it is ready; under any name of its type that this binary knows.
pub(super) fn pause_of<'a>(pauses: &'a [Pause], queue: &str, job_type: &str) -> Option<&'a Pause> {
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

/// The state of a job that waits for this, in words.
pub(super) fn told(pause: &Pause) -> String {
    let reason = pause.reason.as_deref().unwrap_or("no reason given");
    format!("paused ({reason}): {} since {} by {}", pause.scope, print::time(pause.paused_at), pause.paused_by)
}

/// Whether some jobs are of both.
fn meets(one: &Scope, other: &Scope) -> bool {
    let meet = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
    meet(&one.queue, &other.queue) && meet(&one.job_type, &other.job_type)
}

async fn check_names(database: &Database, store: Store, scope: &Scope) -> Result<(), Problem> {
    check_queue(database, store, scope.queue.as_deref()).await?;
    check_type(database, store, scope.job_type.as_deref()).await
}

/// Between two looks whether all workers have said so.
const LOOK: Duration = Duration::from_millis(50);

/// How soon it says for whom it waits, and how often again.
const TELL: Duration = Duration::from_secs(2);

/// False if it was resumed meanwhile.
async fn wait(database: &Database, store: Store, scope: &Scope) -> Result<bool, Problem> {
    let mut tell = Instant::now() + TELL;
    loop {
        let Some(awaited) = operate::pause_awaits(database.pool(), store, scope).await? else { return Ok(false) };
        if awaited.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= tell {
            note(&format!("waiting for {}; it stays paused if this is ended", names(&awaited)));
            tell = Instant::now() + TELL;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn given_up(database: &Database, store: Store, scope: &Scope) -> Result<Problem, Problem> {
    let awaited = operate::pause_awaits(database.pool(), store, scope).await?.unwrap_or_default();
    Ok(Problem::failed(format!(
        "{scope}: not waited for {}; it stays paused, and `queue-worker pauses` shows how many workers are to stop",
        names(&awaited)
    )))
}

/// So many are named.
const SHOWN: usize = 5;

fn names(awaited: &[Awaited]) -> String {
    let named: Vec<String> = awaited.iter().take(SHOWN).map(|one| format!("{} ({}:{})", one.name, one.host, one.pid)).collect();
    let more = awaited.len().saturating_sub(SHOWN);
    let workers = if awaited.len() == 1 { "worker" } else { "workers" };
    format!("{} {workers}: {}{}", awaited.len(), named.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

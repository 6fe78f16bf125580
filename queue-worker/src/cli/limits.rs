//! `limits`: how many jobs may run at once, or begin in a time.

use std::time::Duration;

use clap::Subcommand;
use queue_core::{
    Limit, Registry, Store,
    operate::{self, Filter, LimitFigures, LimitKey, LimitStatus},
};
use serde_json::json;

use super::{
    known_queue::{check_filter, check_names, near},
    noted::Noted,
    open::open_store,
    print,
    problem::{Problem, warn},
    settings::Settings,
    span::Span,
    values::{counted, whole_in},
};
use crate::live::Database;

/// What is done to a limit.
#[derive(Subcommand)]
pub(super) enum LimitsCommand {
    /// Set a limit for all workers, whatever code says: what is left out has no bound
    Set {
        /// `type:send_email`, `queue:mail`, or the name that types share
        name: String,
        /// How many run at once, or `none`
        #[arg(long, value_name = "N|none", value_parser = concurrency)]
        concurrency: Option<Bound<u32>>,
        /// How many begin in which time, such as 30/1m, or `none`
        #[arg(long, value_name = "N/PERIOD|none", value_parser = rate)]
        rate: Option<Bound<(u32, Duration)>>,
        /// How many of the rate begin close together
        #[arg(long, value_name = "N", value_parser = whole_in::<u32>(1..=Limit::MOST_STARTS), requires = "rate")]
        burst: Option<u32>,
        /// Why, for whoever wonders: up to 1000 characters
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The figures are those of each key
        #[arg(long)]
        per_key: bool,
        /// Of this key only: how many of its jobs run at once; `none` is what the limit says of each key
        #[arg(long, value_name = "KEY", requires = "concurrency", conflicts_with_all = ["rate", "burst", "reason", "per_key"])]
        key: Option<String>,
    },
    /// Show the keys of a limit by key: what they hold, and what waits
    Keys {
        /// The limit's name
        name: String,
    },
    /// Take away what was set, so that code's word holds again
    Unset {
        /// The limit's name
        name: String,
    },
}

/// A figure, or none.
#[derive(Clone, Copy)]
pub(super) struct Bound<T>(Option<T>);

fn concurrency(text: &str) -> Result<Bound<u32>, String> {
    if text == "none" {
        return Ok(Bound(None));
    }
    text.parse().map(|most| Bound(Some(most))).map_err(|_| "expected a whole number from 0 to 1000000, or `none`".to_owned())
}

/// How a rate is written.
const RATE: &str = "how many in how long, such as `30/1m`, or `none`";

fn rate(text: &str) -> Result<Bound<(u32, Duration)>, String> {
    if text == "none" {
        return Ok(Bound(None));
    }
    let parts = text.split_once('/').and_then(|(starts, period)| Some((starts.parse().ok()?, period)));
    let (starts, period) = parts.ok_or(RATE)?;
    let period: Span = period.parse().map_err(|error| format!("{RATE}: {error}"))?;
    Ok(Bound(Some((starts, period.0))))
}

/// Does what was said, and shows the limits.
pub(super) async fn limits(settings: &Settings, command: Option<LimitsCommand>, as_json: bool) -> Result<(), Problem> {
    if let Some(LimitsCommand::Set { name, concurrency: None, rate: None, .. }) = &command {
        return Err(Problem::usage(format!("nothing is said of the limit `{name}`; give `--concurrency`, `--rate` or both")));
    }
    let (database, store) = open_store(settings).await?;
    let mut only = None;
    match command {
        None => {}
        Some(LimitsCommand::Keys { name }) => {
            let found = operate::limit_keys(database.pool(), store, &name).await?;
            database.close().await;
            return keys(&name, &found, as_json);
        }
        Some(LimitsCommand::Set { name, concurrency, key: Some(key), .. }) => {
            let mut noted = Noted::begin(database.pool(), store).await?;
            operate::set_limit_key(&mut *noted, store, &name, &key, concurrency.and_then(|bound| bound.0)).await?;
            noted.commit("limited", format!("key {key} of limit {name}"), 0).await?;
            let found = operate::limit_keys(database.pool(), store, &name).await?;
            if let Some(fix) = unknown(&database, store, &name).await? {
                warn(&format!("no type has used the limit `{name}` so far, so this has no effect yet; {fix}"));
            }
            database.close().await;
            return keys(&name, &found, as_json);
        }
        Some(LimitsCommand::Set { name, concurrency, rate, burst, reason, per_key, key: None }) => {
            let mut limit = Limit::new();
            limit.keyed = per_key;
            limit.concurrency = concurrency.and_then(|bound| bound.0);
            limit.rate = rate.and_then(|bound| bound.0);
            limit.burst = burst;
            let covered = covered(&name);
            check_names(&covered)?;
            let mut noted = Noted::begin(database.pool(), store).await?;
            operate::set_limit(&mut *noted, store, &name, limit, reason.as_deref()).await?;
            noted.commit("limited", format!("limit {name}"), 0).await?;
            warn_of_unknown(&database, store, &name, &covered).await?;
            only = Some(name);
        }
        Some(LimitsCommand::Unset { name }) => {
            let mut noted = Noted::begin(database.pool(), store).await?;
            if !operate::unset_limit(&mut *noted, store, &name).await? {
                return Err(Problem::refused(format!("{name}: nobody has set this limit; `queue-worker limits` shows those there are")));
            }
            noted.commit("unlimited", format!("limit {name}"), 0).await?;
            only = Some(name);
        }
    }
    let mut found = operate::limits(database.pool(), store).await?;
    database.close().await;
    found.retain(|limit| only.as_ref().is_none_or(|name| limit.name == *name));
    if as_json {
        return print::json(&json!({ "limits": found }));
    }
    match (only, found.as_slice()) {
        (Some(name), []) => print::lines(&format!("{name}: no limit any more")),
        (None, []) => print::lines("there is no limit"),
        (_, found) => print::lines(&table(found)),
    }
}

/// The queue or the job type that a limit applies to if its name says so.
fn covered(name: &str) -> Filter {
    match name.split_once(':') {
        Some(("queue", queue)) => Filter { queue: Some(queue.to_owned()), ..Filter::default() },
        Some(("type", job_type)) => Filter::default().job_type(job_type),
        _ => Filter::default(),
    }
}

/// Warns if a limit of this name applies to nothing that is known.
async fn warn_of_unknown(database: &Database, store: Store, name: &str, covered: &Filter) -> Result<(), Problem> {
    if *covered != Filter::default() {
        return check_filter(database, store, covered).await;
    }
    let Some(fix) = unknown(database, store, name).await? else { return Ok(()) };
    match name.split_once(':') {
        Some((kind, _)) => {
            warn(&format!("`{kind}:` is no kind of limit; write `queue:NAME` or `type:NAME`, unless types share a limit of this name"));
        }
        None => warn(&format!("no type has used the limit `{name}` so far; {fix}")),
    }
    Ok(())
}

/// What to do about a limit that no code has, in the store or in this binary, and whose name says neither a queue nor a type; none if it is known.
async fn unknown(database: &Database, store: Store, name: &str) -> Result<Option<String>, Problem> {
    let types = Registry::linked().unwrap_or_default();
    let of_types = types.names().flat_map(|(_, found)| found.options().limits).filter_map(|limit| limit.name.map(str::to_owned));
    let mut stored = operate::limits(database.pool(), store).await?;
    stored.retain(|limit| limit.in_code.is_some() || covered(&limit.name) != Filter::default());
    let known: Vec<String> = stored.into_iter().map(|limit| limit.name).chain(of_types).collect();
    Ok((!known.iter().any(|known| known == name)).then(|| near(name, known).unwrap_or_else(|| "it takes effect once one does".to_owned())))
}

/// The keys that hold permits or wait.
fn keys(name: &str, found: &[LimitKey], as_json: bool) -> Result<(), Problem> {
    if as_json {
        return print::json(&json!({ "limit": name, "keys": found }));
    }
    if found.is_empty() {
        return print::lines(&format!("{name}: no key holds a permit, waits, or has a bound of its own"));
    }
    let rows = found.iter().map(|found| {
        let key = match &found.key {
            Some(key) => key.clone(),
            None if found.line == 0 => "(no key)".to_owned(),
            None => format!("line {}", found.line),
        };
        let next = found.next_ms.map(|ms| format!("in {}", humantime::format_duration(Duration::from_millis(ms.max(0.0).ceil() as u64))));
        let own = found.concurrency.map(|most| format!("{most} at once")).unwrap_or_default();
        [key, own, found.used.to_string(), counted(found.waiting, found.partial), next.unwrap_or_default()]
    });
    print::lines(&print::table(["key", "of its own", "used", "waiting", "next"], rows))
}

fn table(limits: &[LimitStatus]) -> String {
    let rows = limits.iter().map(|limit| {
        let by = if limit.by_operator { limit.set_by.clone() } else { "code".to_owned() };
        let next = match (limit.awaits, limit.next_ms) {
            (0, None) => String::new(),
            (0, Some(ms)) => format!("in {}", humantime::format_duration(Duration::from_millis(ms))),
            (workers, _) => format!("once {workers} workers know it"),
        };
        let reason = limit.reason.clone().unwrap_or_default();
        let overridden = limit.in_code.filter(|_| limit.by_operator).map(|code| format!("code: {}", told(code))).unwrap_or_default();
        let why = [reason, overridden].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let figures = if limit.keyed { format!("{} of each key", told(limit.figures)) } else { told(limit.figures) };
        [limit.name.clone(), figures, limit.used.to_string(), counted(limit.waiting, limit.partial), next, by, why]
    });
    print::table(["limit", "in force", "used", "waiting", "next", "by", "why"], rows)
}

/// In words: `3 at once, 30/1m, burst 5`.
fn told(figures: LimitFigures) -> String {
    let concurrency = figures.concurrency.map(|most| format!("{most} at once"));
    let rate = figures.starts.zip(figures.period());
    let rate = rate.map(|(starts, period)| format!("{starts}/{}", Span(period)));
    let burst = figures.burst.map(|burst| format!("burst {burst}"));
    let all: Vec<String> = [concurrency, rate, burst].into_iter().flatten().collect();
    if all.is_empty() { "no bound".to_owned() } else { all.join(", ") }
}

//! `limits` command: shows and sets concurrency limits and rate limits.

use std::time::Duration;

use clap::Subcommand;
use queue_core::{
    Queue, Store,
    operate::{Filter, LimitKey, LimitStatus, LimitValues},
    options::Limit,
    registry::Registry,
};
use serde_json::json;

use super::{
    audit::AuditedTransaction,
    name_check::{check_filter, check_names, suggest_name},
    open::open_store,
    print,
    problem::{Problem, warn},
    settings::Settings,
    span::Span,
    values::{counted, whole_in},
};
use crate::live::Database;

/// Subcommands of `limits`.
#[derive(Subcommand)]
pub(super) enum LimitsCommand {
    /// Set a limit for all workers, overriding the limit in code; omitted bounds are removed
    Set {
        /// Limit name: `type:send_email`, `queue:mail`, or the name of a shared limit
        name: String,
        /// Maximum number of running jobs, or `none`
        #[arg(long, value_name = "N|none", value_parser = concurrency)]
        concurrency: Option<LimitBound<u32>>,
        /// Maximum number of starts per period, such as 30/1m, or `none`
        #[arg(long, value_name = "N/PERIOD|none", value_parser = rate)]
        rate: Option<LimitBound<(u32, Duration)>>,
        /// Maximum number of starts in a burst
        #[arg(long, value_name = "N", value_parser = whole_in::<u32>(1..=Limit::MOST_STARTS), requires = "rate")]
        burst: Option<u32>,
        /// Reason to show to other operators, up to 1000 characters
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Apply the bounds to each key separately
        #[arg(long)]
        per_key: bool,
        /// Set only the maximum number of running jobs of this key; `--concurrency none` restores the limit's bound per key
        #[arg(long, value_name = "KEY", requires = "concurrency", conflicts_with_all = ["rate", "burst", "reason", "per_key"])]
        key: Option<String>,
    },
    /// Show the keys of a keyed limit with their held permits and waiting jobs
    Keys {
        /// Limit name
        name: String,
    },
    /// Remove a limit set by an operator; the limit declared in code applies again
    Unset {
        /// Limit name
        name: String,
    },
}

/// Bound given on the command line. Contains `None` for the argument `none`.
#[derive(Clone, Copy)]
pub(super) struct LimitBound<T>(Option<T>);

fn concurrency(text: &str) -> Result<LimitBound<u32>, String> {
    if text == "none" {
        return Ok(LimitBound(None));
    }
    text.parse().map(|most| LimitBound(Some(most))).map_err(|_| "expected a whole number from 0 to 1000000 or `none`".to_owned())
}

/// Error message that states the expected format of a rate.
const RATE: &str = "expected starts per period, such as `30/1m`, or `none`";

fn rate(text: &str) -> Result<LimitBound<(u32, Duration)>, String> {
    if text == "none" {
        return Ok(LimitBound(None));
    }
    let parts = text.split_once('/').and_then(|(starts, period)| Some((starts.parse().ok()?, period)));
    let (starts, period) = parts.ok_or(RATE)?;
    let period: Span = period.parse().map_err(|error| format!("{RATE}: {error}"))?;
    Ok(LimitBound(Some((starts, period.0))))
}

/// Runs a subcommand. `set` and `unset` print the changed limit. `keys` and `set --key` print the keys of the limit. Without a subcommand,
/// prints all limits.
pub(super) async fn limits(settings: &Settings, command: Option<LimitsCommand>, as_json: bool) -> Result<(), Problem> {
    if let Some(LimitsCommand::Set { name, concurrency: None, rate: None, .. }) = &command {
        return Err(Problem::usage(format!("no bounds are given for the limit `{name}`; give `--concurrency`, `--rate` or both")));
    }
    let (database, store) = open_store(settings).await?;
    let mut only = None;
    match command {
        None => {}
        Some(LimitsCommand::Keys { name }) => {
            let found = database.queue().store(store).limit_keys(&name).await?;
            database.close().await;
            return print_keys(&name, &found, as_json);
        }
        Some(LimitsCommand::Set { name, concurrency, key: Some(key), .. }) => {
            let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
            Queue::on(&mut tx).store(store).set_limit_key(&name, &key, concurrency.and_then(|bound| bound.0)).await?;
            tx.commit("limited", format!("key {key} of limit {name}"), 0).await?;
            let found = database.queue().store(store).limit_keys(&name).await?;
            if let Some(fix) = advice_if_unknown(&database, store, &name).await? {
                warn(&format!("no type has used the limit `{name}` so far, so this has no effect yet; {fix}"));
            }
            database.close().await;
            return print_keys(&name, &found, as_json);
        }
        Some(LimitsCommand::Set { name, concurrency, rate, burst, reason, per_key, key: None }) => {
            let mut limit = Limit::new();
            limit.keyed = per_key;
            limit.concurrency = concurrency.and_then(|bound| bound.0);
            limit.rate = rate.and_then(|bound| bound.0);
            limit.burst = burst;
            let covered = filter_of_limit(&name);
            check_names(&covered)?;
            let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
            Queue::on(&mut tx).store(store).set_limit(&name, limit, reason.as_deref()).await?;
            tx.commit("limited", format!("limit {name}"), 0).await?;
            warn_if_unknown(&database, store, &name, &covered).await?;
            only = Some(name);
        }
        Some(LimitsCommand::Unset { name }) => {
            let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
            if !Queue::on(&mut tx).store(store).unset_limit(&name).await? {
                return Err(Problem::refused(format!("{name}: no operator has set this limit; `queue-worker limits` lists the limits")));
            }
            tx.commit("unlimited", format!("limit {name}"), 0).await?;
            only = Some(name);
        }
    }
    let mut found = database.queue().store(store).limits().await?;
    database.close().await;
    found.retain(|limit| only.as_ref().is_none_or(|name| limit.name == *name));
    if as_json {
        return print::json(&json!({ "limits": found }));
    }
    match (only, found.as_slice()) {
        (Some(name), []) => print::lines(&format!("{name}: no longer limited")),
        (None, []) => print::lines("no limits"),
        (_, found) => print::lines(&table(found)),
    }
}

/// Returns a filter for the queue or job type that the limit's name contains. The filter is empty for a shared limit.
fn filter_of_limit(name: &str) -> Filter {
    match name.split_once(':') {
        Some(("queue", queue)) => Filter { queue: Some(queue.to_owned()), ..Filter::default() },
        Some(("type", job_type)) => Filter::default().job_type(job_type),
        _ => Filter::default(),
    }
}

/// Warns if the limit has no effect, because its queue or job type is unknown, or because no job type uses the shared limit.
async fn warn_if_unknown(database: &Database, store: Store, name: &str, covered: &Filter) -> Result<(), Problem> {
    if *covered != Filter::default() {
        return check_filter(database, store, covered).await;
    }
    let Some(fix) = advice_if_unknown(database, store, name).await? else { return Ok(()) };
    match name.split_once(':') {
        Some((kind, _)) => {
            warn(&format!("`{kind}:` is not a kind of limit; write `queue:NAME` or `type:NAME`, unless types share a limit of this name"));
        }
        None => warn(&format!("no type has used the limit `{name}` so far; {fix}")),
    }
    Ok(())
}

/// Returns advice for an unknown limit, or `None` for a known limit. A limit is known if this binary or a worker's code declares it. A
/// stored limit of a queue or job type is known as well.
async fn advice_if_unknown(database: &Database, store: Store, name: &str) -> Result<Option<String>, Problem> {
    let types = Registry::linked().unwrap_or_default();
    let of_types = types.names().flat_map(|(_, found)| found.options().limits).filter_map(|limit| limit.name.map(str::to_owned));
    let mut stored = database.queue().store(store).limits().await?;
    stored.retain(|limit| limit.in_code.is_some() || filter_of_limit(&limit.name) != Filter::default());
    let known: Vec<String> = stored.into_iter().map(|limit| limit.name).chain(of_types).collect();
    Ok((!known.iter().any(|known| known == name))
        .then(|| suggest_name(name, known).unwrap_or_else(|| "it takes effect once one does".to_owned())))
}

/// Prints the keys of a limit that hold permits, have waiting jobs or have a bound of their own.
fn print_keys(name: &str, found: &[LimitKey], as_json: bool) -> Result<(), Problem> {
    if as_json {
        return print::json(&json!({ "limit": name, "keys": found }));
    }
    if found.is_empty() {
        return print::lines(&format!("{name}: no key holds a permit, waits, or has a bound of its own"));
    }
    let rows = found.iter().map(|found| {
        let key = match &found.key {
            Some(key) => key.clone(),
            None if found.fair_id == 0 => "(no key)".to_owned(),
            None => format!("fair queue {}", found.fair_id),
        };
        let next = found.next_ms.map(|ms| format!("in {}", humantime::format_duration(Duration::from_millis(ms.max(0.0).ceil() as u64))));
        let own = found.concurrency.map(|most| format!("{most} at once")).unwrap_or_default();
        [key, own, found.used.to_string(), counted(found.waiting, found.partial), next.unwrap_or_default()]
    });
    print::lines(&print::table(["key", "own bound", "used", "waiting", "next"], rows))
}

fn table(limits: &[LimitStatus]) -> String {
    let rows = limits.iter().map(|limit| {
        let by = if limit.by_operator { limit.set_by.clone() } else { "code".to_owned() };
        let next = match (limit.awaits, limit.next_ms) {
            (0, None) => String::new(),
            (0, Some(ms)) => format!("in {}", humantime::format_duration(Duration::from_millis(ms))),
            (workers, _) => format!("after {workers} workers acknowledge it"),
        };
        let reason = limit.reason.clone().unwrap_or_default();
        let overridden =
            limit.in_code.filter(|_| limit.by_operator).map(|code| format!("code: {}", describe_bounds(code))).unwrap_or_default();
        let why = [reason, overridden].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let figures = if limit.keyed { format!("{} per key", describe_bounds(limit.figures)) } else { describe_bounds(limit.figures) };
        [limit.name.clone(), figures, limit.used.to_string(), counted(limit.waiting, limit.partial), next, by, why]
    });
    print::table(["limit", "in force", "used", "waiting", "next", "by", "why"], rows)
}

/// Formats bounds, for example as `3 at once, 30/1m, burst 5`.
fn describe_bounds(figures: LimitValues) -> String {
    let concurrency = figures.concurrency.map(|most| format!("{most} at once"));
    let rate = figures.starts.zip(figures.period());
    let rate = rate.map(|(starts, period)| format!("{starts}/{}", Span(period)));
    let burst = figures.burst.map(|burst| format!("burst {burst}"));
    let all: Vec<String> = [concurrency, rate, burst].into_iter().flatten().collect();
    if all.is_empty() { "no bound".to_owned() } else { all.join(", ") }
}

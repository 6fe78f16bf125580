//! `jobs` command: lists the job types of this binary. Needs no database.

use std::time::Duration;

use humantime::format_duration;
use queue_core::{
    options::{Options, Retain},
    registry::{Registration, Registry, RegistryError},
};
use serde::Serialize;

use super::{print, problem::Problem};
use crate::error::Error;

/// Job type in the `--json` output.
#[derive(Serialize)]
struct JobType {
    name: &'static str,
    aliases: &'static [&'static str],
    queue: &'static str,
    priority: i16,
    max_attempts: i16,
    /// Delays in milliseconds after the first, second and third failed attempt, without jitter.
    backoff_ms: [u64; 3],
    timeout_ms: Option<u64>,
    retain: String,
    state: Vec<&'static str>,
    rust_type: &'static str,
}

pub(super) fn jobs(as_json: bool) -> Result<(), Problem> {
    let registry = Registry::linked().map_err(Error::from)?;
    if as_json {
        return print::json(&registry.types().map(JobType::of).collect::<Vec<_>>());
    }
    if registry.is_empty() {
        return print::lines(&RegistryError::Empty.to_string());
    }
    let rows = registry.types().map(|registration| {
        let options = registration.options();
        [
            std::iter::once(&options.name).chain(options.aliases).copied().collect::<Vec<_>>().join(", "),
            options.queue.to_owned(),
            options.priority.to_string(),
            options.max_attempts.to_string(),
            waits(options).map(|wait| format_duration(wait).to_string()).join(", ") + " ..",
            options.timeout.map_or_else(|| "none".to_owned(), |timeout| format_duration(timeout).to_string()),
            retain(options),
            registration.rust_type().to_owned(),
        ]
    });
    print::lines(&print::table(["type", "queue", "priority", "attempts", "retried after", "timeout", "kept", "rust type"], rows))
}

impl JobType {
    fn of(registration: &Registration) -> Self {
        let options = registration.options();
        Self {
            name: options.name,
            aliases: options.aliases,
            queue: options.queue,
            priority: options.priority,
            max_attempts: options.max_attempts,
            backoff_ms: waits(options).map(|wait| wait.as_millis() as u64),
            timeout_ms: options.timeout.map(|timeout| timeout.as_millis() as u64),
            retain: retain(options),
            state: options.state.iter().map(|key| key.name()).collect(),
            rust_type: registration.rust_type(),
        }
    }
}

fn waits(options: &Options) -> [Duration; 3] {
    [1, 2, 3].map(|attempt| options.backoff.wait(attempt, 0.5))
}

fn retain(options: &Options) -> String {
    match options.retain {
        Retain::None => "none".to_owned(),
        Retain::For(history) => format_duration(history).to_string(),
        _ => "default".to_owned(),
    }
}

//! Reports the outcome of each operation, as a table for humans and as a line of JSON for programs.

use std::time::Duration;

use anyhow::Error;
use serde::Serialize;

use super::play::Skip;

/// Outcome of one operation, with a reason unless the operation succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    /// The server or a pooler does not support or permit the operation.
    Refused(String),
    Failed(String),
    Skipped(String),
}

#[derive(Debug, Serialize)]
struct Line {
    operation: String,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    ms: u64,
}

/// Outcomes of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    server: Option<String>,
    setup: String,
    /// Reason why no operation was run, or `None` if the setup was available.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_because: Option<String>,
    passed: usize,
    refused: usize,
    failed: usize,
    skipped: usize,
    ms: u64,
    operations: Vec<Line>,
    /// Whether to print only the line of JSON.
    #[serde(skip)]
    only_json: bool,
}

/// SQLSTATEs of unsupported features, missing privileges and read-only transactions.
const REFUSALS: [&str; 3] = ["0A000", "42501", "25006"];

/// Column width for the names of operations. A test checks that no name is longer.
pub(super) const WIDTH: usize = 76;

impl Outcome {
    pub(super) fn of(error: &Error) -> Self {
        if let Some(skip) = error.downcast_ref::<Skip>() {
            return Self::Skipped(skip.to_string());
        }
        let code = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Database(error)) => error.code().map(std::borrow::Cow::into_owned),
            _ => None,
        };
        let is_refusal = |cause: &(dyn std::error::Error + 'static)| {
            let refused = code(cause).is_some_and(|code| REFUSALS.contains(&code.as_str()));
            refused || matches!(cause.downcast_ref(), Some(queue_worker::Error::Pooler))
        };
        let why = one_line(&format!("{error:#}"));
        if error.chain().any(is_refusal) { Self::Refused(why) } else { Self::Failed(why) }
    }

    fn parts(self) -> (&'static str, Option<String>) {
        match self {
            Self::Ok => ("ok", None),
            Self::Refused(why) => ("refused", Some(why)),
            Self::Failed(why) => ("failed", Some(why)),
            Self::Skipped(why) => ("skipped", Some(why)),
        }
    }
}

fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() > LONGEST { text.chars().take(LONGEST).chain(['…']).collect() } else { text }
}

impl Report {
    /// Creates an empty report. Prints the head of the table unless `only_json` is set.
    pub(super) fn new(setup: &str, server: String, only_json: bool) -> Self {
        if !only_json {
            println!("{setup} on {server}\n{:WIDTH$} | {:>6} | result", "operation", "ms");
        }
        Self { server: Some(server), only_json, ..Self::none(setup) }
    }

    /// Creates the report for a setup that is not available on this machine. The report is printed only as JSON, because the reason has
    /// been printed already.
    pub(super) fn skipped(setup: &str, why: &str) -> Self {
        Self { skipped_because: Some(why.to_owned()), only_json: true, ..Self::none(setup) }
    }

    fn none(setup: &str) -> Self {
        let (server, setup, skipped_because) = (None, setup.to_owned(), None);
        Self {
            server,
            setup,
            skipped_because,
            passed: 0,
            refused: 0,
            failed: 0,
            skipped: 0,
            ms: 0,
            operations: Vec::new(),
            only_json: false,
        }
    }

    pub(super) fn add(&mut self, operation: String, outcome: Outcome, took: Duration) {
        let count = match outcome {
            Outcome::Ok => &mut self.passed,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Skipped(_) => &mut self.skipped,
        };
        *count += 1;
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.ms += ms;
        let (result, why) = outcome.parts();
        if !self.only_json {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            println!("{operation:WIDTH$} | {ms:>6} | {result}{why}");
        }
        self.operations.push(Line { operation, result, why, ms });
    }

    /// Records the reason why the run did not finish.
    pub(super) fn note(&mut self, operation: &str, why: String) {
        self.add(operation.to_owned(), Outcome::Failed(why), Duration::ZERO);
    }

    /// Returns whether no operation failed or was refused.
    pub(super) fn holds(&self) -> bool {
        self.failed == 0 && self.refused == 0
    }

    /// Prints the totals for humans, then the whole report as a line of JSON.
    pub(super) fn print(&self) {
        if !self.only_json {
            let Self { passed, refused, failed, skipped, ms, .. } = self;
            println!("{passed} ok, {refused} refused, {failed} failed, {skipped} skipped, in {:.1} s", *ms as f64 / 1000.0);
        }
        match serde_json::to_string(self) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("conformance: {error}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::play::skip;

    #[test]
    fn refusals_are_distinguished_from_failures() {
        let of = |error: Error| Outcome::of(&error).parts().0;
        assert_eq!(of(queue_worker::Error::Pooler.into()), "refused");
        assert_eq!(of(anyhow::anyhow!("something\n else").context("more")), "failed");
        assert_eq!(of(skip::<()>("not here").unwrap_err()), "skipped");
        assert_eq!(one_line("a\n  b"), "a b");
    }

    #[test]
    fn operation_names_are_unique_and_fit() {
        let all = crate::GROUPS.iter().flat_map(|group| group.operations.iter().map(move |one| format!("{}: {}", group.name, one.name)));
        let mut names: Vec<String> = all.collect();
        assert!(names.iter().all(|name| name.chars().count() <= WIDTH), "{names:?}");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_run_holds_only_without_failures_and_refusals() {
        for (outcome, holds) in [
            (Outcome::Ok, true),
            (Outcome::Skipped("why".to_owned()), true),
            (Outcome::Refused("why".to_owned()), false),
            (Outcome::Failed("why".to_owned()), false),
        ] {
            let mut report = Report::new("plain", "a server".to_owned(), true);
            report.add("one".to_owned(), outcome, Duration::from_millis(3));
            assert_eq!(report.holds(), holds);
            assert_eq!(serde_json::to_value(&report).unwrap()["operations"][0]["ms"], 3);
        }
    }
}

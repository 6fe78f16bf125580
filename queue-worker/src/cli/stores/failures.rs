//! Failures of individual stores, reported together with the results of the other stores.

use std::process::ExitCode;

use queue_core::Error;
use serde::Serialize;

use crate::{
    cli::problem::{FAILED, Problem},
    error,
    program::commands,
};

/// Store that failed or did not respond, with the error.
#[derive(Debug, Serialize)]
pub(super) struct FailedStore {
    pub(super) store: String,
    pub(super) error: String,
}

impl FailedStore {
    pub(super) fn of(store: &str, why: impl Into<String>) -> Self {
        Self { store: store.to_owned(), error: commands(&why.into()).into_owned() }
    }

    /// Creates the failure of `store` from its error. Commands that the error suggests as fixes are replaced by their `stores` variants.
    pub(super) fn from(store: &str, error: &Error) -> Self {
        Self::of(store, why(error))
    }

    pub(super) fn problem(&self) -> Problem {
        Problem::failed(format!("the store `{}`: {}", self.store, self.error))
    }
}

fn why(error: &Error) -> String {
    match error {
        Error::NotMigrated { schema } => format!(
            "the schema `{schema}` holds no job queue; create it with `queue-worker stores migrate --all`, or remove the store with \
             `queue-worker stores remove`"
        ),
        Error::OlderSchema { schema, found, known } => format!(
            "the schema `{schema}` is at version {found}, older than this release's {known}; run `queue-worker stores migrate --all`"
        ),
        Error::Database(sqlx::Error::PoolTimedOut) => {
            "it has not answered for ten seconds; check its server, and locks on its tables".to_owned()
        }
        Error::Database(of_driver) => error::error_message(of_driver),
        other => other.to_string(),
    }
}

/// Prints the failed stores to stderr. Returns the exit code for a failure if any store failed. Otherwise returns `code`.
pub(super) fn report_failures(failed: &[FailedStore], code: ExitCode) -> ExitCode {
    for trouble in failed {
        trouble.problem().report();
    }
    if failed.is_empty() { code } else { ExitCode::from(FAILED) }
}

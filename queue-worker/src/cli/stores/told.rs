//! What is told of stores that have not answered, beside the answers of the others.

use std::process::ExitCode;

use queue_core::Error;
use serde::Serialize;

use crate::{
    cli::problem::{FAILED, Problem},
    error,
    program::commands,
};

/// Why a store has not answered.
#[derive(Debug, Serialize)]
pub(super) struct Trouble {
    pub(super) store: String,
    pub(super) error: String,
}

impl Trouble {
    pub(super) fn of(store: &str, why: impl Into<String>) -> Self {
        Self { store: store.to_owned(), error: commands(&why.into()).into_owned() }
    }

    /// With what helps here.
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
            "the schema `{schema}` holds no job queue; make it with `queue-worker stores migrate --all`, or take the store off with \
             `queue-worker stores remove`"
        ),
        Error::OlderSchema { schema, found, known } => format!(
            "the schema `{schema}` is at version {found}, older than this release's {known}; run `queue-worker stores migrate --all`"
        ),
        Error::Database(sqlx::Error::PoolTimedOut) => {
            "it has not answered for ten seconds; see whether its server is well, and who has locked its tables".to_owned()
        }
        Error::Database(of_driver) => error::said(of_driver),
        other => other.to_string(),
    }
}

/// Says on stderr which stores have not answered, and returns the exit code that goes with it: this one if all have.
pub(super) fn tell(failed: &[Trouble], code: ExitCode) -> ExitCode {
    for trouble in failed {
        trouble.problem().report();
    }
    if failed.is_empty() { code } else { ExitCode::from(FAILED) }
}

//! Flow or map that waits for a job's end: the part of the column `job.system` that an enqueue sets.

use serde::Serialize;

use crate::{error::Error, payload};

/// Maximum size as JSON in bytes. The database adds up to 110 bytes, and stores up to 4096.
const LIMIT: usize = 3900;

/// What waits for a job's end. For a child, `queue.spawn` writes it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Membership {
    /// The flow with this name, of which the job is a node.
    NodeOf(String),
    /// The map or node of which the job is a part, as `JOB/NAME`.
    PartOf(String),
}

impl Membership {
    /// Checks that the database can store it.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |error| Error::OutOfRange {
            what: "the name of a flow or map",
            value: format!("invalid: {error}"),
            range: "at most 3,900 bytes of text without NUL",
        };
        payload::encode(self, LIMIT).map(drop).map_err(wrong)
    }
}

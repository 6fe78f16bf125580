//! Membership of a job in a flow or a map: the part of the column `job.system` that an enqueue sets.

use serde::Serialize;

use crate::{error::Error, payload};

/// Maximum size in bytes of the membership as JSON text. The database adds up to 110 bytes, and stores up to 4096 bytes.
const LIMIT: usize = 3900;

/// Flow or map that waits until the job ends. For a child, `queue.spawn` writes the parent instead.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Membership {
    /// Name of the flow of which the job is a node.
    NodeOf(String),
    /// Map, or node with many jobs, of which the job is a part, as `JOB/NAME`.
    PartOf(String),
}

impl Membership {
    /// Checks that the database can store the membership.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |error| Error::OutOfRange {
            what: "the name of a flow or map",
            value: format!("invalid: {error}"),
            range: "at most 3,900 bytes of text without NUL",
        };
        payload::encode(self, LIMIT).map(drop).map_err(wrong)
    }
}

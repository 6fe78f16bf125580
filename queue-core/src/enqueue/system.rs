//! Which flow or map waits for the end of a job: the part of the column `job.system` that an enqueue gives.

use serde::Serialize;

use crate::{error::Error, payload};

/// The most bytes that it has as JSON. The database adds up to 110 of its own to it, and holds 4096.
const LIMIT: usize = 3900;

/// What waits for the end of a job. Of a child it is written by `queue.spawn`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    /// The flow of this name: the job is a node of it.
    NodeOf(String),
    /// The map or node that it is a part of, as `JOB/NAME`.
    PartOf(String),
}

impl Awaited {
    /// Whether the database can hold it.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |error| Error::OutOfRange {
            what: "the name of a flow or map",
            value: format!("wrong: {error}"),
            range: "at most 3,900 bytes of text without NUL",
        };
        payload::encode(self, LIMIT).map(drop).map_err(wrong)
    }
}

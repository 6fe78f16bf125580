//! What the store keeps of a job beside its metadata.

use serde::Serialize;

use crate::{error::Error, payload};

/// A name in it has at most so many bytes as JSON.
const LIMIT: usize = 4096;

/// For whom a job is enqueued, who waits for its end. That of a child is written by `queue.spawn`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum System {
    /// A node of the flow of this name.
    NodeOf(String),
    /// A part of this map, or node: the job, and the name that it goes by there.
    PartOf(String),
}

impl System {
    /// Whether the database can hold it.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |error| Error::OutOfRange {
            what: "the name of a flow or map",
            value: format!("wrong: {error}"),
            range: "at most 4 KiB of text without NUL",
        };
        payload::encode(self, LIMIT).map(drop).map_err(wrong)
    }
}

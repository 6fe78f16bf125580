//! Membership of a job in a flow or a map. An enqueue writes the membership to the column `job.system`.

use serde::Serialize;

use crate::{error::Error, payload};

/// Maximum size in bytes of the membership as JSON text. The column stores at most 4096 bytes, and the database adds up to 110 bytes of
/// other attributes to the membership.
const LIMIT: usize = 3900;

/// Flow or map that contains the job and waits until the job ends. Not used for children of durable jobs, because `queue.spawn` records
/// their parents.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Membership {
    /// Name of the flow that contains the job as a node.
    NodeOf(String),
    /// Map, or node with many jobs, that contains the job as a part. The text has the form `JOB/NAME`: the id of the job that waits for
    /// the parts, and the name of the gather that counts the parts.
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

//! Payload lock file, a text file in the user's repository. The file contains payloads that earlier releases may have enqueued, one
//! payload per line.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

/// Payload for the lock file, with its job type and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockedPayload {
    pub(super) job_type: String,
    pub(super) version: u16,
    pub(super) payload: Value,
}

const HEADER: &str = "\
# Payloads that releases of this program enqueue: job type, version, JSON. A test checks that each can still be read, since jobs may be waiting.
# Written by `assert_payloads!`, with QUEUE_PAYLOADS=accept once this file exists. Remove a line only if no such job can be waiting any more.
";

/// Parses the lock file. An error message contains the number of the invalid line.
pub(super) fn parse(text: &str) -> Result<Vec<LockedPayload>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let locked = lines.map(|(number, line)| {
        let wrong = || format!("line {} does not consist of job type, version and payload", number + 1);
        let mut parts = line.splitn(3, ' ');
        let (Some(job_type), Some(version), Some(payload)) = (parts.next(), parts.next(), parts.next()) else { return Err(wrong()) };
        Ok(LockedPayload {
            job_type: job_type.to_owned(),
            version: version.parse().map_err(|_| wrong())?,
            payload: serde_json::from_str(payload).map_err(|_| wrong())?,
        })
    });
    locked.collect()
}

/// Returns the text of the lock file. The lines are sorted and have no duplicates, so the text does not depend on the order of the
/// payloads.
pub(super) fn write(locked: &[LockedPayload]) -> String {
    let lines: BTreeSet<(&str, u16, String)> = locked.iter().map(|it| (&*it.job_type, it.version, it.payload.to_string())).collect();
    lines.into_iter().fold(HEADER.to_owned(), |text, (job_type, version, payload)| format!("{text}{job_type} {version} {payload}\n"))
}

impl fmt::Display for LockedPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, version {}: {}", self.job_type, self.version, self.payload)
    }
}

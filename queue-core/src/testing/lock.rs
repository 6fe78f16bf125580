//! The payload lock file: what earlier releases may have enqueued, as text that goes into the repository, one payload a line.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

/// One payload that a release enqueues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Locked {
    pub(super) job_type: String,
    pub(super) version: u16,
    pub(super) payload: Value,
}

const HEADER: &str = "\
# Payloads that releases of this program enqueue: job type, version, JSON. A test checks that each can still be read, for jobs may be waiting.
# Written by `assert_payloads!`, with QUEUE_PAYLOADS=accept once this file is there. Take a line away only if no such job can be waiting any more.
";

/// Reads the file; or says which line is none of its lines.
pub(super) fn parse(text: &str) -> Result<Vec<Locked>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let locked = lines.map(|(number, line)| {
        let wrong = || format!("line {} is no job type, version and payload", number + 1);
        let mut parts = line.splitn(3, ' ');
        let (Some(job_type), Some(version), Some(payload)) = (parts.next(), parts.next(), parts.next()) else { return Err(wrong()) };
        Ok(Locked {
            job_type: job_type.to_owned(),
            version: version.parse().map_err(|_| wrong())?,
            payload: serde_json::from_str(payload).map_err(|_| wrong())?,
        })
    });
    locked.collect()
}

/// The file's text: in order, and each line once, so that it is the same whoever writes it.
pub(super) fn write(locked: &[Locked]) -> String {
    let lines: BTreeSet<(&str, u16, String)> = locked.iter().map(|it| (&*it.job_type, it.version, it.payload.to_string())).collect();
    lines.into_iter().fold(HEADER.to_owned(), |text, (job_type, version, payload)| format!("{text}{job_type} {version} {payload}\n"))
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, version {}: {}", self.job_type, self.version, self.payload)
    }
}

//! Histories of the processes. Each process appends lines to its own file, with one write per line. The lines therefore survive SIGKILL.
//!
//! Times are in microseconds since 1970. Each process reads the wall clock once, and adds the elapsed monotonic time.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Event in a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Line {
    /// A producer is about to enqueue the job with this number.
    Attempted(u64),
    /// The commit of the transaction that enqueued the job was acknowledged.
    Acked(u64),
    /// The transaction that enqueued the job was rolled back, and the rollback was acknowledged.
    RolledBack(u64),
    /// A handler started. Fields: job number, job id, attempt.
    Start(u64, i64, u32),
    /// A handler returned. Fields: job number, job id, attempt, whether the handler succeeded.
    End(u64, i64, u32, bool),
    /// A handler was dropped before it returned. Fields: job number, attempt.
    Dropped(u64, u32),
    /// An attempt of a durable job performed an action. Fields: job number, attempt, action.
    DurableAction(u64, u32, DurableAction),
}

/// Action that an attempt of a durable job performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum DurableAction {
    /// A step performed its external effect. Fields: step name, idempotency key.
    Works(String, String),
    /// A step received a signal or timed out. Fields: step name, payload. The payload is `None` after a timeout.
    Heard(String, Option<u64>),
    /// The attempt reaches a point where it waits for other jobs. Field: name of the point.
    Joins(String),
    /// The attempt continues after the wait. Field: name of the point.
    Joined(String),
}

impl Line {
    /// Returns the number of the line's job.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Attempted(n)
            | Self::Acked(n)
            | Self::RolledBack(n)
            | Self::Start(n, ..)
            | Self::End(n, ..)
            | Self::Dropped(n, _)
            | Self::DurableAction(n, ..) => *n,
        }
    }
}

/// History of one process, with a file that stays open until the process exits.
pub(super) struct History {
    file: File,
    clock: Clock,
}

/// Wall clock that all processes share, monotonic within each process.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    base: u64,
    since: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        let base = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64;
        Self { base, since: Instant::now() }
    }

    /// Returns the current time in microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.base + self.since.elapsed().as_micros() as u64
    }
}

impl History {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, clock: Clock::new() })
    }

    /// Appends a line to the history.
    ///
    /// # Panics
    /// Panics if the line cannot be written, because an incomplete history proves nothing.
    pub(super) fn write(&self, line: &Line) {
        let mut text = serde_json::to_string(&(self.clock.now(), line)).unwrap_or_else(|error| panic!("cannot write the history: {error}"));
        text.push('\n');
        (&self.file).write_all(text.as_bytes()).unwrap_or_else(|error| panic!("cannot write the history: {error}"));
    }
}

/// Line that was read from a history file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: u64,
    /// Name of the process, which is the stem of the file name.
    pub(super) who: String,
    pub(super) line: Line,
}

/// Reads the lines of all processes in `folder`. An incomplete last line is skipped, because a killed process may leave one.
pub(super) fn read(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "history") {
            continue;
        }
        let who = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for (number, line) in lines.iter().enumerate() {
            match serde_json::from_str::<(u64, Line)>(line) {
                Ok((at, line)) => entries.push(Entry { at, who: who.clone(), line }),
                Err(_) if number + 1 == lines.len() && !line.ends_with('\n') => {}
                Err(error) => anyhow::bail!("{}:{}: {error}", path.display(), number + 1),
            }
        }
    }
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}

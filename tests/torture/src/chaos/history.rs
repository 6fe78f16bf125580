//! What each process says it did: lines appended to a file of its own, each with one write, so that they outlive its SIGKILL.
//!
//! Times are microseconds since 1970. Each process reads the wall clock once and counts on monotonically from there.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Line {
    /// A producer is about to enqueue the job of this number.
    Attempted(u64),
    /// Its commit was acknowledged.
    Acked(u64),
    /// It was rolled back, and the rollback acknowledged.
    RolledBack(u64),
    /// A handler began: number, job, attempt.
    Start(u64, i64, u32),
    /// It ended: number, job, attempt, whether it was well.
    End(u64, i64, u32, bool),
    /// It was dropped before its end: number, attempt.
    Dropped(u64, u32),
    /// What an attempt of a durable job did: number, attempt.
    Did(u64, u32, Did),
}

/// A part of an attempt of a durable job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Did {
    /// The effect of a step, under this key.
    Works(String, String),
    /// The signal that a step was given; none once its time was over.
    Heard(String, Option<u64>),
    /// It comes to where it waits for others.
    Joins(String),
    /// It goes on from there.
    Joined(String),
}

impl Line {
    /// The job's.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Attempted(n)
            | Self::Acked(n)
            | Self::RolledBack(n)
            | Self::Start(n, ..)
            | Self::End(n, ..)
            | Self::Dropped(n, _)
            | Self::Did(n, ..) => *n,
        }
    }
}

/// Whose lines: appended to, for the life of the process.
pub(super) struct History {
    file: File,
    clock: Clock,
}

/// One wall clock for all processes, which does not step within any.
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

    /// Microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.base + self.since.elapsed().as_micros() as u64
    }
}

impl History {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, clock: Clock::new() })
    }

    /// Appends one line.
    ///
    /// # Panics
    /// When it cannot: a history with holes proves nothing.
    pub(super) fn write(&self, line: &Line) {
        let mut text = serde_json::to_string(&(self.clock.now(), line)).unwrap_or_else(|error| panic!("cannot write the history: {error}"));
        text.push('\n');
        (&self.file).write_all(text.as_bytes()).unwrap_or_else(|error| panic!("cannot write the history: {error}"));
    }
}

/// A line as read back.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: u64,
    /// The file's stem: which process.
    pub(super) who: String,
    pub(super) line: Line,
}

/// All lines of all processes. The last line of a killed process may be half written.
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

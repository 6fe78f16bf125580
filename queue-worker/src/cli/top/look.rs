//! What `top` knows of a store: the answers to its questions, each as old as it is, and why one has none.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use queue_core::{
    JobState,
    operate::{Busiest, Figures, Histogram, JobRecord, Oldest, WorkerRecord},
};

/// The parts, each a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Queues,
    Workers,
    Running,
}

impl Part {
    pub(super) const ALL: [Self; 3] = [Self::Queues, Self::Workers, Self::Running];
}

/// What is known.
#[derive(Clone, Default)]
pub(super) struct Look {
    pub(super) schema: &'static str,
    /// What was seen last.
    pub(super) seen: Option<Seen>,
    /// Why nothing has been seen since.
    pub(super) away: Option<String>,
}

/// A part whose questions were refused has what was seen before, if anything was.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) queues: Vec<QueueFigures>,
    /// So many queues and types are not among them.
    pub(super) more: i64,
    /// Whether jobs were counted.
    pub(super) is_counted: bool,
    pub(super) workers: Option<Vec<WorkerRecord>>,
    pub(super) running: Option<Vec<JobRecord>>,
    /// Of the last minute, all queues together.
    pub(super) minute: Option<Figures>,
    /// What could not be seen last time.
    pub(super) refused: Vec<Refused>,
}

/// A question without an answer.
#[derive(Clone)]
pub(super) struct Refused {
    pub(super) part: Part,
    pub(super) what: &'static str,
    /// Inert.
    pub(super) why: String,
    /// When it was answered last.
    pub(super) since: Option<Instant>,
}

/// A queue now, and in the last minute.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueFigures {
    pub(super) name: String,
    pub(super) ready: i64,
    pub(super) later: i64,
    pub(super) running: i64,
    pub(super) dead: i64,
    /// Whether there may be more.
    pub(super) partial: bool,
    pub(super) oldest: Option<Duration>,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) rate: f64,
    pub(super) start: Histogram,
}

/// What came of a question.
pub(super) enum Answer {
    Counts(Busiest),
    Oldest(Vec<Oldest>),
    Minute { apart: Vec<Figures>, together: Vec<Figures> },
    Workers(Vec<WorkerRecord>),
    Running(Vec<JobRecord>),
}

impl Seen {
    /// All answers together.
    pub(super) fn of<'a>(at: Instant, answers: impl Iterator<Item = &'a Answer>, refused: Vec<Refused>) -> Self {
        let (queues, more, is_counted) = (Vec::new(), 0, false);
        let mut seen = Self { at, queues, more, is_counted, workers: None, running: None, minute: None, refused };
        let mut queues: BTreeMap<String, QueueFigures> = BTreeMap::new();
        for answer in answers {
            match answer {
                Answer::Counts(busiest) => {
                    (seen.more, seen.is_counted) = (busiest.more, true);
                    count(&mut queues, busiest);
                }
                Answer::Oldest(oldest) => {
                    for first in oldest {
                        queues.entry(first.queue.clone()).or_default().oldest = first.waited;
                    }
                }
                Answer::Minute { apart, together } => {
                    seen.minute = together.last().cloned();
                    for figures in apart {
                        add(&mut queues, figures);
                    }
                }
                Answer::Workers(workers) => seen.workers = Some(workers.clone()),
                Answer::Running(running) => seen.running = Some(running.clone()),
            }
        }
        seen.queues = queues.into_iter().map(|(name, queue)| QueueFigures { name, ..queue }).collect();
        seen
    }
}

fn count(queues: &mut BTreeMap<String, QueueFigures>, busiest: &Busiest) {
    for count in &busiest.counts {
        let queue = queues.entry(count.queue.clone()).or_default();
        match count.state {
            JobState::Ready => {
                queue.ready += count.jobs;
                queue.partial |= count.partial;
            }
            JobState::Scheduled | JobState::Blocked | JobState::Parked => queue.later += count.jobs,
            JobState::Running => queue.running += count.jobs,
            JobState::Dead => queue.dead += count.jobs,
            _ => {}
        }
    }
}

fn add(queues: &mut BTreeMap<String, QueueFigures>, figures: &Figures) {
    let Some(name) = &figures.queue else { return };
    let queue = queues.entry(name.clone()).or_default();
    queue.completed += figures.completed;
    queue.failed += figures.failed();
    queue.rate += figures.rate();
    queue.start.add(&figures.start);
}

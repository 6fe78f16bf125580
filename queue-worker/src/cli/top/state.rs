//! State of the `top` command: the combined results of its queries, and the errors of the queries whose last run failed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use queue_core::{
    JobState,
    operate::{AttemptStatistics, Busiest, Histogram, JobRecord, Oldest, WorkerRecord},
};

/// Screen panel that shows one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Queues,
    Workers,
    Running,
}

impl Panel {
    pub(super) const ALL: [Self; 3] = [Self::Queues, Self::Workers, Self::Running];
}

/// Content of the `top` screen.
#[derive(Clone, Default)]
pub(super) struct TopState {
    pub(super) schema: &'static str,
    /// Latest results, or `None` before the first results.
    pub(super) seen: Option<StoreSnapshot>,
    /// Reason why the database is unavailable, or `None` if the database is available.
    pub(super) away: Option<String>,
}

/// Combined results of all queries. If the last run of a query failed, the snapshot contains its previous result.
#[derive(Clone)]
pub(super) struct StoreSnapshot {
    pub(super) at: Instant,
    pub(super) queues: Vec<QueueMetrics>,
    /// Number of queue and type pairs that are missing from `queues`.
    pub(super) more: i64,
    /// Whether the job counts have been loaded at least once.
    pub(super) is_counted: bool,
    pub(super) workers: Option<Vec<WorkerRecord>>,
    pub(super) running: Option<Vec<JobRecord>>,
    /// Metrics of the last minute, summed over all queues.
    pub(super) minute: Option<AttemptStatistics>,
    /// Queries whose last run failed.
    pub(super) refused: Vec<RefusedQuery>,
}

/// Query whose last run failed, with the error.
#[derive(Clone)]
pub(super) struct RefusedQuery {
    pub(super) part: Panel,
    pub(super) what: &'static str,
    /// Error text with escaped control characters.
    pub(super) why: String,
    /// Time of the query's last successful run, or `None` if no run has succeeded.
    pub(super) since: Option<Instant>,
}

/// Current job counts of a queue and its metrics of the last minute.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueMetrics {
    pub(super) name: String,
    pub(super) ready: i64,
    pub(super) later: i64,
    pub(super) running: i64,
    pub(super) dead: i64,
    /// Whether `ready` is a lower bound.
    pub(super) partial: bool,
    pub(super) oldest: Option<Duration>,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) rate: f64,
    pub(super) start: Histogram,
}

/// Rows loaded by a query.
pub(super) enum QueryResult {
    Counts(Busiest),
    Oldest(Vec<Oldest>),
    Minute { apart: Vec<AttemptStatistics>, together: Vec<AttemptStatistics> },
    Workers(Vec<WorkerRecord>),
    Running(Vec<JobRecord>),
}

impl StoreSnapshot {
    /// Combines query results into one snapshot.
    pub(super) fn of<'a>(at: Instant, answers: impl Iterator<Item = &'a QueryResult>, refused: Vec<RefusedQuery>) -> Self {
        let (queues, more, is_counted) = (Vec::new(), 0, false);
        let mut seen = Self { at, queues, more, is_counted, workers: None, running: None, minute: None, refused };
        let mut queues: BTreeMap<String, QueueMetrics> = BTreeMap::new();
        for answer in answers {
            match answer {
                QueryResult::Counts(busiest) => {
                    (seen.more, seen.is_counted) = (busiest.more, true);
                    count(&mut queues, busiest);
                }
                QueryResult::Oldest(oldest) => {
                    for first in oldest {
                        queues.entry(first.queue.clone()).or_default().oldest = first.waited;
                    }
                }
                QueryResult::Minute { apart, together } => {
                    seen.minute = together.last().cloned();
                    for figures in apart {
                        add(&mut queues, figures);
                    }
                }
                QueryResult::Workers(workers) => seen.workers = Some(workers.clone()),
                QueryResult::Running(running) => seen.running = Some(running.clone()),
            }
        }
        seen.queues = queues.into_iter().map(|(name, queue)| QueueMetrics { name, ..queue }).collect();
        seen
    }
}

fn count(queues: &mut BTreeMap<String, QueueMetrics>, busiest: &Busiest) {
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

fn add(queues: &mut BTreeMap<String, QueueMetrics>, figures: &AttemptStatistics) {
    let Some(name) = &figures.queue else { return };
    let queue = queues.entry(name.clone()).or_default();
    queue.completed += figures.completed;
    queue.failed += figures.failed();
    queue.rate += figures.rate();
    queue.start.add(&figures.start);
}

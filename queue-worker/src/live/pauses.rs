//! Pauses and limits as loaded by this worker. Pure: no database access.
//!
//! A task that claims jobs keeps its [`PauseSnapshot`] until the jobs have started or been given back. This tells the worker when no task
//! applies an earlier version any more, without waiting for any task.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use queue_core::Registry;
use tokio::sync::watch;

/// Loaded row of a pause: its number, queue and job type, where `*` stands for any. If `limit` is set, the row is the scope of a limit
/// instead.
#[derive(Debug)]
pub(crate) struct PauseRow {
    pub(crate) number: i64,
    pub(crate) queue: String,
    pub(crate) job_type: String,
    pub(crate) limit: Option<LimitRow>,
}

/// Loaded properties of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitRow {
    pub(crate) gate: i64,
    /// Revision number, which changes with every change of the limit.
    pub(crate) revision: i64,
    /// Maximum number of permits in use at the same time.
    pub(crate) most: Option<i32>,
    /// Whether the limit is a rate limit.
    pub(crate) timed: bool,
    /// Whether the limit applies per key.
    pub(crate) keyed: bool,
}

/// Pauses and limits in force.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PauseSnapshot {
    pauses: Vec<PauseScope>,
    limits: Vec<(PauseScope, LimitRow)>,
}

/// Limits that cover a lane, with their common properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitSet {
    /// Ids of the limits, sorted.
    pub(crate) gates: Arc<[i64]>,
    /// Maximum number of permits in use at the same time.
    pub(crate) most: usize,
    /// Whether any of the limits is a rate limit, so that claimed jobs must start soon.
    pub(crate) timed: bool,
    /// Whether any of the limits is keyed, so that the lanes are fairly queued.
    pub(crate) keyed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct PauseScope {
    number: i64,
    /// Affected queue. `None` stands for any queue.
    queue: Option<String>,
    /// All names of the affected job type. `None` stands for any type.
    job_types: Option<Vec<String>>,
}

/// Name that stands for any queue or job type in a pause.
const ANY: &str = "*";

impl PauseSnapshot {
    /// Builds a snapshot from loaded rows. A pause of one name of a job type applies to all names of that type.
    fn new(rows: Vec<PauseRow>, registry: &Registry) -> Self {
        let names = |job_type: String| {
            let options = registry.get(&job_type).map(|registration| *registration.options());
            let known = options.into_iter().flat_map(|options| std::iter::once(options.name).chain(options.aliases.iter().copied()));
            let known: Vec<String> = known.map(str::to_owned).collect();
            known.into_iter().chain(std::iter::once(job_type)).collect()
        };
        let scope = |name: String| (name != ANY).then_some(name);
        let mut paused = Self::default();
        for PauseRow { number, queue, job_type, limit } in rows {
            let pause = PauseScope { number, queue: scope(queue), job_types: scope(job_type).map(names) };
            match limit {
                Some(limit) => paused.limits.push((pause, limit)),
                None => paused.pauses.push(pause),
            }
        }
        paused
    }

    /// Returns the limits that cover jobs of a type in a queue, if any.
    pub(crate) fn limits_of(&self, queue: &str, job_type: &str) -> Option<LimitSet> {
        let mut limits: Vec<LimitRow> =
            self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type)).map(|(_, limit)| *limit).collect();
        limits.sort_unstable_by_key(|limit| limit.gate);
        limits.dedup_by_key(|limit| limit.gate);
        let most = limits.iter().filter_map(|limit| limit.most).min().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        let (timed, keyed) = (limits.iter().any(|limit| limit.timed), limits.iter().any(|limit| limit.keyed));
        (!limits.is_empty()).then(|| LimitSet { gates: limits.iter().map(|limit| limit.gate).collect(), most, timed, keyed })
    }

    /// Returns the limits to slow down for jobs of a type in a queue. These are the covering limits that name the type, or all covering
    /// limits if none names it.
    pub(crate) fn limits_to_slow_down(&self, queue: &str, job_type: &str) -> Vec<i64> {
        let covering = || self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type));
        let named: Vec<i64> = covering().filter(|(scope, _)| scope.job_types.is_some()).map(|(_, limit)| limit.gate).collect();
        if named.is_empty() { covering().map(|(_, limit)| limit.gate).collect() } else { named }
    }

    /// Returns whether jobs claimed under the limits `gates` must not start, because they are paused or other limits cover them.
    pub(crate) fn stops(&self, queue: &str, job_type: &str, gates: &[i64]) -> bool {
        self.covers(queue, job_type)
            || self.limits.iter().any(|(scope, limit)| scope.covers(queue, job_type) && !gates.contains(&limit.gate))
    }

    /// Returns whether jobs of a type must not start in a queue, because they are paused.
    pub(crate) fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.pauses.iter().any(|pause| pause.covers(queue, job_type))
    }

    /// Returns whether no job of a queue may start.
    pub(crate) fn covers_all_of(&self, queue: &str) -> bool {
        self.pauses.iter().any(|pause| pause.job_types.is_none() && pause.queue.as_deref().is_none_or(|paused| paused == queue))
    }

    /// Returns the number of queues that are paused as a whole, by name.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn whole_queues(&self) -> usize {
        self.pauses.iter().filter(|pause| pause.job_types.is_none() && pause.queue.is_some()).count()
    }

    /// Returns whether nothing is paused or limited.
    pub(crate) fn is_nothing(&self) -> bool {
        self.pauses.is_empty() && self.limits.is_empty()
    }
}

impl PauseScope {
    fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.queue.as_deref().is_none_or(|paused| paused == queue)
            && self.job_types.as_ref().is_none_or(|names| names.iter().any(|name| name == job_type))
    }
}

/// Pauses in force, shared by all tasks that claim jobs.
#[derive(Clone)]
pub(crate) struct Pauses(Arc<PauseState>);

struct PauseState {
    registry: Registry,
    /// Current snapshot. `None` until the pauses are loaded, and while this worker must not act.
    now: watch::Sender<Option<Arc<PauseSnapshot>>>,
    /// Earlier snapshots that tasks may still apply.
    earlier: Mutex<Vec<Weak<PauseSnapshot>>>,
}

impl Pauses {
    pub(crate) fn new(registry: Registry) -> Self {
        Self(Arc::new(PauseState { registry, now: watch::Sender::new(None), earlier: Mutex::default() }))
    }

    /// Returns the pauses in force, or `None` if no job may start.
    pub(crate) fn now(&self) -> Option<Arc<PauseSnapshot>> {
        self.0.now.borrow().clone()
    }

    /// Applies loaded rows. Returns the new snapshot if it differs from the previous one.
    pub(crate) fn read(&self, rows: Vec<PauseRow>) -> Option<Arc<PauseSnapshot>> {
        let paused = PauseSnapshot::new(rows, &self.0.registry);
        if self.0.now.borrow().as_ref().is_some_and(|now| **now == paused) {
            return None;
        }
        let paused = Arc::new(paused);
        self.replace(Some(Arc::clone(&paused)));
        Some(paused)
    }

    /// Prevents all starts until the pauses are loaded again. Needed after the worker's lease may have expired, because operators do not
    /// wait for the acknowledgement of such a worker.
    pub(crate) fn forget(&self) {
        self.replace(None);
    }

    /// Returns whether every task applies the pauses in force.
    pub(crate) fn are_acknowledged(&self) -> bool {
        let mut earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.retain(|paused| paused.strong_count() > 0);
        earlier.is_empty()
    }

    fn replace(&self, paused: Option<Arc<PauseSnapshot>>) {
        // Replaced under one lock, so that every snapshot is always seen either as current or as earlier.
        let mut earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = self.0.now.send_replace(paused) {
            earlier.push(Arc::downgrade(&before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64, queue: &str, job_type: &str) -> PauseRow {
        PauseRow { number, queue: queue.to_owned(), job_type: job_type.to_owned(), limit: None }
    }

    fn limit(gate: i64, queue: &str, job_type: &str, most: Option<i32>) -> PauseRow {
        PauseRow { limit: Some(LimitRow { gate, revision: 1, most, timed: false, keyed: false }), ..row(gate, queue, job_type) }
    }

    #[test]
    fn a_lane_is_under_all_limits_that_cover_it_each_once_and_in_order() {
        let rows =
            vec![limit(9, "mail", "*", None), limit(4, "*", "send", Some(3)), limit(9, "*", "send", Some(8)), limit(1, "*", "sort", None)];
        let paused = PauseSnapshot::new(rows, &Registry::new());
        let under = paused.limits_of("mail", "send").unwrap();
        assert_eq!((&*under.gates, under.most, under.timed), ([4, 9].as_slice(), 3, false));
        assert_eq!(paused.limits_of("post", "other"), None);
        assert!(paused.stops("mail", "send", &[4]) && !paused.stops("mail", "send", &[4, 9]) && !paused.stops("post", "other", &[]));
        assert_eq!((paused.limits_to_slow_down("mail", "other"), paused.limits_to_slow_down("mail", "sort")), (vec![9], vec![1]));
        assert!(!paused.is_nothing() && !paused.covers("mail", "send"));
    }

    #[test]
    fn a_pause_covers_its_queue_its_type_or_everything() {
        let paused = |queue, job_type| PauseSnapshot::new(vec![row(1, queue, job_type)], &Registry::new());
        for (pause, covered, whole) in [
            (paused("mail", "*"), [true, true, false], true),
            (paused("*", "send"), [true, false, true], false),
            (paused("mail", "send"), [true, false, false], false),
            (paused("*", "*"), [true, true, true], true),
        ] {
            assert_eq!(
                [("mail", "send"), ("mail", "sort"), ("post", "send")].map(|(queue, job_type)| pause.covers(queue, job_type)),
                covered
            );
            assert_eq!(pause.covers_all_of("mail"), whole);
        }
        assert!(!PauseSnapshot::default().covers("mail", "send") && PauseSnapshot::default().is_nothing());
    }

    #[test]
    fn pauses_are_acknowledged_once_no_task_applies_earlier_ones() {
        let pauses = Pauses::new(Registry::new());
        assert!(pauses.now().is_none() && pauses.read(Vec::new()).is_some() && pauses.read(Vec::new()).is_none());
        let before = pauses.now().unwrap();
        assert!(pauses.are_acknowledged());
        assert!(!pauses.read(vec![row(7, "mail", "*")]).unwrap().is_nothing());
        assert!(!pauses.are_acknowledged());
        pauses.forget();
        assert!(pauses.now().is_none() && !pauses.are_acknowledged());
        drop(before);
        assert!(pauses.are_acknowledged());
    }
}

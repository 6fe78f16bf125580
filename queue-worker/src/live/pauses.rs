//! Pauses and limits as loaded by this worker. This module does not access the database.
//!
//! A task that claims jobs holds a [`PauseSnapshot`] until the jobs have started or have been released. Once no task holds an earlier
//! snapshot, the worker acknowledges the current pauses.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use queue_core::registry::Registry;
use tokio::sync::watch;

/// Loaded row with the scope of a pause or limit. The queue or job type `*` stands for any queue or type. `limit` is `None` for a pause.
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
    pub(crate) limit_id: i64,
    /// Revision number, which changes with each update of the limit.
    pub(crate) revision: i64,
    /// Smallest of the limit's concurrency, starts per period and burst. `None` if the limit is keyed or sets none of them.
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

/// Limits that cover a lane, with their combined properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitSet {
    /// Ids of the covering limits, sorted.
    pub(crate) limit_ids: Arc<[i64]>,
    /// Smallest `most` of the limits, which bounds the number of jobs per claim. `usize::MAX` if no limit sets `most`.
    pub(crate) most: usize,
    /// Whether any limit is a rate limit. Claimed jobs must then start soon, because rate permits expire.
    pub(crate) timed: bool,
    /// Whether any limit applies per key. Fair queueing then applies to the covered lanes.
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

/// Name that stands for any queue or job type in a pause or limit.
const ANY: &str = "*";

impl PauseSnapshot {
    /// Builds a snapshot from loaded rows. A pause or limit for one name of a job type applies to all names of the type.
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

    /// Returns the limits that cover jobs of a type in a queue, or `None` if no limit covers the jobs.
    pub(crate) fn limits_of(&self, queue: &str, job_type: &str) -> Option<LimitSet> {
        let mut limits: Vec<LimitRow> =
            self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type)).map(|(_, limit)| *limit).collect();
        limits.sort_unstable_by_key(|limit| limit.limit_id);
        limits.dedup_by_key(|limit| limit.limit_id);
        let most = limits.iter().filter_map(|limit| limit.most).min().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        let (timed, keyed) = (limits.iter().any(|limit| limit.timed), limits.iter().any(|limit| limit.keyed));
        (!limits.is_empty()).then(|| LimitSet { limit_ids: limits.iter().map(|limit| limit.limit_id).collect(), most, timed, keyed })
    }

    /// Returns the limits to slow down when a job of this type and queue requests a slow-down. These are the covering limits that name
    /// the type. If no covering limit names the type, returns all covering limits.
    pub(crate) fn limits_to_slow_down(&self, queue: &str, job_type: &str) -> Vec<i64> {
        let covering = || self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type));
        let named: Vec<i64> = covering().filter(|(scope, _)| scope.job_types.is_some()).map(|(_, limit)| limit.limit_id).collect();
        if named.is_empty() { covering().map(|(_, limit)| limit.limit_id).collect() } else { named }
    }

    /// Returns whether a pause, or a limit that is not in `limit_ids`, covers jobs of a type in a queue. If so, jobs claimed under the
    /// limits `limit_ids` must not start.
    pub(crate) fn stops(&self, queue: &str, job_type: &str, limit_ids: &[i64]) -> bool {
        self.covers(queue, job_type)
            || self.limits.iter().any(|(scope, limit)| scope.covers(queue, job_type) && !limit_ids.contains(&limit.limit_id))
    }

    /// Returns whether jobs of a type in a queue are paused.
    pub(crate) fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.pauses.iter().any(|pause| pause.covers(queue, job_type))
    }

    /// Returns whether all jobs of a queue are paused.
    pub(crate) fn covers_all_of(&self, queue: &str) -> bool {
        self.pauses.iter().any(|pause| pause.job_types.is_none() && pause.queue.as_deref().is_none_or(|paused| paused == queue))
    }

    /// Returns the number of pauses that name a queue and cover all of its job types.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn whole_queues(&self) -> usize {
        self.pauses.iter().filter(|pause| pause.job_types.is_none() && pause.queue.is_some()).count()
    }

    /// Returns whether the snapshot contains neither pauses nor limits.
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

/// Pauses and limits in force, shared by all tasks that claim jobs.
#[derive(Clone)]
pub(crate) struct Pauses(Arc<PauseState>);

struct PauseState {
    registry: Registry,
    /// Current snapshot. `None` until the pauses are loaded, and while this worker has no lease.
    now: watch::Sender<Option<Arc<PauseSnapshot>>>,
    /// Earlier snapshots that tasks may still hold.
    earlier: Mutex<Vec<Weak<PauseSnapshot>>>,
}

impl Pauses {
    pub(crate) fn new(registry: Registry) -> Self {
        Self(Arc::new(PauseState { registry, now: watch::Sender::new(None), earlier: Mutex::default() }))
    }

    /// Returns the pauses and limits in force. Returns `None` until they are loaded, and while this worker has no lease. While it returns
    /// `None`, no job may start.
    pub(crate) fn now(&self) -> Option<Arc<PauseSnapshot>> {
        self.0.now.borrow().clone()
    }

    /// Applies loaded rows. Returns the new snapshot, or `None` if the rows are unchanged.
    pub(crate) fn read(&self, rows: Vec<PauseRow>) -> Option<Arc<PauseSnapshot>> {
        let paused = PauseSnapshot::new(rows, &self.0.registry);
        if self.0.now.borrow().as_ref().is_some_and(|now| **now == paused) {
            return None;
        }
        let paused = Arc::new(paused);
        self.replace(Some(Arc::clone(&paused)));
        Some(paused)
    }

    /// Prevents job starts until the pauses are loaded again. Called when the worker's lease may have expired, because operators do not
    /// wait for a worker with an expired lease to acknowledge a pause.
    pub(crate) fn forget(&self) {
        self.replace(None);
    }

    /// Returns whether no task holds an earlier snapshot.
    pub(crate) fn are_acknowledged(&self) -> bool {
        let mut earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.retain(|paused| paused.strong_count() > 0);
        earlier.is_empty()
    }

    fn replace(&self, paused: Option<Arc<PauseSnapshot>>) {
        // The lock is held while the snapshot is replaced, so that `are_acknowledged` never misses the replaced snapshot.
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

    fn limit(limit_id: i64, queue: &str, job_type: &str, most: Option<i32>) -> PauseRow {
        PauseRow { limit: Some(LimitRow { limit_id, revision: 1, most, timed: false, keyed: false }), ..row(limit_id, queue, job_type) }
    }

    #[test]
    fn a_lane_is_under_all_limits_that_cover_it_each_once_and_in_order() {
        let rows =
            vec![limit(9, "mail", "*", None), limit(4, "*", "send", Some(3)), limit(9, "*", "send", Some(8)), limit(1, "*", "sort", None)];
        let paused = PauseSnapshot::new(rows, &Registry::new());
        let under = paused.limits_of("mail", "send").unwrap();
        assert_eq!((&*under.limit_ids, under.most, under.timed), ([4, 9].as_slice(), 3, false));
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

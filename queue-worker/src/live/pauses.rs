//! What operators have paused, as far as this worker has read it, for all who look for jobs. Does not touch the database.
//!
//! Whoever looks for jobs keeps the [`Paused`] that it goes by until they have begun, or were given back. So this worker knows when nobody goes
//! by an earlier one any more, and waits for nobody to know it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use queue_core::Registry;
use tokio::sync::watch;

/// One pause, as it is read: its number, its queue and its job type, where `*` is any. With a gate, what a limit covers.
#[derive(Debug)]
pub(crate) struct PauseRow {
    pub(crate) number: i64,
    pub(crate) queue: String,
    pub(crate) job_type: String,
    pub(crate) limit: Option<LimitRow>,
}

/// Of a limit, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitRow {
    pub(crate) gate: i64,
    /// Another one with every change.
    pub(crate) revision: i64,
    /// As many permits as there can be at once, at most.
    pub(crate) most: Option<i32>,
    /// Whether it has a rate.
    pub(crate) timed: bool,
    /// Whether its figures are those of each line.
    pub(crate) keyed: bool,
}

/// What is paused, and what limits cover.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Paused {
    pauses: Vec<Pause>,
    limits: Vec<(Pause, LimitRow)>,
}

/// The limits that cover a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Under {
    /// Their gates, in order.
    pub(crate) gates: Arc<[i64]>,
    /// As many permits as there can be of them at once, at most.
    pub(crate) most: usize,
    /// Whether one of them has a rate: what is claimed must begin soon.
    pub(crate) timed: bool,
    /// Whether one of them is by key: their lanes stand in lines.
    pub(crate) keyed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Pause {
    number: i64,
    /// None is any.
    queue: Option<String>,
    /// A type with all of its names; none is any.
    job_types: Option<Vec<String>>,
}

/// In a pause: any queue, or any job type.
const ANY: &str = "*";

impl Paused {
    /// Whichever of a type's names is paused, all of them are.
    fn new(rows: Vec<PauseRow>, registry: &Registry) -> Self {
        let names = |job_type: String| {
            let options = registry.get(&job_type).map(|registration| *registration.options());
            let known = options.into_iter().flat_map(|options| std::iter::once(options.name).chain(options.aliases.iter().copied()));
            let known: Vec<String> = known.map(str::to_owned).collect();
            known.into_iter().chain(std::iter::once(job_type)).collect()
        };
        let said = |name: String| (name != ANY).then_some(name);
        let mut paused = Self::default();
        for PauseRow { number, queue, job_type, limit } in rows {
            let pause = Pause { number, queue: said(queue), job_types: said(job_type).map(names) };
            match limit {
                Some(limit) => paused.limits.push((pause, limit)),
                None => paused.pauses.push(pause),
            }
        }
        paused
    }

    /// The limits that cover jobs of this type in this queue, if any do.
    pub(crate) fn under(&self, queue: &str, job_type: &str) -> Option<Under> {
        let mut limits: Vec<LimitRow> =
            self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type)).map(|(_, limit)| *limit).collect();
        limits.sort_unstable_by_key(|limit| limit.gate);
        limits.dedup_by_key(|limit| limit.gate);
        let most = limits.iter().filter_map(|limit| limit.most).min().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        let (timed, keyed) = (limits.iter().any(|limit| limit.timed), limits.iter().any(|limit| limit.keyed));
        (!limits.is_empty()).then(|| Under { gates: limits.iter().map(|limit| limit.gate).collect(), most, timed, keyed })
    }

    /// Of those limits the ones that the type names, or all if it names none.
    pub(crate) fn slowed(&self, queue: &str, job_type: &str) -> Vec<i64> {
        let covering = || self.limits.iter().filter(|(scope, _)| scope.covers(queue, job_type));
        let named: Vec<i64> = covering().filter(|(scope, _)| scope.job_types.is_some()).map(|(_, limit)| limit.gate).collect();
        if named.is_empty() { covering().map(|(_, limit)| limit.gate).collect() } else { named }
    }

    /// Whether jobs that were claimed under these limits are not to begin: they are paused, or other limits cover them.
    pub(crate) fn stops(&self, queue: &str, job_type: &str, gates: &[i64]) -> bool {
        self.covers(queue, job_type)
            || self.limits.iter().any(|(scope, limit)| scope.covers(queue, job_type) && !gates.contains(&limit.gate))
    }

    /// Whether jobs of this type are not to begin in this queue.
    pub(crate) fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.pauses.iter().any(|pause| pause.covers(queue, job_type))
    }

    /// Whether no job of this queue is to begin.
    pub(crate) fn covers_all_of(&self, queue: &str) -> bool {
        self.pauses.iter().any(|pause| pause.job_types.is_none() && pause.queue.as_deref().is_none_or(|paused| paused == queue))
    }

    /// How many queues are paused by name, each as a whole.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn whole_queues(&self) -> usize {
        self.pauses.iter().filter(|pause| pause.job_types.is_none() && pause.queue.is_some()).count()
    }

    /// Whether nothing is paused, and nothing limited.
    pub(crate) fn is_nothing(&self) -> bool {
        self.pauses.is_empty() && self.limits.is_empty()
    }
}

impl Pause {
    fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.queue.as_deref().is_none_or(|paused| paused == queue)
            && self.job_types.as_ref().is_none_or(|names| names.iter().any(|name| name == job_type))
    }
}

/// What is paused now, for all who look for jobs.
#[derive(Clone)]
pub(crate) struct Pauses(Arc<Known>);

struct Known {
    registry: Registry,
    /// None until it was read, and while this worker must not act.
    now: watch::Sender<Option<Arc<Paused>>>,
    /// Those before it by which somebody may go still.
    earlier: Mutex<Vec<Weak<Paused>>>,
}

impl Pauses {
    pub(crate) fn new(registry: Registry) -> Self {
        Self(Arc::new(Known { registry, now: watch::Sender::new(None), earlier: Mutex::default() }))
    }

    /// What is to be gone by now; none if nothing is to be begun at all.
    pub(crate) fn now(&self) -> Option<Arc<Paused>> {
        self.0.now.borrow().clone()
    }

    /// Puts in force what was read; returns it if that is something else than before.
    pub(crate) fn read(&self, rows: Vec<PauseRow>) -> Option<Arc<Paused>> {
        let paused = Paused::new(rows, &self.0.registry);
        if self.0.now.borrow().as_ref().is_some_and(|now| **now == paused) {
            return None;
        }
        let paused = Arc::new(paused);
        self.replace(Some(Arc::clone(&paused)));
        Some(paused)
    }

    /// Nothing is to be begun until the pauses are read again: this worker may be a silent one, and nobody waits for its word.
    pub(crate) fn forget(&self) {
        self.replace(None);
    }

    /// Whether all go by what is in force.
    pub(crate) fn are_heeded(&self) -> bool {
        let mut earlier = self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.retain(|paused| paused.strong_count() > 0);
        earlier.is_empty()
    }

    fn replace(&self, paused: Option<Arc<Paused>>) {
        // Under one lock, so that nobody sees it replaced and not among the earlier ones.
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
        let paused = Paused::new(rows, &Registry::new());
        let under = paused.under("mail", "send").unwrap();
        assert_eq!((&*under.gates, under.most, under.timed), ([4, 9].as_slice(), 3, false));
        assert_eq!(paused.under("post", "other"), None);
        assert!(paused.stops("mail", "send", &[4]) && !paused.stops("mail", "send", &[4, 9]) && !paused.stops("post", "other", &[]));
        assert_eq!((paused.slowed("mail", "other"), paused.slowed("mail", "sort")), (vec![9], vec![1]));
        assert!(!paused.is_nothing() && !paused.covers("mail", "send"));
    }

    #[test]
    fn a_pause_covers_its_queue_its_type_or_everything() {
        let paused = |queue, job_type| Paused::new(vec![row(1, queue, job_type)], &Registry::new());
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
        assert!(!Paused::default().covers("mail", "send") && Paused::default().is_nothing());
    }

    #[test]
    fn pauses_are_heeded_once_nobody_goes_by_earlier_ones() {
        let pauses = Pauses::new(Registry::new());
        assert!(pauses.now().is_none() && pauses.read(Vec::new()).is_some() && pauses.read(Vec::new()).is_none());
        let before = pauses.now().unwrap();
        assert!(pauses.are_heeded());
        assert!(!pauses.read(vec![row(7, "mail", "*")]).unwrap().is_nothing());
        assert!(!pauses.are_heeded());
        pauses.forget();
        assert!(pauses.now().is_none() && !pauses.are_heeded());
        drop(before);
        assert!(pauses.are_heeded());
    }
}

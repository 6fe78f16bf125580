//! What operators have paused, as far as this worker has read it, for all who look for jobs. Does not touch the database.
//!
//! Whoever looks for jobs keeps the [`Paused`] that it goes by until they have begun, or were given back. So this worker knows when nobody goes
//! by an earlier one any more, and waits for nobody to know it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use queue_core::Registry;
use tokio::sync::watch;

/// One pause, as it is read: its number, its queue and its job type, where `*` is any.
pub(crate) type PauseRow = (i64, String, String);

/// What is paused.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Paused {
    pauses: Vec<Pause>,
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
        let pause = |(number, queue, job_type)| Pause { number, queue: said(queue), job_types: said(job_type).map(names) };
        Self { pauses: rows.into_iter().map(pause).collect() }
    }

    /// Whether jobs of this type are not to begin in this queue.
    pub(crate) fn covers(&self, queue: &str, job_type: &str) -> bool {
        self.pauses.iter().any(|pause| {
            pause.queue.as_deref().is_none_or(|paused| paused == queue)
                && pause.job_types.as_ref().is_none_or(|names| names.iter().any(|name| name == job_type))
        })
    }

    /// Whether no job of this queue is to begin.
    pub(crate) fn covers_all_of(&self, queue: &str) -> bool {
        self.pauses.iter().any(|pause| pause.job_types.is_none() && pause.queue.as_deref().is_none_or(|paused| paused == queue))
    }

    /// Whether nothing is paused.
    pub(crate) fn is_nothing(&self) -> bool {
        self.pauses.is_empty()
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

    /// The same, as soon as it is known.
    pub(crate) async fn known(&self) -> Arc<Paused> {
        loop {
            if let Some(paused) = self.now() {
                return paused;
            }
            // The sender is ours: it is there as long as we are.
            let _ = self.0.now.subscribe().wait_for(Option::is_some).await;
        }
    }

    /// Whether this is what is to be gone by still.
    pub(crate) fn is_in_force(&self, paused: &Arc<Paused>) -> bool {
        self.0.now.borrow().as_ref().is_some_and(|now| Arc::ptr_eq(now, paused))
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
        (number, queue.to_owned(), job_type.to_owned())
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
        assert!(pauses.are_heeded() && pauses.is_in_force(&before));
        assert!(!pauses.read(vec![row(7, "mail", "*")]).unwrap().is_nothing());
        assert!(!pauses.are_heeded() && !pauses.is_in_force(&before));
        pauses.forget();
        assert!(pauses.now().is_none() && !pauses.are_heeded());
        drop(before);
        assert!(pauses.are_heeded());
    }
}

//! A store as the scout sees it: whether it has a worker, whether it is well, and what there is to do in it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use queue_core::stores::Member;
use tokio::sync::Notify;

/// One store of a worker.
pub(super) struct Watched {
    pub(super) member: Member,
    /// No other store of the process has it.
    pub(super) number: u64,
    /// Whose jobs are looked for.
    pub(super) served: Served,
    state: Mutex<State>,
    roused: Notify,
}

/// What a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Served {
    pub(super) types: Vec<String>,
    /// None is any.
    pub(super) queues: Option<Vec<String>>,
}

#[derive(Default)]
struct State {
    awake: bool,
    trouble: Option<Trouble>,
}

/// It does not work at present.
struct Trouble {
    /// It cannot have a worker. Otherwise it cannot even be looked at.
    of_worker: bool,
    again: Instant,
    pause: Duration,
}

/// How soon a store that does not work is looked at again: twice as late each time, up to the longest.
const AGAIN: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(5);

impl Watched {
    pub(super) fn new(member: Member, number: u64, served: Served) -> Self {
        Self { member, number, served, state: Mutex::default(), roused: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has a worker now, or none any more.
    pub(super) fn set_awake(&self, awake: bool) {
        self.state().awake = awake;
    }

    /// Whether it has a worker.
    pub(super) fn is_awake(&self) -> bool {
        self.state().awake
    }

    /// Until it is to be given a worker.
    pub(super) async fn roused(&self) {
        self.roused.notified().await;
    }

    /// There is something to do.
    pub(super) fn rouse(&self) {
        if !self.is_awake() {
            self.roused.notify_one();
        }
    }

    /// Its worker does not work: said once, and tried again later.
    pub(super) fn note_trouble(&self, error: &str) {
        self.note(true, error);
    }

    /// It cannot be looked at: the same.
    pub(super) fn note_out_of_reach(&self, error: &str) {
        self.note(false, error);
    }

    fn note(&self, of_worker: bool, error: &str) {
        let mut state = self.state();
        let before = state.trouble.take();
        let (is_new, of_worker) = (before.is_none(), of_worker || before.as_ref().is_some_and(|trouble| trouble.of_worker));
        let pause = before.map_or(AGAIN, |trouble| (2 * trouble.pause).min(LONGEST));
        state.trouble = Some(Trouble { of_worker, again: Instant::now() + pause, pause });
        drop(state);
        if is_new {
            tracing::warn!(
                store = self.member.name(),
                schema = self.member.store().schema(),
                error,
                "this store does not work: its jobs wait; others go on"
            );
        }
    }

    /// Whether it is not to be looked at together with others.
    pub(super) fn is_troubled(&self) -> bool {
        self.state().trouble.is_some()
    }

    /// Whether it is time to look whether it works again.
    pub(super) fn may_be_well(&self) -> bool {
        self.state().trouble.as_ref().is_some_and(|trouble| Instant::now() >= trouble.again)
    }

    /// Whether it cannot even be looked at.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.state().trouble.as_ref().is_some_and(|trouble| !trouble.of_worker)
    }

    /// It can be looked at. Whether it can have a worker is seen by giving it one.
    pub(super) fn is_in_reach(&self) {
        let mut state = self.state();
        match &mut state.trouble {
            Some(trouble) if trouble.of_worker => trouble.again = Instant::now() + trouble.pause,
            _ => {
                drop(state);
                self.is_well();
            }
        }
    }

    /// It works.
    pub(super) fn is_well(&self) {
        if self.state().trouble.take().is_some() {
            tracing::info!(store = self.member.name(), "this store works again");
        }
    }
}

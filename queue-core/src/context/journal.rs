//! What one attempt of a durable job knows of the job's journal: what earlier attempts have finished, what it has asked for, and what it waits for.
//!
//! Nothing here decides what a handler may do: `durable` asks, this file keeps count. How steps are written is the backend's part.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Fence, JournaledStep, Shared, StepEntry, Written};
use crate::{
    define::{Failure, JobId},
    error::Error,
};

/// The most steps of a job, and the most bytes of their outputs.
const MOST_STEPS: usize = 10_000;
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A sleep that is over sooner is waited for where it is: leaving and coming back would take as long.
const IN_PLACE: Duration = Duration::from_secs(1);

/// Why an attempt is left half-way.
pub(crate) enum Stop {
    /// Its handler waits, for so long at least.
    Suspended(Duration),
    /// What it waits for could not be journaled.
    Broken(Failure),
}

/// The journal, as one attempt sees it.
#[derive(Debug)]
pub(super) struct Journal {
    fence: Option<Fence>,
    id: JobId,
    shared: Arc<Shared>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What earlier attempts have finished, or this one.
    done: HashMap<String, Done>,
    /// What this attempt has asked for.
    asked: HashSet<String>,
    /// The attempt that journaled last.
    last: Option<i16>,
    bytes: usize,
    /// So many steps are on their way.
    under_way: usize,
    /// What the handler waits for, and until when.
    waits: BTreeMap<u64, Instant>,
    waited: u64,
    broken: Option<Failure>,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub(super) enum Done {
    Step(Option<String>),
    Sleep(Instant),
}

impl Journal {
    pub(super) fn new(id: JobId, fence: Option<Fence>, shared: Arc<Shared>) -> Self {
        Self { fence, id, shared, state: Mutex::default() }
    }

    /// Reads what earlier attempts have finished.
    pub(super) async fn load(&self) -> Result<(), Error> {
        let (steps, now) = (self.shared.backend.steps(self.id).await?, Instant::now());
        let mut state = self.lock();
        for JournaledStep { name, attempt, output, left_ms } in steps {
            state.last = state.last.max(Some(attempt));
            state.bytes += output.as_ref().map_or(0, String::len);
            let done = left_ms.map_or(Done::Step(output), |left| Done::Sleep(now + within(left)));
            state.done.insert(name, done);
        }
        Ok(())
    }

    /// The attempt that journaled last.
    pub(super) fn last(&self) -> Option<i16> {
        self.lock().last
    }

    /// Whether a step of this name is done.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().done.contains_key(name)
    }

    /// What the step came to, if it is done. A name is asked for once an attempt.
    pub(super) fn ask(&self, name: &str) -> Result<Option<Done>, Failure> {
        let mut state = self.lock();
        if !state.asked.insert(name.to_owned()) {
            return Err(Failure::terminal(
                self.wrong(name, "an attempt asks for it twice; give each step a name of its own, as in `(\"resize\", i)`"),
            ));
        }
        let found = state.done.get(name).cloned();
        if found.is_none() && (state.done.len() >= MOST_STEPS || state.bytes >= MOST_BYTES) {
            return Err(Failure::terminal(
                self.wrong(name, "the job has 10,000 steps already, or 16 MiB of their outputs, which is the most"),
            ));
        }
        Ok(found)
    }

    /// Counts a step as on its way, until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.lock().under_way += 1;
        UnderWay(Arc::clone(self))
    }

    /// What is to be written of a step.
    pub(super) fn entry(&self, name: &str, output: Option<String>, since: Instant, wait: Option<Duration>) -> Result<StepEntry, Error> {
        let fence = self.fence.ok_or_else(|| self.wrong(name, "the job's type has no journal"))?;
        Ok(StepEntry { fence, name: name.to_owned(), ran: since.elapsed(), wait, output })
    }

    /// Writes a step; committed when this returns.
    pub(super) async fn write(&self, entry: StepEntry) -> Result<(), Error> {
        let (attempt, name, wait) = (entry.fence.attempt, entry.name.clone(), entry.wait);
        let output = entry.output.clone();
        match self.shared.backend.journal(entry).await {
            Written::Yes => {}
            Written::Refused => return Err(self.lost()),
            Written::Failed(why) => return Err(Error::Database(sqlx::Error::Io(std::io::Error::other(why)))),
        }
        self.note(attempt, name, output, wait);
        Ok(())
    }

    /// That a step was written just now.
    pub(super) fn note(&self, attempt: i16, name: String, output: Option<String>, wait: Option<Duration>) {
        let mut state = self.lock();
        state.last = state.last.max(Some(attempt));
        state.bytes += output.as_ref().map_or(0, String::len);
        // Not before the database's time for it: that was a moment ago.
        let done = wait.map_or(Done::Step(output), |wait| Done::Sleep(Instant::now() + wait));
        state.done.insert(name, done);
    }

    /// Waits until then: here, if that is soon; otherwise the attempt is left meanwhile, unless a step is on its way.
    pub(super) async fn wait(self: &Arc<Self>, until: Instant) {
        let _waiting = {
            let mut state = self.lock();
            state.waited += 1;
            let number = state.waited;
            state.waits.insert(number, until);
            Waiting(Arc::clone(self), number)
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Timers have a longest time.
            tokio::time::sleep(left.min(Duration::from_hours(24))).await;
        }
    }

    /// That what the handler waits for could not be journaled: its attempt ends with this.
    pub(super) fn break_off(&self, failure: Failure) {
        self.lock().broken.get_or_insert(failure);
    }

    /// Whether the attempt is to be left; asked whenever its handler has nothing to do.
    pub(super) fn stop(&self) -> Option<Stop> {
        let mut state = self.lock();
        if let Some(failure) = state.broken.take() {
            return Some(Stop::Broken(failure));
        }
        let first = state.waits.values().min().filter(|_| state.under_way == 0)?;
        let left = first.saturating_duration_since(Instant::now());
        (left > IN_PLACE).then_some(Stop::Suspended(left))
    }

    pub(super) fn wrong(&self, step: &str, why: &str) -> Error {
        Error::Step { job: self.id, step: step.to_owned(), why: why.to_owned() }
    }

    pub(super) fn lost(&self) -> Error {
        Error::LeaseLost { job: self.id }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many ms; zero if they are over.
fn within(left_ms: f64) -> Duration {
    Duration::try_from_secs_f64((left_ms / 1000.0).max(0.0)).unwrap_or(Duration::from_hours(24 * 366))
}

/// A step on its way.
pub(super) struct UnderWay(Arc<Journal>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

/// Something that a handler waits for.
struct Waiting(Arc<Journal>, u64);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waits.remove(&self.1);
    }
}

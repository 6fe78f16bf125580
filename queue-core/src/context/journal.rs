//! What one attempt of a durable job knows of the job's journal: what earlier attempts have finished, what it has asked for, and what it waits for.
//!
//! Nothing here decides what a handler may do: `durable` asks, this file keeps count. How steps are written is the backend's part.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};

use super::{
    ChildEntry, CommitResult, Fence, Heard, JournaledStep, OwnTransaction, Shared, SignalEntry, StepEntry, Written, fence::Finished,
    since::LastJournaled,
};
use crate::{
    define::{Anew, Failure, JobId},
    error::Error,
};

/// The most steps of a job, and the most bytes of their outputs.
const MOST_STEPS: usize = 10_000;
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A sleep that is over sooner is waited for where it is: leaving and coming back would take as long.
const IN_PLACE: Duration = Duration::from_secs(1);

/// For so long a job is put off whose journal is not known.
pub(crate) const UNSURE: Duration = Duration::from_secs(1);

/// The step whose time ends the wait of another is called as that, and so.
pub(crate) const END: &str = " (timeout)";

/// The wait for the end of the child that a step has spawned is called as that, and so; as `queue.join_name` calls it.
pub(crate) const JOIN: &str = " (join)";

/// Why an attempt is left half-way.
pub(crate) enum Stop {
    /// Its handler waits, for so long at least.
    Suspended(Duration),
    /// Its handler waits for one of these signals, for so long at most.
    Parked(Option<Duration>, Vec<String>),
    /// Its handler begins the job anew, with this.
    Restarted(Anew),
    /// What it waits for could not be journaled.
    Broken(Failure),
}

/// The journal, as one attempt sees it.
#[derive(Debug)]
pub(super) struct Journal {
    fence: Fence,
    id: JobId,
    shared: Arc<Shared>,
    last: LastJournaled,
    state: Mutex<State>,
    /// So many steps are on their way to the database, whatever becomes of the handler.
    writing: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    /// What earlier attempts have finished, or this one.
    done: HashMap<String, Done>,
    /// What this attempt has asked for.
    asked: HashSet<String>,
    bytes: usize,
    /// So many steps are on their way.
    under_way: usize,
    /// A signal may be journaled, and this attempt does not know.
    is_unsure: bool,
    /// What the handler waits for.
    waits: BTreeMap<u64, Wait>,
    waited: u64,
    broken: Option<Failure>,
    anew: Option<Anew>,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// It gave this, or received it.
    Step(Option<String>),
    /// It is over then: a sleep, or a wait for a signal that did not come.
    Sleep(Instant),
}

/// Something that a handler waits for: a time, a signal, or what comes first.
#[derive(Clone, Debug, Default)]
pub(super) struct Wait {
    pub(super) until: Option<Instant>,
    pub(super) signal: Option<String>,
}

impl Journal {
    pub(super) fn new(fence: Fence, shared: Arc<Shared>, last: LastJournaled) -> Self {
        Self { fence, id: fence.id, shared, last, state: Mutex::default(), writing: watch::Sender::default() }
    }

    /// Reads what earlier attempts have finished. While that cannot be known, no failure is the last.
    pub(super) async fn load(&self) -> Result<(), Error> {
        let steps = self.shared.backend.steps(self.id).await;
        let (mut state, now) = (self.lock(), Instant::now());
        if steps.is_err() {
            self.last.set(self.fence.attempt);
        }
        for JournaledStep { name, attempt, output, left_ms } in steps? {
            // They come in the order in which they were done: after a requeue attempts are counted anew.
            self.last.set(attempt);
            state.bytes += output.as_ref().map_or(0, String::len);
            let done = left_ms.map_or(Done::Step(output), |left| Done::Sleep(now + within(left)));
            state.done.insert(name, done);
        }
        Ok(())
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
            return Err(self.too_much(name));
        }
        Ok(found)
    }

    /// Counts a step as on its way, until this is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.lock().under_way += 1;
        UnderWay(Arc::clone(self))
    }

    /// What is to be written of a step.
    pub(super) fn entry(&self, name: &str, output: Option<String>, since: Instant, wait: Option<Duration>) -> Result<StepEntry, Failure> {
        let mut state = self.lock();
        state.bytes += output.as_ref().map_or(0, String::len);
        if state.bytes > MOST_BYTES {
            return Err(self.too_much(name));
        }
        Ok(StepEntry { fence: self.fence, name: name.to_owned(), ran: since.elapsed(), wait, output })
    }

    /// Writes a step; committed when this returns. It goes on when this is dropped: the work is done, and the attempt waits for it.
    pub(super) async fn write(self: &Arc<Self>, entry: StepEntry) -> Result<(), Error> {
        let (journal, writing) = (Arc::clone(self), self.writing());
        let written = self.shared.handlers.spawn(async move {
            let done = Finished::of(&entry);
            let written = journal.shared.backend.journal(entry).await;
            if matches!(written, Written::Yes) {
                journal.note(done);
            }
            drop(writing);
            written
        });
        match written.await {
            Ok(Written::Yes) => Ok(()),
            Ok(Written::Refused) => Err(self.lost()),
            Ok(Written::Failed(why)) => Err(Error::NotWritten { job: self.id, why }),
            Err(error) => Err(Error::NotWritten { job: self.id, why: error.to_string() }),
        }
    }

    /// Journals a step with what it wrote, as [`write`](Self::write).
    pub(super) async fn commit(self: &Arc<Self>, tx: OwnTransaction, entry: StepEntry) -> Result<(), Failure> {
        let (journal, writing) = (Arc::clone(self), self.writing());
        let committed = self.shared.handlers.spawn(async move {
            let done = Finished::of(&entry);
            let committed = Arc::clone(&journal.shared.backend).commit_step(tx, entry).await;
            if matches!(committed, CommitResult::Written) {
                journal.note(done);
            }
            drop(writing);
            committed
        });
        match committed.await? {
            CommitResult::Written => Ok(()),
            CommitResult::Lost => Err(self.lost().into()),
            CommitResult::Undone(failure) | CommitResult::Unknown(failure) => Err(failure),
        }
    }

    /// That a step was written just now.
    pub(super) fn note(&self, Finished { attempt, name, output, wait }: Finished) {
        let mut state = self.lock();
        self.last.set(attempt);
        // Not before the database's time for it: that was a moment ago.
        let done = wait.map_or(Done::Step(output), |wait| Done::Sleep(Instant::now() + wait));
        state.done.insert(name, done);
    }

    /// Counts a step as on its way to the database, until this is dropped.
    fn writing(self: &Arc<Self>) -> Writing {
        self.writing.send_modify(|count| *count += 1);
        Writing(Arc::clone(self))
    }

    /// Once the handler has ended: waits for so long for steps that are on their way to the database.
    pub(super) async fn flush(&self, patience: Duration) {
        let mut writing = self.writing.subscribe();
        let _ = timeout(patience, writing.wait_for(|count| *count == 0)).await;
    }

    /// Takes the next signal of a name into the journal, or, if none has come, the end of the wait if that has; `None` if neither. As
    /// [`write`](Self::write), it goes on when this is dropped.
    pub(super) async fn receive(self: &Arc<Self>, ask: SignalEntry) -> Result<Option<Done>, Failure> {
        let (journal, writing) = (Arc::clone(self), self.writing());
        let heard = self.shared.handlers.spawn(async move {
            let (attempt, name) = (ask.fence.attempt, ask.name.clone());
            let heard = journal.shared.backend.receive(ask).await;
            match &heard {
                Heard::Signal(output) => journal.note(Finished { attempt, name, output: output.clone(), wait: None }),
                Heard::Over => journal.note(Finished { attempt, name, output: None, wait: Some(Duration::ZERO) }),
                Heard::Unknown => journal.lock().is_unsure = true,
                Heard::Nothing | Heard::Refused | Heard::Failed(_) => {}
            }
            drop(writing);
            heard
        });
        match heard.await? {
            Heard::Signal(output) => Ok(Some(Done::Step(output))),
            Heard::Over => Ok(Some(Done::Sleep(Instant::now()))),
            Heard::Nothing | Heard::Unknown => Ok(None),
            Heard::Refused => Err(self.lost().into()),
            Heard::Failed(why) => Err(Error::NotWritten { job: self.id, why }.into()),
        }
    }

    /// Spawns a child; committed when this returns. As [`write`](Self::write), it goes on when this is dropped.
    pub(super) async fn spawn(self: &Arc<Self>, child: ChildEntry) -> Result<sqlx::Result<JobId>, Failure> {
        let journal = Arc::clone(self);
        let spawned = self.beside(async move {
            let (attempt, name) = (child.fence.attempt, child.name.clone());
            let spawned = journal.shared.backend.spawn(child).await;
            if let Ok(Some(id)) = &spawned {
                journal.note(Finished { attempt, name, output: Some(format!("{{\"child\":\"{id}\"}}")), wait: None });
            }
            spawned
        });
        match spawned.await? {
            Ok(Some(id)) => Ok(Ok(id)),
            Ok(None) => Err(self.lost().into()),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Does what writes beside the handler: it goes on when this is dropped, and the attempt waits for it.
    pub(super) async fn beside<T: Send + 'static>(self: &Arc<Self>, work: impl Future<Output = T> + Send + 'static) -> Result<T, Failure> {
        let writing = self.writing();
        let done = self.shared.handlers.spawn(async move {
            let done = work.await;
            drop(writing);
            done
        });
        Ok(done.await?)
    }

    /// What is journaled is written under this.
    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    /// What is asked for, of a signal.
    pub(super) fn ask_for(&self, name: &str, signal: &str, end: Option<String>) -> SignalEntry {
        SignalEntry { fence: self.fence, name: name.to_owned(), signal: signal.to_owned(), end }
    }

    /// Waits until then: here, if that is soon; otherwise the attempt is left meanwhile, unless a step is on its way.
    pub(super) async fn wait(self: &Arc<Self>, until: Instant) {
        let _waiting = self.waiting(Wait { until: Some(until), signal: None });
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Timers have a longest time.
            tokio::time::sleep(left.min(Duration::from_hours(24))).await;
        }
    }

    /// That the handler waits for this, until it is dropped.
    pub(super) fn waiting(self: &Arc<Self>, wait: Wait) -> Waiting {
        let mut state = self.lock();
        state.waited += 1;
        let number = state.waited;
        state.waits.insert(number, wait);
        Waiting(Arc::clone(self), number)
    }

    /// That what the handler waits for could not be journaled: its attempt ends with this.
    pub(super) fn break_off(&self, failure: Failure) {
        self.lock().broken.get_or_insert(failure);
    }

    /// That the job begins anew, with this; what is said first counts.
    pub(super) fn restart(&self, anew: Anew) {
        self.lock().anew.get_or_insert(anew);
    }

    /// Whether the attempt is to be left; asked whenever its handler has nothing to do.
    pub(super) fn stop(&self) -> Option<Stop> {
        let mut state = self.lock();
        if let Some(failure) = state.broken.take() {
            return Some(Stop::Broken(failure));
        }
        if let Some(anew) = state.anew.take() {
            return Some(Stop::Restarted(anew));
        }
        if state.waits.is_empty() || state.under_way > 0 {
            return None;
        }
        let first = state.waits.values().filter_map(|wait| wait.until).min();
        let left = first.map(|first| first.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left <= IN_PLACE) {
            return None;
        }
        if state.is_unsure {
            return Some(Stop::Suspended(UNSURE));
        }
        let signals: BTreeSet<&String> = state.waits.values().filter_map(|wait| wait.signal.as_ref()).collect();
        match left {
            Some(left) if signals.is_empty() => Some(Stop::Suspended(left)),
            left => Some(Stop::Parked(left, signals.into_iter().cloned().collect())),
        }
    }

    /// Whether something may be journaled that this attempt does not know. Who is parked then would wait for a signal that it has: it is put off.
    pub(super) fn is_unsure(&self) -> bool {
        self.lock().is_unsure || *self.writing.borrow() > 0
    }

    pub(super) fn wrong(&self, step: &str, why: &str) -> Error {
        Error::Step { job: self.id, step: step.to_owned(), why: why.to_owned() }
    }

    fn too_much(&self, step: &str) -> Failure {
        let why = "the job has 10,000 steps, or 16 MiB of what they gave, which is the most; begin it anew before, with `cx.restart(..)`";
        Failure::terminal(self.wrong(step, why))
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

/// A step on its way to the database.
struct Writing(Arc<Journal>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.send_modify(|count| *count -= 1);
    }
}

/// A step on its way.
pub(super) struct UnderWay(Arc<Journal>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

/// Something that a handler waits for.
pub(super) struct Waiting(Arc<Journal>, u64);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waits.remove(&self.1);
    }
}

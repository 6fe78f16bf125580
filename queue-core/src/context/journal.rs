//! In-memory journal of a durable job during one attempt: finished steps, used names and current waits.
//!
//! This module tracks the state. The `durable` module defines the calls of the handler, and the backend writes the steps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    ChildEntry, CommitResult, Fence, JournaledStep, OwnedTransaction, ReceiveResult, Shared, SignalEntry, StepEntry, WriteResult,
    fence::WrittenStep, last_journaled::LastJournaled,
};
use crate::{
    define::{Failure, JobId, RestartPayload},
    error::Error,
};

/// Maximum number of steps of a job.
const MAX_STEPS: usize = 10_000;
/// Maximum total size of a job's step outputs, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Longest remaining sleep for which an attempt is not suspended. A suspension and a new claim take about as long as this sleep.
const MAX_IN_PLACE_WAIT: Duration = Duration::from_secs(1);

/// Retry delay of a job whose in-memory journal may lack a journaled step.
pub(crate) const UNCERTAIN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Name suffix of the step that stores the timeout of a wait.
pub(crate) const TIMEOUT_SUFFIX: &str = " (timeout)";

/// Suffix of the signal name with which a handler waits for a spawned child or map. `queue.join_name` uses the same suffix.
pub(crate) const JOIN_SUFFIX: &str = " (join)";

/// Reason why an attempt ends before its handler has returned.
pub(crate) enum EarlyExit {
    /// The handler is waiting. The job runs again after the given duration.
    Suspended(Duration),
    /// The handler is waiting for one of the signals, for at most the given duration. Without a duration, it waits indefinitely.
    Parked(Option<Duration>, Vec<String>),
    /// The handler requested a restart of the job with the given payload.
    Restarted(RestartPayload),
    /// The job could not be restarted, or a wait failed, for example because it could not be journaled.
    Broken(Failure),
}

/// Journal state of one attempt.
#[derive(Debug)]
pub(super) struct Journal {
    fence: Fence,
    id: JobId,
    shared: Arc<Shared>,
    last_journaled: LastJournaled,
    state: Mutex<JournalState>,
    /// Number of step writes in progress. The writes continue if the handler is dropped.
    writing: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct JournalState {
    /// Results of finished steps, by name.
    finished: HashMap<String, StepResult>,
    /// Step names that this attempt has used.
    used_names: HashSet<String>,
    output_bytes: usize,
    /// Number of running steps.
    running_steps: usize,
    /// Whether a signal request had an unknown outcome. The database may then have journaled a signal that `finished` does not contain.
    is_uncertain: bool,
    /// Current waits of the handler.
    waits: BTreeMap<u64, Wait>,
    last_wait_id: u64,
    aborted: Option<Failure>,
    restarted: Option<RestartPayload>,
}

/// Result of a finished step: an output or the end of a sleep.
#[derive(Clone, Debug)]
pub(super) enum StepResult {
    /// Output of a step or payload of a signal, as JSON text. `None` represents JSON null.
    Step(Option<String>),
    /// End time of a sleep, or of a wait that timed out.
    Sleep(Instant),
}

/// Wait of a handler for a deadline, a signal, or whichever of the two comes first.
#[derive(Clone, Debug, Default)]
pub(super) struct Wait {
    pub(super) until: Option<Instant>,
    pub(super) signal: Option<String>,
}

impl Journal {
    pub(super) fn new(fence: Fence, shared: Arc<Shared>, last_journaled: LastJournaled) -> Self {
        Self { fence, id: fence.id, shared, last_journaled, state: Mutex::default(), writing: watch::Sender::default() }
    }

    /// Loads the finished steps. If loading fails, the current attempt counts as the first of `max_attempts`.
    pub(super) async fn load(&self) -> Result<(), Error> {
        let steps = self.shared.backend.steps(self.id).await;
        let (mut state, now) = (self.lock(), Instant::now());
        if steps.is_err() {
            self.last_journaled.set(self.fence.attempt);
        }
        for JournaledStep { name, attempt, output, left_ms } in steps? {
            // Keeps the attempt number of the latest step. A requeue restarts the count, so an earlier step may have a greater number.
            self.last_journaled.set(attempt);
            state.output_bytes += output.as_ref().map_or(0, String::len);
            let result = left_ms.map_or(StepResult::Step(output), |left| StepResult::Sleep(now + duration_from_ms(left)));
            state.finished.insert(name, result);
        }
        Ok(())
    }

    /// Returns whether a step with this name is finished.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().finished.contains_key(name)
    }

    /// Returns the result of the step, or `None` if the step is not finished. Each attempt may use a step name only once.
    pub(super) fn look_up(&self, name: &str) -> Result<Option<StepResult>, Failure> {
        let mut state = self.lock();
        if !state.used_names.insert(name.to_owned()) {
            return Err(Failure::terminal(
                self.step_error(name, "the attempt uses this step name twice; give each step a unique name, such as `(\"resize\", i)`"),
            ));
        }
        let found = state.finished.get(name).cloned();
        if found.is_none() && (state.finished.len() >= MAX_STEPS || state.output_bytes >= MAX_OUTPUT_BYTES) {
            return Err(self.limit_exceeded(name));
        }
        Ok(found)
    }

    /// Counts a running step until the returned guard is dropped.
    pub(super) fn begin_step(self: &Arc<Self>) -> RunningStep {
        self.lock().running_steps += 1;
        RunningStep(Arc::clone(self))
    }

    /// Returns the journal entry of a step, and adds the size of the step's output to the job's total.
    pub(super) fn entry(&self, name: &str, output: Option<String>, since: Instant, wait: Option<Duration>) -> Result<StepEntry, Failure> {
        let mut state = self.lock();
        state.output_bytes += output.as_ref().map_or(0, String::len);
        if state.output_bytes > MAX_OUTPUT_BYTES {
            return Err(self.limit_exceeded(name));
        }
        Ok(StepEntry { fence: self.fence, name: name.to_owned(), ran: since.elapsed(), wait, output })
    }

    /// Writes and commits a step. If this future is dropped, the write continues, and [`flush`](Self::flush) waits for it.
    pub(super) async fn write(self: &Arc<Self>, entry: StepEntry) -> Result<(), Error> {
        let (journal, writing) = (Arc::clone(self), self.begin_write());
        let written = self.shared.handlers.spawn(async move {
            let step = WrittenStep::of(&entry);
            let written = journal.shared.backend.journal(entry).await;
            if matches!(written, WriteResult::Yes) {
                journal.record(step);
            }
            drop(writing);
            written
        });
        match written.await {
            Ok(WriteResult::Yes) => Ok(()),
            Ok(WriteResult::Refused) => Err(self.lease_lost()),
            Ok(WriteResult::Failed(why)) => Err(Error::NotWritten { job: self.id, why }),
            Err(error) => Err(Error::NotWritten { job: self.id, why: error.to_string() }),
        }
    }

    /// Writes a step in the transaction that contains the step's own writes, and commits. The write continues if this future is dropped,
    /// as with [`write`](Self::write).
    pub(super) async fn commit(self: &Arc<Self>, tx: OwnedTransaction, entry: StepEntry) -> Result<(), Failure> {
        let (journal, writing) = (Arc::clone(self), self.begin_write());
        let committed = self.shared.handlers.spawn(async move {
            let step = WrittenStep::of(&entry);
            let committed = Arc::clone(&journal.shared.backend).commit_step(tx, entry).await;
            if matches!(committed, CommitResult::Written) {
                journal.record(step);
            }
            drop(writing);
            committed
        });
        match committed.await? {
            CommitResult::Written => Ok(()),
            CommitResult::Lost => Err(self.lease_lost().into()),
            CommitResult::Undone(failure) | CommitResult::Unknown(failure) => Err(failure),
        }
    }

    /// Records a step that was just written to the database.
    pub(super) fn record(&self, WrittenStep { attempt, name, output, wait }: WrittenStep) {
        let mut state = self.lock();
        self.last_journaled.set(attempt);
        // In memory, the sleep ends slightly later than in the database, which computed the end before its response arrived.
        let result = wait.map_or(StepResult::Step(output), |wait| StepResult::Sleep(Instant::now() + wait));
        state.finished.insert(name, result);
    }

    /// Counts a write in progress until the returned guard is dropped.
    fn begin_write(self: &Arc<Self>) -> PendingWrite {
        self.writing.send_modify(|count| *count += 1);
        PendingWrite(Arc::clone(self))
    }

    /// Waits until no step write is in progress, or until `timeout` elapses. Called after the handler has ended.
    pub(super) async fn flush(&self, timeout: Duration) {
        let mut writing = self.writing.subscribe();
        let _ = tokio::time::timeout(timeout, writing.wait_for(|count| *count == 0)).await;
    }

    /// Journals the next signal with the requested name, or the timeout of the wait if the timeout has passed. Returns `None` if neither
    /// has occurred, or if the outcome of the request is unknown. If this future is dropped, the write continues, as in `write`.
    pub(super) async fn receive(self: &Arc<Self>, request: SignalEntry) -> Result<Option<StepResult>, Failure> {
        let (journal, writing) = (Arc::clone(self), self.begin_write());
        let result = self.shared.handlers.spawn(async move {
            let (attempt, name) = (request.fence.attempt, request.name.clone());
            let result = journal.shared.backend.receive(request).await;
            match &result {
                ReceiveResult::Signal(output) => journal.record(WrittenStep { attempt, name, output: output.clone(), wait: None }),
                ReceiveResult::Over => journal.record(WrittenStep { attempt, name, output: None, wait: Some(Duration::ZERO) }),
                ReceiveResult::Unknown => journal.lock().is_uncertain = true,
                ReceiveResult::Nothing | ReceiveResult::Refused | ReceiveResult::Failed(_) => {}
            }
            drop(writing);
            result
        });
        match result.await? {
            ReceiveResult::Signal(output) => Ok(Some(StepResult::Step(output))),
            ReceiveResult::Over => Ok(Some(StepResult::Sleep(Instant::now()))),
            ReceiveResult::Nothing | ReceiveResult::Unknown => Ok(None),
            ReceiveResult::Refused => Err(self.lease_lost().into()),
            ReceiveResult::Failed(why) => Err(Error::NotWritten { job: self.id, why }.into()),
        }
    }

    /// Enqueues a child and journals its step in one transaction. If this future is dropped, the write continues, as in `write`.
    pub(super) async fn spawn(self: &Arc<Self>, child: ChildEntry) -> Result<sqlx::Result<JobId>, Failure> {
        let journal = Arc::clone(self);
        let spawned = self.run_detached(async move {
            let (attempt, name) = (child.fence.attempt, child.name.clone());
            let spawned = journal.shared.backend.spawn(child).await;
            if let Ok(Some(id)) = &spawned {
                journal.record(WrittenStep { attempt, name, output: Some(format!("{{\"child\":\"{id}\"}}")), wait: None });
            }
            spawned
        });
        match spawned.await? {
            Ok(Some(id)) => Ok(Ok(id)),
            Ok(None) => Err(self.lease_lost().into()),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Runs a write in a separate task. The write continues if this future is dropped, as with [`write`](Self::write).
    pub(super) async fn run_detached<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let writing = self.begin_write();
        let done = self.shared.handlers.spawn(async move {
            let done = work.await;
            drop(writing);
            done
        });
        Ok(done.await?)
    }

    /// Returns the fence for the attempt's writes.
    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    /// Creates the request for the next signal with the name `signal`.
    pub(super) fn signal_request(&self, name: &str, signal: &str, end: Option<String>) -> SignalEntry {
        SignalEntry { fence: self.fence, name: name.to_owned(), signal: signal.to_owned(), end }
    }

    /// Waits until the deadline. While no step is running, a wait longer than [`MAX_IN_PLACE_WAIT`] can suspend the attempt.
    pub(super) async fn wait_until(self: &Arc<Self>, deadline: Instant) {
        let _waiting = self.start_wait(Wait { until: Some(deadline), signal: None });
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            // Sleeps in parts of at most one day, because timers have a maximum duration.
            tokio::time::sleep(remaining.min(Duration::from_hours(24))).await;
        }
    }

    /// Registers a wait of the handler until the returned guard is dropped.
    pub(super) fn start_wait(self: &Arc<Self>, wait: Wait) -> WaitGuard {
        let mut state = self.lock();
        state.last_wait_id += 1;
        let id = state.last_wait_id;
        state.waits.insert(id, wait);
        WaitGuard(Arc::clone(self), id)
    }

    /// Aborts the attempt with `failure`, because a wait failed or the job could not be restarted. The first call wins.
    pub(super) fn abort(&self, failure: Failure) {
        self.lock().aborted.get_or_insert(failure);
    }

    /// Requests a restart of the job. The first call wins.
    pub(super) fn restart(&self, restart: RestartPayload) {
        self.lock().restarted.get_or_insert(restart);
    }

    /// Returns the early exit of the attempt, or `None` if the attempt must continue. Called after each poll of the handler.
    pub(super) fn early_exit(&self) -> Option<EarlyExit> {
        let mut state = self.lock();
        if let Some(failure) = state.aborted.take() {
            return Some(EarlyExit::Broken(failure));
        }
        if let Some(restart) = state.restarted.take() {
            return Some(EarlyExit::Restarted(restart));
        }
        if state.waits.is_empty() || state.running_steps > 0 {
            return None;
        }
        let first = state.waits.values().filter_map(|wait| wait.until).min();
        let remaining = first.map(|first| first.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|remaining| remaining <= MAX_IN_PLACE_WAIT) {
            return None;
        }
        if state.is_uncertain {
            return Some(EarlyExit::Suspended(UNCERTAIN_RETRY_DELAY));
        }
        let signals: BTreeSet<&String> = state.waits.values().filter_map(|wait| wait.signal.as_ref()).collect();
        match remaining {
            Some(remaining) if signals.is_empty() => Some(EarlyExit::Suspended(remaining)),
            remaining => Some(EarlyExit::Parked(remaining, signals.into_iter().cloned().collect())),
        }
    }

    /// Returns whether a journaled step may be missing in memory. If so, the job is not parked: its signal may already be journaled.
    pub(super) fn is_uncertain(&self) -> bool {
        self.lock().is_uncertain || *self.writing.borrow() > 0
    }

    pub(super) fn step_error(&self, step: &str, why: &str) -> Error {
        Error::Step { job: self.id, step: step.to_owned(), why: why.to_owned() }
    }

    fn limit_exceeded(&self, step: &str) -> Failure {
        let why = "the job reached the limit of 10,000 steps or 16 MiB of step outputs; restart it earlier with `cx.restart(..)`";
        Failure::terminal(self.step_error(step, why))
    }

    pub(super) fn lease_lost(&self) -> Error {
        Error::LeaseLost { job: self.id }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Locks the journal state. Ignores poisoning, because no update under the lock is partial.
    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts milliseconds into a duration. Negative values become zero, and values out of range become 366 days.
fn duration_from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64((ms / 1000.0).max(0.0)).unwrap_or(Duration::from_hours(24 * 366))
}

/// Guard that counts a write in progress.
struct PendingWrite(Arc<Journal>);

impl Drop for PendingWrite {
    fn drop(&mut self) {
        self.0.writing.send_modify(|count| *count -= 1);
    }
}

/// Guard that counts a running step.
pub(super) struct RunningStep(Arc<Journal>);

impl Drop for RunningStep {
    fn drop(&mut self) {
        self.0.lock().running_steps -= 1;
    }
}

/// Guard that keeps a wait registered.
pub(super) struct WaitGuard(Arc<Journal>, u64);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.lock().waits.remove(&self.1);
    }
}

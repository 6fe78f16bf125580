//! Backend that replaces the worker and the store while one attempt runs in a test. The backend records the reports of the attempt. In a
//! drain, it also passes the test's transaction to the handler.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::PgPool;
use tokio::time::timeout;

use crate::{
    context::{
        Backend, ChildEntry, ChildStatus, ChunkEntry, CloseEntry, CommitResult, Fence, JournaledStep, LentTransaction, MapProgress,
        OwnedTransaction, ReceiveResult, ReportEntry, SignalEntry, StepEntry, WriteResult,
    },
    define::{Ending, JobId},
    error::Error,
    results::Progress,
};

/// Maximum time that a handler waits for the test's transaction while another part of the same handler uses it.
const TRANSACTION_WAIT: Duration = Duration::from_secs(10);

/// Statement that sets a savepoint before the handler's writes. If the attempt fails, its writes are rolled back to this savepoint.
pub(super) const SAVE: &str = "savepoint queue_attempt";
const UNDO: &str = "rollback to savepoint queue_attempt";
pub(super) const DROP: &str = "rollback to savepoint queue_attempt; release savepoint queue_attempt";

/// Statements that replace a commit of the handler's writes in the test's transaction. Like a commit, they check deferred constraints.
const KEEP: &str = "set constraints all immediate; release savepoint queue_attempt";

/// Statement that fails if a commit would fail because of a deferred constraint or an earlier error.
const CHECK: &str = "set constraints all immediate";

/// Statements that replace a commit like [`KEEP`], and then allow the same attempt to write again.
const KEEP_ON: &str =
    "set constraints all immediate; release savepoint queue_attempt; set constraints all deferred; savepoint queue_attempt";

#[derive(Debug, Default)]
pub(super) struct TestBackend {
    lent: Option<LentTransaction>,
    /// Pool for the handler's transactions. Used if the test has passed no transaction in `lent`.
    pool: Option<PgPool>,
    notes: Mutex<AttemptReports>,
    /// Number of writes that a real store would have committed.
    kept: AtomicUsize,
    /// Whether the attempt has ended. Later writes are discarded.
    has_ended: AtomicBool,
    /// Lock that serializes commits with the end of the attempt.
    committing: tokio::sync::Mutex<()>,
}

/// State and reports of one attempt.
#[derive(Debug, Default)]
pub(super) struct AttemptReports {
    pub(super) progress: Progress,
    pub(super) checkpoint: Option<String>,
    pub(super) committed_ending: Option<Ending>,
    /// Steps journaled by this attempt and by earlier attempts.
    pub(super) steps: Vec<JournaledStep>,
    /// Time at which each step was journaled, by step name. For steps of earlier attempts, this is the start of this attempt. The length
    /// of a wait is measured from this time.
    since: HashMap<String, Instant>,
    /// Signals that the job has not received yet, oldest first.
    signals: Vec<TestSignal>,
    /// Sequence numbers of the received signals.
    pub(super) received: Vec<i64>,
    /// Results that the test has set for child jobs, each with the name of the step that spawns the child. `None` in a drain, where jobs
    /// cannot spawn children.
    children: Option<Vec<(String, ChildStatus)>>,
    /// Whether progress or a checkpoint was reported.
    pub(super) changed: bool,
}

/// Signal that was sent before the attempt.
#[derive(Clone, Debug)]
pub(super) struct TestSignal {
    pub(super) seq: i64,
    pub(super) name: String,
    pub(super) payload: Option<String>,
}

impl TestBackend {
    pub(super) fn new(
        attempt: i16,
        (checkpoint, steps, signals): (Option<String>, Vec<JournaledStep>, Vec<TestSignal>),
        lent: Option<LentTransaction>,
        pool: Option<PgPool>,
    ) -> Self {
        let progress = Progress { attempt, ..Progress::default() };
        let since = steps.iter().map(|step| (step.name.clone(), Instant::now())).collect();
        let notes = Mutex::new(AttemptReports { progress, checkpoint, steps, since, signals, ..AttemptReports::default() });
        let (kept, has_ended, committing) = Default::default();
        Self { lent, pool, notes, kept, has_ended, committing }
    }

    /// Sets the results of child jobs, which do not run in a test.
    pub(super) fn with_children(self, children: Option<Vec<(String, ChildStatus)>>) -> Self {
        self.notes().children = children;
        self
    }

    /// Returns the number of writes that a real store would have committed so far.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// Marks the attempt as ended. Further writes are discarded, as if a worker had lost its lease. Like a worker, waits up to 10 s for a
    /// pending commit.
    pub(super) async fn close(&self) {
        self.has_ended.store(true, SeqCst);
        let _ = timeout(TRANSACTION_WAIT, self.committing.lock()).await;
    }

    /// Records progress and the checkpoint of a report.
    pub(super) fn record(&self, entry: &ReportEntry) {
        let mut notes = self.notes();
        notes.progress.fraction = entry.fraction;
        notes.progress.stage.clone_from(&entry.stage);
        // Parsing does not fail, because the text was serialized from a map of the same type.
        notes.progress.counts = serde_json::from_str(&entry.counts).unwrap_or_default();
        if entry.checkpoint.is_some() {
            notes.checkpoint.clone_from(&entry.checkpoint);
            self.kept.fetch_add(1, Relaxed);
        }
        notes.changed = true;
    }

    pub(super) fn take(&self) -> AttemptReports {
        std::mem::take(&mut *self.notes())
    }

    /// Locks the reports. A poisoned lock is usable, because no code leaves the reports half-written.
    fn notes(&self) -> MutexGuard<'_, AttemptReports> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for TestBackend {
    /// Begins a transaction on the pool. If the test has passed its transaction, returns this transaction instead, after rolling back
    /// uncommitted writes of the handler.
    async fn begin(&self, job: JobId) -> Result<OwnedTransaction, Error> {
        let Some(lent) = &self.lent else {
            let pool = self.pool.as_ref().ok_or(Error::NoTransaction { job })?;
            return Ok(OwnedTransaction::Pooled(pool.begin().await?));
        };
        let mut tx = timeout(TRANSACTION_WAIT, Arc::clone(lent).lock_owned()).await.map_err(|_| Error::NoTransaction { job })?;
        sqlx::raw_sql(UNDO).execute(&mut **tx).await?;
        Ok(OwnedTransaction::Lent(tx))
    }

    /// Commits the writes of a handler's transaction and records the verdict.
    async fn commit(self: Arc<Self>, tx: OwnedTransaction, _: Fence, ending: Ending) -> CommitResult {
        let _committing = self.committing.lock().await;
        if self.has_ended.load(SeqCst) {
            return undo(tx).await;
        }
        match keep(tx, KEEP).await {
            Ok(()) => {
                self.notes().committed_ending = Some(ending);
                self.kept.fetch_add(1, Relaxed);
                CommitResult::Written
            }
            Err(error) => CommitResult::Undone(Error::Database(error).into()),
        }
    }

    async fn checkpoint(&self, _: JobId) -> Result<Option<String>, Error> {
        Ok(self.notes().checkpoint.clone())
    }

    async fn steps(&self, _: JobId) -> Result<Vec<JournaledStep>, Error> {
        Ok(self.notes().steps.clone())
    }

    async fn journal(&self, entry: StepEntry) -> WriteResult {
        if self.has_ended.load(SeqCst) {
            return WriteResult::Refused;
        }
        let mut notes = self.notes();
        notes.since.insert(entry.name.clone(), Instant::now());
        notes.steps.push(journaled(entry));
        self.kept.fetch_add(1, Relaxed);
        WriteResult::Yes
    }

    async fn receive(&self, SignalEntry { fence, name, signal, end }: SignalEntry) -> ReceiveResult {
        if self.has_ended.load(SeqCst) {
            return ReceiveResult::Refused;
        }
        let (mut notes, attempt) = (self.notes(), fence.attempt);
        if let Some(place) = notes.signals.iter().position(|sent| sent.name == signal) {
            let TestSignal { seq, payload, .. } = notes.signals.remove(place);
            notes.received.push(seq);
            notes.steps.push(JournaledStep { name, attempt, output: payload.clone(), left_ms: None });
            self.kept.fetch_add(1, Relaxed);
            return ReceiveResult::Signal(payload);
        }
        let passed = end.as_ref().and_then(|end| notes.since.get(end)).map_or(0.0, |since| since.elapsed().as_secs_f64() * 1000.0);
        let is_over = |step: &JournaledStep| Some(&step.name) == end.as_ref() && step.left_ms.is_some_and(|left| left <= passed);
        if notes.steps.iter().any(is_over) {
            notes.steps.push(JournaledStep { name, attempt, output: None, left_ms: Some(0.0) });
            self.kept.fetch_add(1, Relaxed);
            return ReceiveResult::Over;
        }
        ReceiveResult::Nothing
    }

    /// Journals a child job without running it. The test sets the child's result.
    async fn spawn(&self, ChildEntry { fence, name, .. }: ChildEntry) -> sqlx::Result<Option<JobId>> {
        if self.has_ended.load(SeqCst) {
            return Ok(None);
        }
        let mut notes = self.notes();
        let Some(children) = &notes.children else {
            return Err(sqlx::Error::Protocol("a drain cannot spawn children; run the handler with `testing::run`".to_owned()));
        };
        let known = children.iter().find(|(step, _)| *step == name).map(|(_, child)| child.id);
        let id = known.unwrap_or(JobId(1_000_000 + notes.steps.len() as i64));
        notes.steps.push(JournaledStep { name, attempt: fence.attempt, output: Some(format!("{{\"child\":\"{id}\"}}")), left_ms: None });
        self.kept.fetch_add(1, Relaxed);
        Ok(Some(id))
    }

    async fn child(&self, _: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
        let notes = self.notes();
        let results = notes.children.iter().flatten().find(|(name, _)| name == step).map(|(_, child)| child.clone());
        Ok(Some(results.unwrap_or(ChildStatus { id: JobId(0), state: None, attempts: 0, output: None, error: None })))
    }

    /// Returns the progress of a map. Results set by the test take effect once all jobs of the map are spawned. If the test has set no
    /// results, no job of the map counts as finished.
    async fn gather(&self, _: JobId, step: &str, _: bool) -> sqlx::Result<Option<MapProgress>> {
        let notes = self.notes();
        let results = parts_of(&notes, step);
        let total = notes.steps.iter().find(|journaled| journaled.name == step).and_then(|journaled| journaled.output.as_deref());
        let Some(total) = total.and_then(|text| text.strip_prefix("{\"map\":")?.strip_suffix('}')?.parse::<i64>().ok()) else {
            return Ok(None);
        };
        let count = |state: &str| results.iter().filter(|part| part.state.as_deref() == Some(state)).count() as i64;
        if !results.is_empty() && results.len() as i64 != total {
            let why = format!("the test sets the results of {} jobs of the map `{step}`, which has {total}", results.len());
            return Err(sqlx::Error::Protocol(why));
        }
        let need = if results.is_empty() { total } else { 0 };
        let (completed, dead, cancelled) = (count("completed"), count("dead"), count("cancelled"));
        Ok(Some(MapProgress { total: Some(total), need, completed, dead, cancelled, chunks: 0, spawned: 0 }))
    }

    async fn begin_chunk(&self, _: JobId) -> Result<Option<OwnedTransaction>, Error> {
        if self.notes().children.is_some() {
            return Ok(None);
        }
        Err(Error::Database(sqlx::Error::Protocol("a drain cannot map jobs; run the handler with `testing::run`".to_owned())))
    }

    async fn add_chunk(&self, _: Option<OwnedTransaction>, _: ChunkEntry) -> sqlx::Result<Option<bool>> {
        Ok((!self.has_ended.load(SeqCst)).then_some(true))
    }

    async fn close_gather(&self, CloseEntry { fence, name, total }: CloseEntry) -> sqlx::Result<Option<bool>> {
        if self.has_ended.load(SeqCst) {
            return Ok(None);
        }
        let output = Some(format!("{{\"map\":{total}}}"));
        self.notes().steps.push(JournaledStep { name, attempt: fence.attempt, output, left_ms: None });
        self.kept.fetch_add(1, Relaxed);
        Ok(Some(true))
    }

    async fn parts(&self, _: JobId, step: &str, chunk: i32) -> sqlx::Result<Vec<ChildStatus>> {
        let notes = self.notes();
        Ok(parts_of(&notes, step).into_iter().skip(PAGE * usize::try_from(chunk).unwrap_or(0)).take(PAGE).cloned().collect())
    }

    /// Commits the writes of a step, regardless of the outcome of the attempt.
    async fn commit_step(self: Arc<Self>, tx: OwnedTransaction, entry: StepEntry) -> CommitResult {
        let _committing = self.committing.lock().await;
        if self.has_ended.load(SeqCst) {
            return undo(tx).await;
        }
        match keep(tx, KEEP_ON).await {
            Ok(()) => {
                self.notes().steps.push(journaled(entry));
                self.kept.fetch_add(1, Relaxed);
                CommitResult::Written
            }
            Err(error) => CommitResult::Undone(Error::Database(error).into()),
        }
    }
}

/// Number of results in each simulated batch of a map, except the last batch.
const PAGE: usize = 1000;

/// Returns the name under which `children` contains the results of a map's jobs. No step can have this name.
pub(super) fn part_name(step: &str) -> String {
    format!("{step} (part)\n")
}

fn parts_of<'n>(notes: &'n AttemptReports, step: &str) -> Vec<&'n ChildStatus> {
    let name = part_name(step);
    notes.children.iter().flatten().filter(|(of, _)| *of == name).map(|(_, part)| part).collect()
}

fn journaled(StepEntry { fence, name, wait, output, .. }: StepEntry) -> JournaledStep {
    JournaledStep { name, attempt: fence.attempt, output, left_ms: wait.map(|wait| wait.as_secs_f64() * 1000.0) }
}

/// Commits a transaction. In the test's transaction, executes the statements in `lent` instead of a commit.
async fn keep(tx: OwnedTransaction, lent: &'static str) -> sqlx::Result<()> {
    match tx {
        OwnedTransaction::Lent(mut tx) => sqlx::raw_sql(lent).execute(&mut **tx).await.map(drop),
        OwnedTransaction::Pooled(mut tx) => {
            // The check is needed because COMMIT rolls back without an error if a statement has failed.
            sqlx::raw_sql(CHECK).execute(&mut *tx).await?;
            tx.commit().await
        }
    }
}

/// Rolls back a transaction on the pool after the attempt has ended. Leaves the test's own transaction unchanged.
async fn undo(tx: OwnedTransaction) -> CommitResult {
    match tx {
        OwnedTransaction::Pooled(tx) => {
            tx.rollback().await.map_or_else(|error| CommitResult::Undone(error.into()), |()| CommitResult::Lost)
        }
        OwnedTransaction::Lent(_) => CommitResult::Lost,
    }
}

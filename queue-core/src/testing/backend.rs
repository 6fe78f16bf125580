//! What stands in for the worker and the store while one attempt runs in a test: it keeps what the attempt says, and lends it the test's
//! transaction.

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

/// So long a handler waits for a transaction that another part of it holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the handler wrote since goes when its attempt fails.
pub(super) const SAVE: &str = "savepoint queue_attempt";
const UNDO: &str = "rollback to savepoint queue_attempt";
pub(super) const DROP: &str = "rollback to savepoint queue_attempt; release savepoint queue_attempt";

/// What the handler wrote is to stay. Constraints that it deferred are checked, as its commit would.
const KEEP: &str = "set constraints all immediate; release savepoint queue_attempt";

/// Fails where a commit would.
const CHECK: &str = "set constraints all immediate";

/// The same, and the attempt goes on.
const KEEP_ON: &str =
    "set constraints all immediate; release savepoint queue_attempt; set constraints all deferred; savepoint queue_attempt";

#[derive(Debug, Default)]
pub(super) struct TestBackend {
    lent: Option<LentTransaction>,
    /// Where transactions are begun if none is lent.
    pool: Option<PgPool>,
    notes: Mutex<Notes>,
    /// How much was kept: what the attempt has written, and its store would have.
    kept: AtomicUsize,
    /// Whether the attempt is over.
    over: AtomicBool,
    /// Held while something is committed.
    committing: tokio::sync::Mutex<()>,
}

/// What one attempt has said.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) progress: Progress,
    pub(super) checkpoint: Option<String>,
    pub(super) said: Option<Ending>,
    /// What earlier attempts have journaled, and this one.
    pub(super) steps: Vec<JournaledStep>,
    /// When steps were journaled whose time is waited for; those of earlier attempts when this one began.
    since: HashMap<String, Instant>,
    /// What was sent, the first first.
    signals: Vec<TestSignal>,
    /// The places of those that were received.
    pub(super) received: Vec<i64>,
    /// What the test says that children came to, by the steps that spawn them.
    children: Option<Vec<(String, ChildStatus)>>,
    /// Whether there is anything to be written.
    pub(super) changed: bool,
}

/// A signal that was sent before the attempt.
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
        let notes = Mutex::new(Notes { progress, checkpoint, steps, since, signals, ..Notes::default() });
        let (kept, over, committing) = Default::default();
        Self { lent, pool, notes, kept, over, committing }
    }

    /// With what the test says of children.
    pub(super) fn with_children(self, children: Option<Vec<(String, ChildStatus)>>) -> Self {
        self.notes().children = children;
        self
    }

    /// How much was kept so far.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// Nothing is kept from now on, as of a worker that has lost its lease. Waits for a commit that is on its way, so long as a worker would.
    pub(super) async fn close(&self) {
        self.over.store(true, SeqCst);
        let _ = timeout(PATIENCE, self.committing.lock()).await;
    }

    /// Keeps what would be written in the store.
    pub(super) fn note(&self, entry: &ReportEntry) {
        let mut notes = self.notes();
        notes.progress.fraction = entry.fraction;
        notes.progress.stage.clone_from(&entry.stage);
        // Written by us, from such a map.
        notes.progress.counts = serde_json::from_str(&entry.counts).unwrap_or_default();
        if entry.checkpoint.is_some() {
            notes.checkpoint.clone_from(&entry.checkpoint);
            self.kept.fetch_add(1, Relaxed);
        }
        notes.changed = true;
    }

    pub(super) fn take(&self) -> Notes {
        std::mem::take(&mut *self.notes())
    }

    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for TestBackend {
    /// The test's transaction, without what a transaction that was begun before has left there; or one on the pool.
    async fn begin(&self, job: JobId) -> Result<OwnedTransaction, Error> {
        let Some(lent) = &self.lent else {
            let pool = self.pool.as_ref().ok_or(Error::NoTransaction { job })?;
            return Ok(OwnedTransaction::Pooled(pool.begin().await?));
        };
        let mut tx = timeout(PATIENCE, Arc::clone(lent).lock_owned()).await.map_err(|_| Error::NoTransaction { job })?;
        sqlx::raw_sql(UNDO).execute(&mut **tx).await?;
        Ok(OwnedTransaction::Lent(tx))
    }

    /// Keeps what a handler's own transaction wrote, and what it said with it, as its commit would.
    async fn commit(self: Arc<Self>, tx: OwnedTransaction, _: Fence, ending: Ending) -> CommitResult {
        let _committing = self.committing.lock().await;
        if self.over.load(SeqCst) {
            return undo(tx).await;
        }
        match keep(tx, KEEP).await {
            Ok(()) => {
                self.notes().said = Some(ending);
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
        if self.over.load(SeqCst) {
            return WriteResult::Refused;
        }
        let mut notes = self.notes();
        notes.since.insert(entry.name.clone(), Instant::now());
        notes.steps.push(journaled(entry));
        self.kept.fetch_add(1, Relaxed);
        WriteResult::Yes
    }

    async fn receive(&self, SignalEntry { fence, name, signal, end }: SignalEntry) -> ReceiveResult {
        if self.over.load(SeqCst) {
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

    /// Children are not run: the test says what they come to.
    async fn spawn(&self, ChildEntry { fence, name, .. }: ChildEntry) -> sqlx::Result<Option<JobId>> {
        if self.over.load(SeqCst) {
            return Ok(None);
        }
        let mut notes = self.notes();
        let Some(children) = &notes.children else {
            return Err(sqlx::Error::Protocol("a drain spawns no children; run the handler with `testing::run`".to_owned()));
        };
        let known = children.iter().find(|(step, _)| *step == name).map(|(_, child)| child.id);
        let id = known.unwrap_or(JobId(1_000_000 + notes.steps.len() as i64));
        notes.steps.push(JournaledStep { name, attempt: fence.attempt, output: Some(format!("{{\"child\":\"{id}\"}}")), left_ms: None });
        self.kept.fetch_add(1, Relaxed);
        Ok(Some(id))
    }

    async fn child(&self, _: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
        let notes = self.notes();
        let said = notes.children.iter().flatten().find(|(name, _)| name == step).map(|(_, child)| child.clone());
        Ok(Some(said.unwrap_or(ChildStatus { id: JobId(0), state: None, attempts: 0, output: None, error: None })))
    }

    /// What the test says of a map counts once all of it is spawned; of one of which nothing is said, no job is over.
    async fn gather(&self, _: JobId, step: &str, _: bool) -> sqlx::Result<Option<MapProgress>> {
        let notes = self.notes();
        let said = parts_of(&notes, step);
        let total = notes.steps.iter().find(|journaled| journaled.name == step).and_then(|journaled| journaled.output.as_deref());
        let Some(total) = total.and_then(|text| text.strip_prefix("{\"map\":")?.strip_suffix('}')?.parse::<i64>().ok()) else {
            return Ok(None);
        };
        let count = |state: &str| said.iter().filter(|part| part.state.as_deref() == Some(state)).count() as i64;
        if !said.is_empty() && said.len() as i64 != total {
            let why = format!("the test says what {} jobs of the map `{step}` came to, and it has {total}", said.len());
            return Err(sqlx::Error::Protocol(why));
        }
        let need = if said.is_empty() { total } else { 0 };
        let (completed, dead, cancelled) = (count("completed"), count("dead"), count("cancelled"));
        Ok(Some(MapProgress { total: Some(total), need, completed, dead, cancelled, chunks: 0, spawned: 0 }))
    }

    async fn begin_chunk(&self, _: JobId) -> Result<Option<OwnedTransaction>, Error> {
        if self.notes().children.is_some() {
            return Ok(None);
        }
        Err(Error::Database(sqlx::Error::Protocol("a drain maps no jobs; run the handler with `testing::run`".to_owned())))
    }

    async fn add_chunk(&self, _: Option<OwnedTransaction>, _: ChunkEntry) -> sqlx::Result<Option<bool>> {
        Ok((!self.over.load(SeqCst)).then_some(true))
    }

    async fn close_gather(&self, CloseEntry { fence, name, total }: CloseEntry) -> sqlx::Result<Option<bool>> {
        if self.over.load(SeqCst) {
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

    /// Keeps what the step wrote, as its commit would, whatever becomes of the attempt.
    async fn commit_step(self: Arc<Self>, tx: OwnedTransaction, entry: StepEntry) -> CommitResult {
        let _committing = self.committing.lock().await;
        if self.over.load(SeqCst) {
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

/// A page of outputs has so many.
const PAGE: usize = 1000;

/// What the test says of the jobs of a map is kept with what it says of children, by a name that no step has.
pub(super) fn part_name(step: &str) -> String {
    format!("{step} (part)\n")
}

fn parts_of<'n>(notes: &'n Notes, step: &str) -> Vec<&'n ChildStatus> {
    let name = part_name(step);
    notes.children.iter().flatten().filter(|(of, _)| *of == name).map(|(_, part)| part).collect()
}

fn journaled(StepEntry { fence, name, wait, output, .. }: StepEntry) -> JournaledStep {
    JournaledStep { name, attempt: fence.attempt, output, left_ms: wait.map(|wait| wait.as_secs_f64() * 1000.0) }
}

/// Keeps what was written: of a transaction that is lent, by this statement.
async fn keep(tx: OwnedTransaction, lent: &'static str) -> sqlx::Result<()> {
    match tx {
        OwnedTransaction::Lent(mut tx) => sqlx::raw_sql(lent).execute(&mut **tx).await.map(drop),
        OwnedTransaction::Pooled(mut tx) => {
            // A transaction that a statement has failed in would be rolled back by its commit, without a word.
            sqlx::raw_sql(CHECK).execute(&mut *tx).await?;
            tx.commit().await
        }
    }
}

/// Keeps nothing: the attempt is over. A transaction that is lent is ended by whoever lends it.
async fn undo(tx: OwnedTransaction) -> CommitResult {
    match tx {
        OwnedTransaction::Pooled(tx) => {
            tx.rollback().await.map_or_else(|error| CommitResult::Undone(error.into()), |()| CommitResult::Lost)
        }
        OwnedTransaction::Lent(_) => CommitResult::Lost,
    }
}

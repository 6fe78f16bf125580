//! What a running job says of itself: how far it is, what it does, what it has counted, and from where the next attempt goes on.
//!
//! Saying something only sets values in memory; the worker writes those that changed, of all its jobs together, under their leases. This
//! file keeps the values of one attempt; when and how they are written is the worker's part.

use std::{
    any::type_name,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{Fence, Shared};
use crate::{define::JobId, error::Error, payload};

/// The longest stage, in characters; what is longer is cut.
const LONGEST_STAGE: usize = 200;

/// The longest name of an event, in characters; what is longer is cut.
const LONGEST_NAME: usize = 64;

/// So many names of events an attempt may have; those beyond are counted as [`OTHERS`].
const MOST_NAMES: usize = 32;

/// The name for all names beyond the first.
const OTHERS: &str = "others";

/// Reports on one attempt of a job, from wherever its work is done: a clone may go into a thread or a task. From
/// [`Context::reporter`](crate::Context::reporter); a context has the same methods.
///
/// Once the attempt is over, or its lease is lost, what is said changes nothing, and [`checkpoint`](Self::checkpoint) is refused.
#[derive(Clone)]
pub struct Reporter {
    id: JobId,
    report: Arc<Report>,
    shared: Arc<Shared>,
}

impl Reporter {
    pub(crate) fn new(id: JobId, report: Arc<Report>, shared: Arc<Shared>) -> Self {
        Self { id, report, shared }
    }

    pub(crate) fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// How far the job is, from 0 to 1. What lies outside is taken for the nearer end; NaN is ignored.
    pub fn progress(&self, fraction: f64) {
        if !fraction.is_nan() {
            self.change(|values| values.fraction = Some(fraction.clamp(0.0, 1.0)));
        }
    }

    /// What the job does now, for people: at most 200 characters are kept. NUL becomes U+FFFD.
    pub fn stage(&self, stage: &str) {
        self.change(|values| values.stage = Some(storable(stage, LONGEST_STAGE)));
    }

    /// Counts one event of this name; see [`event_by`](Self::event_by).
    pub fn event(&self, name: &str) {
        self.event_by(name, 1);
    }

    /// Counts so many events of this name, which keeps at most 64 characters. Every attempt counts from zero. After 32 names, others are counted
    /// together as `others`.
    pub fn event_by(&self, name: &str, count: u64) {
        self.change(|values| {
            let name = storable(name, LONGEST_NAME);
            let known = values.counts.len() < MOST_NAMES || values.counts.contains_key(&name);
            let total = values.counts.entry(if known { name } else { OTHERS.to_owned() }).or_default();
            *total = total.saturating_add(count).min(i64::MAX.unsigned_abs());
        });
    }

    /// Keeps this value for the next attempt of the job, which gets it from [`last_checkpoint`](Self::last_checkpoint). It replaces the one before.
    /// When this returns `Ok`, it is committed, and with it whatever was reported before.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when others have the job or the attempt is over: nothing was written. [`Error::Checkpoint`] for a value that jsonb would not
    /// give back exactly, or of more than 256 KiB. [`Error::NotWritten`] for what the database refuses.
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        let report = &self.report;
        let text = payload::encode(value, payload::DEFAULT_LIMIT).map_err(|source| Error::Checkpoint { job: self.id, source })?;
        let answer = {
            let mut values = report.lock();
            if values.life != Life::Open {
                return Err(report.lost());
            }
            values.checkpoint = Some(text);
            report.ask(&mut values)
        };
        match answer.await {
            Ok(Written::Yes) => Ok(()),
            Ok(Written::Refused) => Err(report.lost()),
            Ok(Written::Failed(why)) => Err(report.not_written(why)),
            Err(_) if report.lock().life != Life::Open => Err(report.lost()),
            Err(_) => Err(report.not_written("the worker has ended".to_owned())),
        }
    }

    /// What the job's last [`checkpoint`](Self::checkpoint) was, whichever attempt or process wrote it; `None` if there was none. It is read when asked
    /// for, over the worker's pool: a job that does not ask pays nothing.
    ///
    /// # Errors
    /// [`Error::CheckpointType`] when it is no `T`, as after a deploy. [`Error::Database`].
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let decode = |text: String| {
            let wrong =
                |error: serde_json::Error| Error::CheckpointType { job: self.id, rust_type: type_name::<T>(), column: error.column() };
            serde_json::from_str(&text).map_err(wrong)
        };
        self.shared.backend.checkpoint(self.id).await?.map(decode).transpose()
    }

    fn change(&self, change: impl FnOnce(&mut Values)) {
        let report = &self.report;
        let mut values = report.lock();
        if values.life == Life::Open {
            change(&mut values);
            values.changed = true;
            if !std::mem::replace(&mut values.queued, true) {
                report.sender.send(report);
            }
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("job", &self.id).finish_non_exhaustive()
    }
}

/// Where reports go that have something to be written.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ReportSender(mpsc::UnboundedSender<Arc<Report>>);

impl ReportSender {
    /// A sender, and what it sends. Each report is in it once, and once more for each that waits to be written, so what runs bounds it.
    pub fn open() -> (Self, mpsc::UnboundedReceiver<Arc<Report>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Returns whether anybody is left to write: nobody is once the worker has ended.
    fn send(&self, report: &Arc<Report>) -> bool {
        self.0.send(Arc::clone(report)).is_ok()
    }
}

/// What one attempt has said.
#[doc(hidden)]
#[derive(Debug)]
pub struct Report {
    fence: Fence,
    sender: ReportSender,
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    fraction: Option<f64>,
    stage: Option<String>,
    counts: BTreeMap<String, u64>,
    /// Not taken yet.
    checkpoint: Option<String>,
    changed: bool,
    /// Sent, to be written when its time has come.
    queued: bool,
    /// Who waits until this is written.
    asks: Vec<oneshot::Sender<Written>>,
    /// There is a row.
    kept: bool,
    life: Life,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Open,
    /// The attempt is over.
    Ended,
    /// Its lease is lost.
    Lost,
}

/// What became of an entry.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Written {
    Yes,
    /// The lease does not have the job any more.
    Refused,
    Failed(String),
}

/// What is to be written of one attempt.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReportEntry {
    pub fence: Fence,
    pub fraction: Option<f64>,
    pub stage: Option<String>,
    /// JSON text.
    pub counts: String,
    /// JSON text.
    pub checkpoint: Option<String>,
    asks: Vec<oneshot::Sender<Written>>,
}

impl Report {
    pub(crate) fn new(fence: Fence, sender: ReportSender) -> Self {
        Self { fence, sender, values: Mutex::default() }
    }

    /// Whether somebody waits for what is to be written.
    pub fn is_urgent(&self) -> bool {
        !self.lock().asks.is_empty()
    }

    /// The job, if its attempt is over and there is a row that should go after it.
    pub fn is_left_behind(&self) -> Option<JobId> {
        let values = self.lock();
        (values.life == Life::Ended && values.kept).then_some(self.fence.id)
    }

    /// What is to be written now, if anything.
    pub fn take(&self) -> Option<ReportEntry> {
        let mut values = self.lock();
        values.queued = false;
        let asks = std::mem::take(&mut values.asks);
        if values.life == Life::Lost {
            tell(asks, &Written::Refused);
            return None;
        }
        let changed = std::mem::take(&mut values.changed);
        let checkpoint = values.checkpoint.take();
        if !changed && checkpoint.is_none() {
            tell(asks, &Written::Yes);
            return None;
        }
        // A map of texts to numbers is written without fail.
        let counts = serde_json::to_string(&values.counts).unwrap_or_else(|_| "{}".to_owned());
        Some(ReportEntry { fence: self.fence, fraction: values.fraction, stage: values.stage.clone(), counts, checkpoint, asks })
    }

    /// Says what became of an entry of this report.
    pub fn answer(&self, entry: ReportEntry, written: &Written) {
        let mut values = self.lock();
        match written {
            Written::Yes => values.kept = true,
            Written::Refused => values.life = Life::Lost,
            Written::Failed(_) => {}
        }
        tell(entry.asks, written);
    }

    /// Once the attempt is over: refuses whatever else is said, and waits for so long until what was said is written, so that it is there
    /// before the verdict.
    pub async fn end(self: &Arc<Self>, patience: Duration) {
        {
            let mut values = self.lock();
            if values.life == Life::Open {
                values.life = Life::Ended;
            }
        }
        self.flush(patience).await;
        let mut values = self.lock();
        (values.changed, values.checkpoint) = (false, None);
        values.asks.clear();
        if values.kept {
            self.sender.send(self);
        }
    }

    /// Waits for so long until what was said is written.
    pub(crate) async fn flush(self: &Arc<Self>, patience: Duration) {
        let answer = {
            let mut values = self.lock();
            (values.changed || values.checkpoint.is_some()).then(|| self.ask(&mut values))
        };
        if let Some(answer) = answer {
            let _ = timeout(patience, answer).await;
        }
    }

    fn ask(self: &Arc<Self>, values: &mut Values) -> oneshot::Receiver<Written> {
        let (ask, answer) = oneshot::channel();
        values.asks.push(ask);
        if !self.sender.send(self) {
            // Whoever waits is told so.
            values.asks.clear();
        }
        answer
    }

    fn lost(&self) -> Error {
        Error::LeaseLost { job: self.fence.id }
    }

    fn not_written(&self, why: String) -> Error {
        Error::NotWritten { job: self.fence.id, why }
    }

    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever does not wait any more need not know.
fn tell(asks: Vec<oneshot::Sender<Written>>, written: &Written) {
    for ask in asks {
        let _ = ask.send(written.clone());
    }
}

/// The first so many characters, without NUL.
fn storable(text: &str, most: usize) -> String {
    text.chars().take(most).map(|letter| if letter == '\0' { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f02_texts_are_cut_at_a_character_and_keep_no_nul() {
        assert_eq!(storable("a\0é", 9), "a\u{fffd}é");
        assert_eq!(storable(&"é".repeat(300), LONGEST_STAGE).chars().count(), LONGEST_STAGE);
    }
}

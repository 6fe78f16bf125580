//! Progress reports of running attempts: fraction, stage, event counts and checkpoints.
//!
//! A report only sets values in memory. The worker writes the changed values of all its jobs together, fenced by the jobs' leases. This
//! module holds the values of one attempt, and the worker decides when to write them.

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

/// Maximum length of a stage in characters. Longer text is truncated.
const MAX_STAGE_CHARS: usize = 200;

/// Maximum length of an event name in characters. Longer names are truncated.
const MAX_EVENT_NAME_CHARS: usize = 64;

/// Maximum number of event names per attempt. Events with further names are counted as [`OTHER_EVENTS`].
const MAX_EVENT_NAMES: usize = 32;

/// Name under which events are counted after the attempt has used [`MAX_EVENT_NAMES`] names.
const OTHER_EVENTS: &str = "others";

/// Reporter of one attempt's progress, usable from any thread or task. Returned by [`Context::reporter`](crate::Context::reporter). All
/// clones report on the same attempt. The context has the same methods.
///
/// Once the attempt has ended or has lost its lease, reports are ignored and [`checkpoint`](Self::checkpoint) returns an error.
///
/// ```
/// # use queue_core::Context;
/// # fn example(cx: &Context) {
/// let reporter = cx.reporter().clone();
/// std::thread::spawn(move || {
///     for frame in 1..=100_u32 {
///         reporter.progress(f64::from(frame) / 100.0);
///         reporter.event("frame");
///     }
/// });
/// # }
/// ```
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

    /// Reports the job's progress as a fraction from 0 to 1. Values outside this range are clamped; NaN is ignored.
    pub fn progress(&self, fraction: f64) {
        if !fraction.is_nan() {
            self.change(|values| values.fraction = Some(fraction.clamp(0.0, 1.0)));
        }
    }

    /// Reports the current stage of the job as human-readable text. Only the first 200 characters are kept; NUL becomes U+FFFD.
    pub fn stage(&self, stage: &str) {
        self.change(|values| values.stage = Some(truncate(stage, MAX_STAGE_CHARS)));
    }

    /// Counts one event with this name; see [`event_by`](Self::event_by).
    pub fn event(&self, name: &str) {
        self.event_by(name, 1);
    }

    /// Adds `count` events with this name. Names are truncated to 64 characters. Each attempt counts from zero. Once an attempt has used
    /// 32 different names, events with any other name are counted together as `others`.
    pub fn event_by(&self, name: &str, count: u64) {
        self.change(|values| {
            let name = truncate(name, MAX_EVENT_NAME_CHARS);
            let is_counted = values.counts.len() < MAX_EVENT_NAMES || values.counts.contains_key(&name);
            let total = values.counts.entry(if is_counted { name } else { OTHER_EVENTS.to_owned() }).or_default();
            *total = total.saturating_add(count).min(i64::MAX.unsigned_abs());
        });
    }

    /// Stores a checkpoint for the job's next attempt, which reads it with [`last_checkpoint`](Self::last_checkpoint). The new checkpoint
    /// replaces the previous one. When this method returns `Ok`, the checkpoint and all earlier reports are committed.
    ///
    /// # Errors
    /// Returns [`Error::LeaseLost`] and writes nothing if the attempt has ended or has lost its lease. Returns [`Error::Checkpoint`] for a
    /// value of more than 256 KiB or a value that jsonb cannot represent exactly, and [`Error::NotWritten`] if the write failed.
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        let report = &self.report;
        let text = payload::encode(value, payload::DEFAULT_LIMIT).map_err(|source| Error::Checkpoint { job: self.id, source })?;
        let result = {
            let mut values = report.lock();
            if values.state != ReportState::Open {
                return Err(report.lease_lost());
            }
            values.checkpoint = Some(text);
            report.request_write(&mut values)
        };
        match result.await {
            Ok(WriteResult::Yes) => Ok(()),
            Ok(WriteResult::Refused) => Err(report.lease_lost()),
            Ok(WriteResult::Failed(why)) => Err(report.not_written(why)),
            Err(_) if report.lock().state != ReportState::Open => Err(report.lease_lost()),
            Err(_) => Err(report.not_written("the worker has ended".to_owned())),
        }
    }

    /// Reads the job's last [`checkpoint`](Self::checkpoint), which any attempt in any process may have written. Returns `None` if the job
    /// has no checkpoint. Each call queries the database through the worker's pool.
    ///
    /// # Errors
    /// Returns [`Error::CheckpointType`] if the checkpoint does not deserialize as `T`, for example after a deploy, and [`Error::Database`]
    /// if the query failed.
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let decode = |text: String| {
            let mismatch =
                |error: serde_json::Error| Error::CheckpointType { job: self.id, rust_type: type_name::<T>(), column: error.column() };
            serde_json::from_str(&text).map_err(mismatch)
        };
        self.shared.backend.checkpoint(self.id).await?.map(decode).transpose()
    }

    fn change(&self, change: impl FnOnce(&mut ReportValues)) {
        let report = &self.report;
        let mut values = report.lock();
        if values.state == ReportState::Open {
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

/// Sender half of the channel that passes changed reports to the worker.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ReportSender(mpsc::UnboundedSender<Arc<Report>>);

impl ReportSender {
    /// Creates the channel. A changed report is sent only if it is not already in the channel. A report is also sent for each caller that
    /// waits for a write, and at the end of its attempt. The unbounded channel therefore holds few reports per running attempt.
    pub fn open() -> (Self, mpsc::UnboundedReceiver<Arc<Report>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a report to the channel. Returns whether the worker still receives reports.
    fn send(&self, report: &Arc<Report>) -> bool {
        self.0.send(Arc::clone(report)).is_ok()
    }
}

/// Progress reported by one attempt, with the state of its writes.
#[doc(hidden)]
#[derive(Debug)]
pub struct Report {
    fence: Fence,
    sender: ReportSender,
    values: Mutex<ReportValues>,
}

#[derive(Debug, Default)]
struct ReportValues {
    fraction: Option<f64>,
    stage: Option<String>,
    counts: BTreeMap<String, u64>,
    /// Checkpoint to write, as JSON text.
    checkpoint: Option<String>,
    changed: bool,
    /// Whether the report is in the channel.
    queued: bool,
    /// Senders that pass the write result to the waiting callers.
    waiters: Vec<oneshot::Sender<WriteResult>>,
    /// Whether the database has a progress row that this attempt wrote.
    has_row: bool,
    state: ReportState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReportState {
    #[default]
    Open,
    Ended,
    Lost,
}

/// Outcome of a write under the lease.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum WriteResult {
    Yes,
    /// Refused because the lease no longer lists the job.
    Refused,
    Failed(String),
}

/// Values that an attempt has reported and that the worker writes to the database.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReportEntry {
    pub fence: Fence,
    pub fraction: Option<f64>,
    pub stage: Option<String>,
    /// Event counts as JSON text.
    pub counts: String,
    /// Checkpoint as JSON text.
    pub checkpoint: Option<String>,
    waiters: Vec<oneshot::Sender<WriteResult>>,
}

impl Report {
    pub(crate) fn new(fence: Fence, sender: ReportSender) -> Self {
        Self { fence, sender, values: Mutex::default() }
    }

    /// Returns whether a caller is waiting for the reported values to be written.
    pub fn is_urgent(&self) -> bool {
        !self.lock().waiters.is_empty()
    }

    /// Returns the id of the job if the attempt has ended but its progress row is still stored. The worker must delete the row.
    pub fn stale_row(&self) -> Option<JobId> {
        let values = self.lock();
        (values.state == ReportState::Ended && values.has_row).then_some(self.fence.id)
    }

    /// Takes the values to write. Returns `None` and notifies the waiters if no value has changed or the lease was lost.
    pub fn take(&self) -> Option<ReportEntry> {
        let mut values = self.lock();
        values.queued = false;
        let waiters = std::mem::take(&mut values.waiters);
        if values.state == ReportState::Lost {
            notify(waiters, &WriteResult::Refused);
            return None;
        }
        let changed = std::mem::take(&mut values.changed);
        let checkpoint = values.checkpoint.take();
        if !changed && checkpoint.is_none() {
            notify(waiters, &WriteResult::Yes);
            return None;
        }
        // Serializing a map from strings to numbers cannot fail.
        let counts = serde_json::to_string(&values.counts).unwrap_or_else(|_| "{}".to_owned());
        Some(ReportEntry { fence: self.fence, fraction: values.fraction, stage: values.stage.clone(), counts, checkpoint, waiters })
    }

    /// Records the result of writing `entry` and notifies the waiters of the entry.
    pub fn complete_write(&self, entry: ReportEntry, written: &WriteResult) {
        let mut values = self.lock();
        match written {
            WriteResult::Yes => values.has_row = true,
            WriteResult::Refused => values.state = ReportState::Lost,
            WriteResult::Failed(_) => {}
        }
        notify(entry.waiters, written);
    }

    /// Closes the report at the end of its attempt, so that it rejects further values. Waits up to `max_wait` for the pending values to
    /// be written and discards values that are still pending afterwards. Called before the verdict is written.
    pub async fn end(self: &Arc<Self>, max_wait: Duration) {
        {
            let mut values = self.lock();
            if values.state == ReportState::Open {
                values.state = ReportState::Ended;
            }
        }
        self.flush(max_wait).await;
        let mut values = self.lock();
        (values.changed, values.checkpoint) = (false, None);
        values.waiters.clear();
        if values.has_row {
            self.sender.send(self);
        }
    }

    /// Waits up to `max_wait` for the pending values to be written.
    pub(crate) async fn flush(self: &Arc<Self>, max_wait: Duration) {
        let result = {
            let mut values = self.lock();
            (values.changed || values.checkpoint.is_some()).then(|| self.request_write(&mut values))
        };
        if let Some(result) = result {
            let _ = timeout(max_wait, result).await;
        }
    }

    fn request_write(self: &Arc<Self>, values: &mut ReportValues) -> oneshot::Receiver<WriteResult> {
        let (sender, receiver) = oneshot::channel();
        values.waiters.push(sender);
        if !self.sender.send(self) {
            // The worker no longer receives reports. Dropping the senders wakes the waiters.
            values.waiters.clear();
        }
        receiver
    }

    fn lease_lost(&self) -> Error {
        Error::LeaseLost { job: self.fence.id }
    }

    fn not_written(&self, why: String) -> Error {
        Error::NotWritten { job: self.fence.id, why }
    }

    /// Locks the reported values. Ignores poisoning, because no update under the lock is partial.
    fn lock(&self) -> MutexGuard<'_, ReportValues> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies the waiters. A waiter that has dropped its receiver is skipped.
fn notify(waiters: Vec<oneshot::Sender<WriteResult>>, written: &WriteResult) {
    for waiter in waiters {
        let _ = waiter.send(written.clone());
    }
}

/// Returns the first `max_chars` characters of `text`, with each NUL replaced by U+FFFD because PostgreSQL cannot store NUL.
fn truncate(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).map(|letter| if letter == '\0' { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f02_texts_are_cut_at_a_character_and_keep_no_nul() {
        assert_eq!(truncate("a\0é", 9), "a\u{fffd}é");
        assert_eq!(truncate(&"é".repeat(300), MAX_STAGE_CHARS).chars().count(), MAX_STAGE_CHARS);
    }
}

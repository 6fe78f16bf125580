//! Writes the log of an attempt shortly before the attempt's verdict. Logs of attempts that end together are batched in one statement on
//! a separate connection.
//!
//! No verdict depends on a log. An attempt waits at most a second for its log to be written. After a timeout, attempts do not wait for
//! their logs again until the database responds. Logs that cannot be written are dropped, and the number of dropped logs is logged.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use queue_core::{Store, runner::LogEntry};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::live::{StoreConnection, bounded};

/// Maximum time that an attempt waits for its log to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum total size of the queued logs in bytes.
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// Maximum number of logs per statement.
const MAX_LOGS: usize = 100;

/// Maximum total log size in bytes per statement. A single larger log is sent alone.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Number of consecutive rejected logs after which the rest of the batch is dropped. The cause is then probably the log table rather than a
/// single log.
const MAX_CONSECUTIVE_REJECTIONS: usize = 3;

/// Minimum interval between log lines about dropped logs.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Sending end of the log loop's channel, shared by all attempts.
#[derive(Clone, Debug)]
pub(crate) struct LogSender {
    sender: mpsc::UnboundedSender<QueuedLog>,
    state: Arc<LogQueueState>,
}

/// Receiving end of the log loop's channel.
pub(crate) struct LogQueue {
    incoming: mpsc::UnboundedReceiver<QueuedLog>,
    state: Arc<LogQueueState>,
}

#[derive(Debug, Default)]
struct LogQueueState {
    /// Total size of the queued logs in bytes, including overhead.
    bytes: AtomicUsize,
    /// Whether an attempt's wait for its log has timed out, and the database has not responded since. While this is true, attempts do not
    /// wait for their logs.
    is_behind: AtomicBool,
    dropped: Mutex<DroppedLogs>,
}

/// Number of dropped logs in total, and since the last log line about dropped logs.
#[derive(Debug, Default)]
struct DroppedLogs {
    total: u64,
    since_last_log: u64,
    last_log: Option<Instant>,
}

/// Log of one attempt. The log loop drops this value once the log is written or discarded. Dropping it closes the channel on which the
/// attempt waits.
#[derive(Debug)]
struct QueuedLog {
    entry: LogEntry,
    _done: oneshot::Sender<()>,
}

/// Returns the size of a queued log in bytes, including an estimated overhead of 256 bytes.
fn size(entry: &LogEntry) -> usize {
    entry.text.len() + 256
}

impl LogSender {
    pub(crate) fn open() -> (Self, LogQueue) {
        let ((sender, incoming), state) = (mpsc::unbounded_channel(), Arc::<LogQueueState>::default());
        (Self { sender, state: Arc::clone(&state) }, LogQueue { incoming, state })
    }

    /// Queues a log. If `may_wait` is true, waits up to [`WRITE_TIMEOUT`] for the log to be written.
    pub(super) async fn write(&self, entry: LogEntry, may_wait: bool) {
        let Self { sender, state } = self;
        let bytes = size(&entry);
        if state.bytes.fetch_add(bytes, SeqCst) + bytes > MAX_QUEUED_BYTES {
            state.bytes.fetch_sub(bytes, SeqCst);
            return state.record_dropped(1, "too many bytes are queued");
        }
        let (done, written) = oneshot::channel();
        if sender.send(QueuedLog { entry, _done: done }).is_err() {
            return state.record_dropped(1, "the worker has ended");
        }
        if may_wait && !state.is_behind.load(Relaxed) && timeout(WRITE_TIMEOUT, written).await.is_err() {
            state.is_behind.store(true, Relaxed);
        }
    }
}

impl LogQueueState {
    /// Records that the database stored `written` of `sent` logs.
    fn record_written(&self, written: i64, sent: usize) {
        self.is_behind.store(false, Relaxed);
        let lost = (sent as u64).saturating_sub(written.unsigned_abs());
        if lost > 0 {
            self.record_dropped(lost, "their jobs were settled before the logs were written, or their leases were lost");
        }
    }

    fn record_dropped(&self, count: u64, error: &str) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.total += count;
        dropped.since_last_log += count;
        if dropped.last_log.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            let DroppedLogs { total, since_last_log, .. } = *dropped;
            *dropped = DroppedLogs { total, since_last_log: 0, last_log: Some(Instant::now()) };
            tracing::warn!(
                dropped = since_last_log,
                in_all = total,
                error,
                "logs of attempts could not be written and were dropped; \
                their jobs are not affected"
            );
        }
    }
}

/// Writes incoming logs until all senders are dropped.
pub(crate) async fn write_logs(logs: Arc<tokio::sync::Mutex<LogQueue>>, mut connection: StoreConnection, store: Store) {
    let mut logs = logs.lock().await;
    let mut next = None;
    loop {
        let Some(first) = (if next.is_some() { next.take() } else { logs.incoming.recv().await }) else { break };
        let mut bytes = size(&first.entry);
        let mut batch = vec![first];
        while batch.len() < MAX_LOGS && next.is_none() {
            let Ok(log) = logs.incoming.try_recv() else { break };
            bytes += size(&log.entry);
            if bytes > MAX_BYTES { next = Some(log) } else { batch.push(log) }
        }
        let batch_bytes: usize = batch.iter().map(|log| size(&log.entry)).sum();
        write_batch(&mut connection, store, batch, &logs.state).await;
        logs.state.bytes.fetch_sub(batch_bytes, SeqCst);
    }
    connection.close().await;
}

/// Writes a batch in one statement. If the statement is rejected, writes each log separately.
async fn write_batch(connection: &mut StoreConnection, store: Store, mut batch: Vec<QueuedLog>, state: &LogQueueState) {
    // The batch is reversed, so that popping from the end returns the logs in the order of arrival.
    batch.reverse();
    let mut rejection = match send_logs(connection, store, &batch).await {
        Ok(written) => return state.record_written(written, batch.len()),
        Err(error) if batch.len() == 1 || error.as_database_error().is_none() => {
            return state.record_dropped(batch.len() as u64, &queue_core::message(&error));
        }
        Err(error) => error,
    };
    let mut consecutive = 0;
    while let Some(log) = batch.pop() {
        match send_logs(connection, store, &[log]).await {
            Ok(written) => {
                consecutive = 0;
                state.record_written(written, 1);
            }
            Err(error) => {
                (rejection, consecutive) = (error, consecutive + 1);
                state.record_dropped(1, &queue_core::message(&rejection));
            }
        }
        if consecutive >= MAX_CONSECUTIVE_REJECTIONS {
            return state.record_dropped(batch.len() as u64, &queue_core::message(&rejection));
        }
    }
}

/// Sends one statement and returns the number of written logs.
async fn send_logs(connection: &mut StoreConnection, store: Store, logs: &[QueuedLog]) -> sqlx::Result<i64> {
    let entries = || logs.iter().map(|log| &log.entry);
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/write_logs.sql")))
        .bind(entries().map(|entry| entry.token).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.id).collect::<Vec<_>>())
        .bind(entries().map(|entry| i32::from(entry.attempt)).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.cut.cast_signed()).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.text.as_str()).collect::<Vec<_>>());
    let written = bounded(statement.fetch_one(connection.get().await?)).await;
    connection.note(written)
}

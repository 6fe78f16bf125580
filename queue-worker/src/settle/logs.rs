//! Writes what attempts have logged, right before their verdicts: of those that end together in one statement, on a connection of its own.
//!
//! Nobody's verdict hangs on it: an attempt waits for a moment at most, and for nothing while the last one waited in vain. What cannot be written is
//! dropped, and told with its count.

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

use crate::live::{Link, bounded};

/// An attempt waits for so long until its log is written.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many bytes may wait to be written.
const MOST_WAITING: usize = 32 * 1024 * 1024;

/// The most logs of one statement, and the most bytes, unless one alone has more.
const MOST: usize = 100;
const LARGEST: usize = 8 * 1024 * 1024;

/// So many that fail by themselves, one after the other, are taken for a fault of the table.
const FAULTS: usize = 3;

/// Logs that were dropped are told of this often.
const TOLD: Duration = Duration::from_secs(5);

/// Where attempts send their logs.
#[derive(Clone, Debug)]
pub(crate) struct LogSender {
    sender: mpsc::UnboundedSender<Waiting>,
    state: Arc<State>,
}

/// What is to be written.
pub(crate) struct Logs {
    incoming: mpsc::UnboundedReceiver<Waiting>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many bytes wait.
    bytes: AtomicUsize,
    /// The last attempt that waited did so in vain, and nothing was written since.
    is_behind: AtomicBool,
    dropped: Mutex<Dropped>,
}

#[derive(Debug, Default)]
struct Dropped {
    in_all: u64,
    untold: u64,
    told: Option<Instant>,
}

/// Dropped once it is written, or cannot be.
#[derive(Debug)]
struct Waiting {
    entry: LogEntry,
    _done: oneshot::Sender<()>,
}

/// With what it takes to wait.
fn size(entry: &LogEntry) -> usize {
    entry.text.len() + 256
}

impl LogSender {
    pub(crate) fn open() -> (Self, Logs) {
        let ((sender, incoming), state) = (mpsc::unbounded_channel(), Arc::<State>::default());
        (Self { sender, state: Arc::clone(&state) }, Logs { incoming, state })
    }

    /// Hands a log over, and waits until it is written if that is soon.
    pub(super) async fn keep(&self, entry: LogEntry, waits: bool) {
        let Self { sender, state } = self;
        let bytes = size(&entry);
        if state.bytes.fetch_add(bytes, SeqCst) + bytes > MOST_WAITING {
            state.bytes.fetch_sub(bytes, SeqCst);
            return state.drop_logs(1, "too much waits to be written");
        }
        let (done, written) = oneshot::channel();
        if sender.send(Waiting { entry, _done: done }).is_err() {
            return state.drop_logs(1, "the worker has ended");
        }
        if waits && !state.is_behind.load(Relaxed) && timeout(PATIENCE, written).await.is_err() {
            state.is_behind.store(true, Relaxed);
        }
    }
}

impl State {
    /// The database has answered, and has kept so many of those that were sent.
    fn wrote(&self, kept: i64, sent: usize) {
        self.is_behind.store(false, Relaxed);
        let left = (sent as u64).saturating_sub(kept.unsigned_abs());
        if left > 0 {
            self.drop_logs(left, "their jobs were settled before they could be written, or others have them");
        }
    }

    fn drop_logs(&self, count: u64, error: &str) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.in_all += count;
        dropped.untold += count;
        if dropped.told.is_none_or(|told| told.elapsed() >= TOLD) {
            let Dropped { in_all, untold, .. } = *dropped;
            *dropped = Dropped { in_all, untold: 0, told: Some(Instant::now()) };
            tracing::warn!(dropped = untold, in_all, error, "logs of attempts cannot be kept, and are dropped; their jobs go on");
        }
    }
}

/// Writes what comes in, until nobody sends any more.
pub(crate) async fn write_logs(logs: Arc<tokio::sync::Mutex<Logs>>, mut link: Link, store: Store) {
    let mut logs = logs.lock().await;
    let mut next = None;
    loop {
        let Some(first) = (if next.is_some() { next.take() } else { logs.incoming.recv().await }) else { break };
        let mut bytes = size(&first.entry);
        let mut together = vec![first];
        while together.len() < MOST && next.is_none() {
            let Ok(one) = logs.incoming.try_recv() else { break };
            bytes += size(&one.entry);
            if bytes > LARGEST { next = Some(one) } else { together.push(one) }
        }
        let all: usize = together.iter().map(|one| size(&one.entry)).sum();
        write(&mut link, store, together, &logs.state).await;
        logs.state.bytes.fetch_sub(all, SeqCst);
    }
    link.close().await;
}

/// Together, and if that is refused, each by itself.
async fn write(link: &mut Link, store: Store, mut together: Vec<Waiting>, state: &State) {
    // In the order in which they came, from the end.
    together.reverse();
    let mut refused = match send(link, store, &together).await {
        Ok(written) => return state.wrote(written, together.len()),
        Err(error) if together.len() == 1 || error.as_database_error().is_none() => {
            return state.drop_logs(together.len() as u64, &queue_core::message(&error));
        }
        Err(error) => error,
    };
    let mut faults = 0;
    while let Some(one) = together.pop() {
        match send(link, store, &[one]).await {
            Ok(written) => {
                faults = 0;
                state.wrote(written, 1);
            }
            Err(error) => {
                (refused, faults) = (error, faults + 1);
                state.drop_logs(1, &queue_core::message(&refused));
            }
        }
        if faults >= FAULTS {
            return state.drop_logs(together.len() as u64, &queue_core::message(&refused));
        }
    }
}

/// How many of them are kept.
async fn send(link: &mut Link, store: Store, logs: &[Waiting]) -> sqlx::Result<i64> {
    let entries = || logs.iter().map(|waiting| &waiting.entry);
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/write_logs.sql")))
        .bind(entries().map(|entry| entry.token).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.id).collect::<Vec<_>>())
        .bind(entries().map(|entry| i32::from(entry.attempt)).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.cut.cast_signed()).collect::<Vec<_>>())
        .bind(entries().map(|entry| entry.text.as_str()).collect::<Vec<_>>());
    let sent = bounded(statement.fetch_one(link.get().await?)).await;
    link.note(sent)
}

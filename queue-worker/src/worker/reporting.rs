//! Loops that exchange notifications, hints, progress reports, steps, signals, logs and attempt outcomes with the database.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::{Store, registry::Registry, runner::Report};
use tokio::{
    sync::{Mutex, mpsc::UnboundedReceiver},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    keep::{run_expiry, run_unblock},
    live::{ConnectionFactory, Engine, ListenHandle, Loop, Notifier, Pauses, StoreConnection, listen},
    settle::{LogQueue, PendingStep, SignalRequest, notify_waiters, receive_signals, write_journal, write_logs, write_reports},
    tally::{FLUSH_INTERVAL, MetricsBuffer, flush_metrics},
};

/// Parameters of the reporting loops.
pub(super) struct ReportingLoops<'a> {
    pub(super) engine: &'a Engine,
    pub(super) factory: &'a ConnectionFactory,
    pub(super) store: Store,
    pub(super) notifier: &'a Arc<Notifier>,
    pub(super) metrics: &'a MetricsBuffer,
    pub(super) registry: Registry,
    pub(super) pace: u32,
    /// Listener shared with other stores in the database. `None` if the worker listens on its own connection.
    pub(super) listen_handle: Option<ListenHandle>,
}

/// Handle to the task that flushes the counted outcomes.
pub(super) struct FlusherHandle {
    task: JoinHandle<()>,
    closing: CancellationToken,
}

/// Timeout for the last flush.
const LAST_FLUSH: Duration = Duration::from_secs(1);

impl ReportingLoops<'_> {
    /// Starts the loops that are aborted when the worker stops, and returns their handles.
    pub(super) fn start(
        &self,
        pauses: Pauses,
        (reports, logs): (UnboundedReceiver<Arc<Report>>, LogQueue),
        (steps, requests): (UnboundedReceiver<PendingStep>, UnboundedReceiver<SignalRequest>),
    ) -> Vec<JoinHandle<()>> {
        let (engine, store, metrics) = (self.engine, self.store, self.metrics.clone());
        let link = |purpose| StoreConnection::new(self.factory, purpose);
        let (keys, expiry, waiters) = (link("keys").relaxed().prompt().brief(), link("expiry").relaxed(), link("waiters").relaxed());
        let (report, journal) = (link("report").impatient(), link("journal").impatient());
        let (receive, log) = (link("receive").prompt().brief(), link("logs").relaxed().impatient());
        let [unblock_bell, expiry_bell, waiters_bell] = [self.notifier; 3].map(Arc::clone);
        let (reports, steps, requests, logs) = (shared_state(reports), shared_state(steps), shared_state(requests), shared_state(logs));
        vec![
            engine.supervise(Loop::Notifications, self.receive_notifications(pauses)),
            engine.supervise(Loop::Keys, move || run_unblock(keys.another(), store, Arc::clone(&unblock_bell))),
            engine.supervise(Loop::Expiry, move || run_expiry(expiry.another(), store, Arc::clone(&expiry_bell), metrics.clone())),
            engine.supervise(Loop::Waiters, move || notify_waiters(waiters.another(), store, Arc::clone(&waiters_bell))),
            engine.supervise(Loop::Reports, move || write_reports(Arc::clone(&reports), report.another(), store)),
            engine.supervise(Loop::Journal, move || write_journal(Arc::clone(&steps), journal.another(), store)),
            engine.supervise(Loop::Receive, move || receive_signals(Arc::clone(&requests), receive.another(), store)),
            engine.supervise(Loop::Logs, move || write_logs(Arc::clone(&logs), log.another(), store)),
        ]
    }

    /// Creates the loop that receives notifications, through a dedicated connection or through the shared listener.
    fn receive_notifications(&self, pauses: Pauses) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
        let (listen_handle, pool, store, notifier) =
            (self.listen_handle.clone(), self.factory.pool().clone(), self.store, Arc::clone(self.notifier));
        move || {
            let (notifier, pauses) = (Arc::clone(&notifier), pauses.clone());
            match listen_handle.clone() {
                Some(listen_handle) => listen_handle.wake_on_notifications(store, notifier, pauses).boxed(),
                None => listen(pool.clone(), store, notifier, pauses).boxed(),
            }
        }
    }

    /// Starts the metrics flusher. The flusher flushes one last time when the worker stops.
    pub(super) fn start_flusher(&self) -> FlusherHandle {
        let (closing, link) = (CancellationToken::new(), StoreConnection::new(self.factory, "history").relaxed().impatient().brief());
        let (metrics, registry, interval) = (self.metrics.clone(), self.registry.clone(), FLUSH_INTERVAL / self.pace);
        let (store, end) = (self.store, closing.clone());
        let flush = move || flush_metrics(metrics.clone(), link.another(), store, registry.clone(), interval, end.clone());
        let task = self.engine.supervise(Loop::History, flush);
        FlusherHandle { task, closing }
    }
}

/// Wraps a loop's state, so that the state survives a restart after a panic.
pub(super) fn shared_state<T>(state: T) -> Arc<Mutex<T>> {
    Arc::new(Mutex::new(state))
}

impl FlusherHandle {
    /// Flushes the remaining counts and ends the task. Must be called after the last event has been counted. If the flush times out, the
    /// remaining counts are lost.
    pub(super) async fn end(self) {
        let abort = self.task.abort_handle();
        self.closing.cancel();
        if timeout(LAST_FLUSH, self.task).await.is_err() {
            abort.abort();
        }
    }
}

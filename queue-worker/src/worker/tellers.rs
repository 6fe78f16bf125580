//! The loops that tell, or are told: of notifications, of keys and expiries, of jobs that are over, of what jobs report, of what came of attempts.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::{Registry, Store, runner::Report};
use tokio::{
    sync::{Mutex, mpsc::UnboundedReceiver},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    keep::{expire_all, unblock_all},
    live::{Bell, Ears, Engine, Link, Loop, Pauses, Wires, listen},
    settle::{LogQueue, PendingStep, SignalRequest, notify_waiters, receive_signals, write_journal, write_logs, write_reports},
    tally::{TALLY_INTERVAL, Tallies, say_tallies},
};

/// What they have in common.
pub(super) struct Tellers<'a> {
    pub(super) engine: &'a Engine,
    pub(super) wires: &'a Wires,
    pub(super) store: Store,
    pub(super) bell: &'a Arc<Bell>,
    pub(super) tallies: &'a Tallies,
    pub(super) registry: Registry,
    pub(super) pace: u32,
    /// Listen for many stores, this one among them.
    pub(super) ears: Option<Ears>,
}

/// Says what was counted, until it is ended.
pub(super) struct Speaker {
    task: JoinHandle<()>,
    closing: CancellationToken,
}

/// What was counted last has so long to be written.
const LAST_TALLIES: Duration = Duration::from_secs(1);

impl Tellers<'_> {
    /// Starts those that are ended with the worker.
    pub(super) fn start(
        &self,
        pauses: Pauses,
        (said, logs): (UnboundedReceiver<Arc<Report>>, LogQueue),
        (steps, asks): (UnboundedReceiver<PendingStep>, UnboundedReceiver<SignalRequest>),
    ) -> Vec<JoinHandle<()>> {
        let (engine, store, tallies) = (self.engine, self.store, self.tallies.clone());
        let link = |purpose| Link::new(self.wires, purpose);
        let (keys, expiry, tell) = (link("keys").relaxed().prompt().brief(), link("expiry").relaxed(), link("tell").relaxed());
        let (report, journal) = (link("report").impatient(), link("journal").impatient());
        let (receive, log) = (link("receive").prompt().brief(), link("logs").relaxed().impatient());
        let [unblocks, expires, tells] = [self.bell; 3].map(Arc::clone);
        let (said, steps, asks, logs) = (kept(said), kept(steps), kept(asks), kept(logs));
        vec![
            engine.supervise(Loop::Notifications, self.hear(pauses)),
            engine.supervise(Loop::Keys, move || unblock_all(keys.another(), store, Arc::clone(&unblocks))),
            engine.supervise(Loop::Expiry, move || expire_all(expiry.another(), store, Arc::clone(&expires), tallies.clone())),
            engine.supervise(Loop::Tell, move || notify_waiters(tell.another(), store, Arc::clone(&tells))),
            engine.supervise(Loop::Reports, move || write_reports(Arc::clone(&said), report.another(), store)),
            engine.supervise(Loop::Journal, move || write_journal(Arc::clone(&steps), journal.another(), store)),
            engine.supervise(Loop::Receive, move || receive_signals(Arc::clone(&asks), receive.another(), store)),
            engine.supervise(Loop::Logs, move || write_logs(Arc::clone(&logs), log.another(), store)),
        ]
    }

    /// Over a connection of its own, unless somebody listens for many.
    fn hear(&self, pauses: Pauses) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
        let (ears, pool, store, bell) = (self.ears.clone(), self.wires.pool().clone(), self.store, Arc::clone(self.bell));
        move || {
            let (bell, pauses) = (Arc::clone(&bell), pauses.clone());
            match ears.clone() {
                Some(ears) => ears.hear(store, bell, pauses).boxed(),
                None => listen(pool.clone(), store, bell, pauses).boxed(),
            }
        }
    }

    /// Starts the one that has a last word.
    pub(super) fn speak(&self) -> Speaker {
        let (closing, link) = (CancellationToken::new(), Link::new(self.wires, "history").relaxed().impatient().brief());
        let (tallies, registry, interval) = (self.tallies.clone(), self.registry.clone(), TALLY_INTERVAL / self.pace);
        let (store, end) = (self.store, closing.clone());
        let say = move || say_tallies(tallies.clone(), link.another(), store, registry.clone(), interval, end.clone());
        let task = self.engine.supervise(Loop::History, say);
        Speaker { task, closing }
    }
}

/// What a loop has, and has still when it starts again after a panic.
pub(super) fn kept<T>(state: T) -> Arc<Mutex<T>> {
    Arc::new(Mutex::new(state))
}

impl Speaker {
    /// Once nothing is counted any more. What a database that does not answer now has not taken is lost.
    pub(super) async fn end(self) {
        let abort = self.task.abort_handle();
        self.closing.cancel();
        if timeout(LAST_TALLIES, self.task).await.is_err() {
            abort.abort();
        }
    }
}

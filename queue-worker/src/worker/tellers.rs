//! The loops that tell, or are told: of notifications, of keys and expiries, of jobs that are over, of what jobs report, of what came of attempts.

use std::{sync::Arc, time::Duration};

use queue_core::{Registry, Store, runner::Report};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    keep::{expire_all, unblock_all},
    live::{Bell, Ears, Engine, Link, Loop, Pauses, Wires, listen},
    settle::{Asking, Logs, Waiting, notify_waiters, receive_all, write_journal, write_logs, write_reports},
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
        (said, logs): (UnboundedReceiver<Arc<Report>>, Logs),
        (steps, asks): (UnboundedReceiver<Waiting>, UnboundedReceiver<Asking>),
    ) -> Vec<JoinHandle<()>> {
        let Self { wires, store, bell, tallies, .. } = *self;
        let (engine, link) = (self.engine, |purpose| Link::new(wires, purpose));
        vec![
            engine.watch(Loop::Notifications, self.hear(pauses)),
            engine.watch(Loop::Keys, unblock_all(link("keys").relaxed(), store, Arc::clone(bell))),
            engine.watch(Loop::Expiry, expire_all(link("expiry").relaxed(), store, Arc::clone(bell), tallies.clone())),
            engine.watch(Loop::Tell, notify_waiters(link("tell").relaxed(), store, Arc::clone(bell))),
            engine.watch(Loop::Reports, write_reports(said, link("report").impatient(), store)),
            engine.watch(Loop::Journal, write_journal(steps, link("journal").impatient(), store)),
            engine.watch(Loop::Receive, receive_all(asks, link("receive").prompt().brief(), store)),
            engine.watch(Loop::Logs, write_logs(logs, link("logs").relaxed().impatient(), store)),
        ]
    }

    /// Over a connection of its own, unless somebody listens for many.
    fn hear(&self, pauses: Pauses) -> impl Future<Output = ()> + Send + use<> {
        let (ears, pool, store, bell) = (self.ears.clone(), self.wires.pool().clone(), self.store, Arc::clone(self.bell));
        async move {
            match ears {
                Some(ears) => ears.hear(store, bell, pauses).await,
                None => listen(pool, store, bell, pauses).await,
            }
        }
    }

    /// Starts the one that has a last word.
    pub(super) fn speak(&self) -> Speaker {
        let (closing, link) = (CancellationToken::new(), Link::new(self.wires, "history").relaxed().impatient().brief());
        let (tallies, registry, interval) = (self.tallies.clone(), self.registry.clone(), TALLY_INTERVAL / self.pace);
        let task = self.engine.watch(Loop::History, say_tallies(tallies, link, self.store, registry, interval, closing.clone()));
        Speaker { task, closing }
    }
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

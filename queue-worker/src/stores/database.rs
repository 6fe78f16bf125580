//! Database with one or more stores, and the connections that the stores share. There are at most three connections per store, and at most
//! eighteen in total.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use queue_core::stores::Member;
use sqlx::PgPool;
use tokio::sync::{self, OnceCell};
use tokio_util::sync::CancellationToken;

use super::store_entry::StoreEntry;
use crate::{
    error::Error,
    live::{ConnectionBroker, ConnectionFactory, Engine, ListenHandle, Loop, StoreConnection},
};

/// Stores in one database, with their shared connections.
pub(super) struct StoreDatabase {
    /// First store in the database. `Member::is_beside` decides whether another store belongs to the same database.
    first: Member,
    /// Pool whose options the shared connections use.
    direct: PgPool,
    /// Connections for the poller and for the loops of all workers.
    loops: Arc<ConnectionBroker>,
    /// Connections that are reserved for heartbeats.
    heartbeats: Arc<ConnectionBroker>,
    /// Connections that are reserved for pruning, because long pruning must not delay other loops.
    prunes: Arc<ConnectionBroker>,
    is_checked: OnceCell<()>,
    listen_handle: OnceLock<ListenHandle>,
    entries: Mutex<Vec<Arc<StoreEntry>>>,
    /// Cancelled when the database has no store left.
    pub(super) empty: CancellationToken,
}

/// Maximum number of connections that loops share. `HEARTS` is the maximum for heartbeats, and `PRUNES` is the maximum for pruning.
const LOOPS: usize = 12;
const HEARTS: usize = 3;
const PRUNES: usize = 2;

/// Borrower number of the poller. Store numbers start after this number.
pub(super) const POLLER_NUMBER: u64 = 0;

impl StoreDatabase {
    pub(super) fn of(first: &Member, direct: PgPool) -> Self {
        Self {
            first: first.clone(),
            direct,
            loops: ConnectionBroker::new("shared", 2),
            heartbeats: ConnectionBroker::new("heartbeat", 1),
            prunes: ConnectionBroker::new("prune", 1),
            is_checked: OnceCell::new(),
            listen_handle: OnceLock::new(),
            entries: Mutex::default(),
            empty: CancellationToken::new(),
        }
    }

    pub(super) fn has(&self, member: &Member) -> bool {
        self.first.is_beside(member)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Arc<StoreEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all current stores in the database.
    pub(super) fn all(&self) -> Vec<Arc<StoreEntry>> {
        self.entries().clone()
    }

    /// Adds a store. With two or more stores, one listener receives the notifications for all stores. A single store is polled instead, and
    /// its loops share the poller's connections.
    pub(super) fn join(&self, entry: Arc<StoreEntry>, engine: &Engine) {
        let mut all = self.entries();
        all.push(entry);
        let stores = all.len();
        drop(all);
        if stores > 1 {
            self.listen_handle.get_or_init(|| {
                let (listen_handle, listeners) = ListenHandle::open(self.direct.clone());
                let listeners = Arc::new(sync::Mutex::new(listeners));
                drop(engine.supervise(Loop::SharedNotifications, move || {
                    let listeners = Arc::clone(&listeners);
                    async move { listeners.lock().await.listen().await }
                }));
                listen_handle
            });
            // There are at most three connections per store. With few stores, heartbeats, notifications and pruning use one connection
            // each, so the limit for the loops is lower by three.
            self.loops.raise_limit((3 * stores - 3).min(LOOPS));
            self.heartbeats.raise_limit((stores / 4).clamp(1, HEARTS));
            // Pruning a long history is slow, so several stores can be pruned concurrently.
            self.prunes.raise_limit((stores / 4).clamp(1, PRUNES));
        }
    }

    /// Removes a store. Returns whether no store is left.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut all = self.entries();
        all.retain(|entry| entry.number != number);
        all.is_empty()
    }

    pub(super) fn listen_handle(&self) -> Option<ListenHandle> {
        self.listen_handle.get().cloned()
    }

    /// Returns the connection factory for a store's loops. The connections are shared with other stores, and a single store cannot use all
    /// connections.
    pub(super) fn factory(&self, number: u64) -> ConnectionFactory {
        ConnectionFactory::shared(&self.direct, self.loops.borrower(number))
    }

    /// Returns the connection factory for a store's heartbeat.
    pub(super) fn heartbeat(&self, number: u64) -> ConnectionFactory {
        ConnectionFactory::shared(&self.direct, self.heartbeats.borrower(number))
    }

    /// Returns the connection factory for pruning a store. If the database contains only one store, the store is pruned through the
    /// connections of its loops.
    pub(super) fn prune(&self, number: u64) -> ConnectionFactory {
        let by = if self.listen_handle.get().is_some() { &self.prunes } else { &self.loops };
        ConnectionFactory::shared(&self.direct, by.borrower(number))
    }

    /// Checks once per database whether the worker's settings are in effect. See [`StoreConnection::check_settings`].
    pub(super) async fn check(&self, link: &mut StoreConnection) -> Result<(), Error> {
        self.is_checked.get_or_try_init(|| link.check_settings()).await.map(drop)
    }
}

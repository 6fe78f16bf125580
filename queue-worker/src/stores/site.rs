//! One database with stores in it, and the connections that they share: at most three for each store, and eighteen for any number.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use queue_core::stores::Member;
use sqlx::PgPool;
use tokio::sync::{self, OnceCell};
use tokio_util::sync::CancellationToken;

use super::watched::Watched;
use crate::{
    error::Error,
    live::{Ears, Engine, Exchange, Link, Loop, Wires},
};

/// A database.
pub(super) struct Site {
    /// Those of one database are beside this.
    first: Member,
    /// Where what is shared leads.
    direct: PgPool,
    /// For the loops of all its workers, and the scout.
    loops: Arc<Exchange>,
    /// For heartbeats alone.
    hearts: Arc<Exchange>,
    /// For what takes its time: nobody else waits for those that prune.
    prunes: Arc<Exchange>,
    is_checked: OnceCell<()>,
    ears: OnceLock<Ears>,
    watched: Mutex<Vec<Arc<Watched>>>,
    /// Fires when nobody is left.
    pub(super) empty: CancellationToken,
}

/// The most connections that loops share, heartbeats, and those that prune.
const LOOPS: usize = 12;
const HEARTS: usize = 3;
const PRUNES: usize = 2;

/// Nobody's number: the scout's.
pub(super) const SCOUT: u64 = 0;

impl Site {
    pub(super) fn of(first: &Member, direct: PgPool) -> Self {
        Self {
            first: first.clone(),
            direct,
            loops: Exchange::new("shared", 2),
            hearts: Exchange::new("heartbeat", 1),
            prunes: Exchange::new("prune", 1),
            is_checked: OnceCell::new(),
            ears: OnceLock::new(),
            watched: Mutex::default(),
            empty: CancellationToken::new(),
        }
    }

    pub(super) fn has(&self, member: &Member) -> bool {
        self.first.is_beside(member)
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stores in it.
    pub(super) fn all(&self) -> Vec<Arc<Watched>> {
        self.watched().clone()
    }

    /// One store more. From the second on somebody listens for all: that of a single one is polled, and has the connections of that too.
    pub(super) fn join(&self, watched: Arc<Watched>, engine: &Engine) {
        let mut all = self.watched();
        all.push(watched);
        let stores = all.len();
        drop(all);
        if stores > 1 {
            self.ears.get_or_init(|| {
                let (ears, listeners) = Ears::open(self.direct.clone());
                let listeners = Arc::new(sync::Mutex::new(listeners));
                drop(engine.supervise(Loop::Ears, move || {
                    let listeners = Arc::clone(&listeners);
                    async move { listeners.lock().await.listen().await }
                }));
                ears
            });
            // One is for heartbeats, one for listening, and one prunes.
            self.loops.widen((3 * stores - 3).min(LOOPS));
            self.hearts.widen((stores / 4).clamp(1, HEARTS));
            // One that deletes a long history takes long.
            self.prunes.widen((stores / 4).clamp(1, PRUNES));
        }
    }

    /// One store less; returns whether it was the last.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut all = self.watched();
        all.retain(|watched| watched.number != number);
        all.is_empty()
    }

    pub(super) fn ears(&self) -> Option<Ears> {
        self.ears.get().cloned()
    }

    /// Connections for the loops of this store. It leaves some to others.
    pub(super) fn wires(&self, number: u64) -> Wires {
        Wires::shared(&self.direct, self.loops.borrower(number))
    }

    /// The one for its heartbeat.
    pub(super) fn heart(&self, number: u64) -> Wires {
        Wires::shared(&self.direct, self.hearts.borrower(number))
    }

    /// The one on which it prunes; a store that is alone does that between its other statements.
    pub(super) fn prune(&self, number: u64) -> Wires {
        let by = if self.ears.get().is_some() { &self.prunes } else { &self.loops };
        Wires::shared(&self.direct, by.borrower(number))
    }

    /// Whether what is shared may be used as it is: looked at once.
    pub(super) async fn check(&self, link: &mut Link) -> Result<(), Error> {
        self.is_checked.get_or_try_init(|| link.check_settings()).await.map(drop)
    }
}

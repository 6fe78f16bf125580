//! What all requests share: the store, and few ways into the database.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use queue_core::Store;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    acts::Acts,
    live::Hub,
    options::Options,
    problem::{Answer, Problem},
    token::Keyhole,
};

/// So many requests have a connection at a time; the others wait.
const CONNECTIONS: usize = 3;

/// They wait for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that lives answers in this time.
const AT_ONCE: Duration = Duration::from_millis(500);

/// No statement takes longer, and none waits for longer for a lock. Said in one go with the beginning, and over with the transaction: it is the same
/// behind a pooler.
const LOOK: &str = "begin isolation level read committed, read only; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                    set local idle_in_transaction_session_timeout = '20s'";

/// The same for what changes something. At the isolation at which nothing fails because another has done something at the same time, whatever the
/// login's is.
const CHANGE: &str = "begin isolation level read committed; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                      set local idle_in_transaction_session_timeout = '20s'";

/// The state of the router.
pub(super) struct App {
    pub(super) pool: PgPool,
    pub(super) store: Store,
    pub(super) options: Options,
    pub(super) keyhole: Keyhole,
    /// Who watches which page; what is told is the changing part of it.
    pub(super) hub: Arc<Hub<String>>,
    /// What is being done to many jobs.
    pub(super) acts: Acts,
    connections: Arc<Semaphore>,
}

pub(super) type Shared = Arc<App>;

/// A transaction, and one of the few places.
pub(super) struct Session {
    transaction: Transaction<'static, Postgres>,
    _place: OwnedSemaphorePermit,
}

impl App {
    pub(super) fn new(pool: PgPool, store: Store, options: Options) -> Self {
        let keyhole = Keyhole::new(options.token.as_deref());
        Self {
            pool,
            store,
            options,
            keyhole,
            hub: Arc::default(),
            acts: Acts::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// A transaction that only reads.
    pub(super) async fn look(&self) -> Answer<Session> {
        self.begin(self.reads(), LOOK).await
    }

    fn reads(&self) -> &PgPool {
        self.options.reads.get().unwrap_or(&self.pool)
    }

    /// One more for whoever has one, if there is a connection that nobody needs: to wait for it while holding another could stop everybody. The pool
    /// does not ask whether that connection still lives, so one that does not answer at once is none.
    pub(super) async fn look_beside(&self) -> Option<Session> {
        let place = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let begun = timeout(AT_ONCE, self.reads().try_begin_with(LOOK)).await.ok()?;
        Some(Session { transaction: begun.ok()??, _place: place })
    }

    /// A transaction, to be committed; if anything may be changed here.
    pub(super) async fn change(&self) -> Answer<Session> {
        self.check_changes()?;
        self.begin(&self.pool, CHANGE).await
    }

    /// Whether anything may be changed here.
    pub(super) fn check_changes(&self) -> Answer<()> {
        if self.options.read_only { Err(Problem::forbidden("this dashboard is only for looking")) } else { Ok(()) }
    }

    async fn begin(&self, pool: &PgPool, statement: &'static str) -> Answer<Session> {
        let session = async {
            // Nobody closes it.
            let place = self.connections.clone().acquire_owned().await.map_err(|_| Problem::busy("this is ending"))?;
            Ok(Session { transaction: pool.begin_with(statement).await?, _place: place })
        };
        timeout(PATIENCE, session).await.unwrap_or_else(|_| Err(Problem::busy("too many requests wait for the database; try again")))
    }
}

impl Session {
    /// Makes what was done last.
    pub(super) async fn commit(self) -> Answer<()> {
        Ok(self.transaction.commit().await?)
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

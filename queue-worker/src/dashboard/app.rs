//! What all requests to a store share: the store, and few ways into its database.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use queue_core::{
    Store,
    stores::{Member, Roster},
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    live::Hub,
    problem::{Answer, Problem},
    way::Door,
};

/// So many requests have a connection to a database at a time, whichever of its stores they are for; the others wait.
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

/// The state of a store's routes.
pub(super) struct App {
    pub(super) pool: PgPool,
    pub(super) store: Store,
    /// What it goes by: one of many by its name, else by its schema.
    pub(super) name: Arc<str>,
    pub(super) door: Arc<Door>,
    /// Who watches which page; what is told is the changing part of it.
    pub(super) hub: Arc<Hub<String>>,
    /// One of many: where it is listed, and as what.
    listed: Option<(Roster, Member)>,
    connections: Arc<Semaphore>,
}

pub(super) type Shared = Arc<App>;

/// A transaction, and one of the few places.
pub(super) struct Session {
    transaction: Transaction<'static, Postgres>,
    _place: OwnedSemaphorePermit,
}

impl App {
    /// Of the one store of its dashboard.
    pub(super) fn new(pool: PgPool, store: Store, door: Arc<Door>) -> Self {
        let (hub, connections) = (Arc::new(Hub::new(door.viewers.clone())), Arc::new(Semaphore::new(CONNECTIONS)));
        Self { pool, store, name: store.schema().into(), door, hub, listed: None, connections }
    }

    /// Of one of many. It shares the places of `beside`, which is in its database.
    pub(super) fn listed(roster: &Roster, member: &Member, door: Arc<Door>, beside: Option<&Self>) -> Self {
        let own = Self::new(member.pool().clone(), member.store(), door);
        let connections = beside.map_or(own.connections, |beside| beside.connections.clone());
        Self { name: member.name().into(), listed: Some((roster.clone(), member.clone())), connections, ..own }
    }

    /// Whether it is this one of many, reached by the same pool: another one may lead there when this one is closed.
    pub(super) fn is_of(&self, member: &Member) -> bool {
        let is_same = |own: &Member| own.is_same(member) && Arc::ptr_eq(&own.pool().connect_options(), &member.pool().connect_options());
        self.listed.as_ref().is_some_and(|(_, own)| is_same(own))
    }

    /// Whether it is in the database of this one of many.
    pub(super) fn is_beside(&self, member: &Member) -> bool {
        self.listed.as_ref().is_some_and(|(_, own)| own.is_beside(member))
    }

    /// Whether both have the same places for connections.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connections, &other.connections)
    }

    /// Completes once it is one of many no more.
    pub(super) async fn gone(self: Arc<Self>) {
        let Some((roster, _)) = &self.listed else { return std::future::pending().await };
        // Without an end of the roster, which is held here.
        let _ = roster.watch().wait_for(|members| !members.iter().any(|found| self.is_of(found))).await;
    }

    /// A transaction that only reads.
    pub(super) async fn look(&self) -> Answer<Session> {
        self.begin(self.reads(), LOOK).await
    }

    /// A pool to read from leads to one database: that of the one store.
    fn reads(&self) -> &PgPool {
        self.door.options.reads.get().filter(|_| self.listed.is_none()).unwrap_or(&self.pool)
    }

    /// One more for whoever has one, if there is a connection that nobody needs: to wait for it while holding another could stop everybody. The pool
    /// does not ask whether that connection still lives, so one that does not answer at once is none.
    pub(super) async fn look_beside(&self) -> Option<Session> {
        let place = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let pool = self.reads().clone();
        let begun =
            to_its_end(async move { Ok(pool.try_begin_with(LOOK).await?.map(|transaction| Session { transaction, _place: place })) });
        timeout(AT_ONCE, begun).await.ok()?.ok()?
    }

    /// A transaction, to be committed; if anything may be changed here.
    pub(super) async fn change(&self) -> Answer<Session> {
        self.check_changes()?;
        self.begin(&self.pool, CHANGE).await
    }

    /// Whether anything may be changed here.
    pub(super) fn check_changes(&self) -> Answer<()> {
        if self.door.options.read_only { Err(Problem::forbidden("this dashboard is only for looking")) } else { Ok(()) }
    }

    async fn begin(&self, pool: &PgPool, statement: &'static str) -> Answer<Session> {
        let (until, late) = (Instant::now() + PATIENCE, |_| Problem::busy("too many requests wait for the database; try again"));
        // Nobody closes it.
        let place = timeout_at(until, self.connections.clone().acquire_owned()).await.map_err(late)?;
        let (place, pool) = (place.map_err(|_| Problem::busy("this is ending"))?, pool.clone());
        let begun = to_its_end(async move { Ok(Session { transaction: pool.begin_with(statement).await?, _place: place }) });
        timeout_at(until, begun).await.map_err(late)?
    }
}

/// Also if nobody waits for it any more: of a transaction that is left while it begins, whoever has its connection next would know nothing, and lose
/// what is written there.
async fn to_its_end<T: Send + 'static>(begin: impl Future<Output = Answer<T>> + Send + 'static) -> Answer<T> {
    tokio::spawn(begin).await.unwrap_or_else(|_| Err(Problem::busy("this failed; the log says why")))
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

//! State shared by all requests to one store. It limits the number of connections, and begins read-only and writing transactions.

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
    live_hub::LiveHub,
    problem::{HandlerResult, Problem},
    request_context::DashboardState,
};

/// Maximum number of requests that concurrently hold a connection to the same database, across its stores. Further requests wait.
const MAX_CONNECTIONS: usize = 3;

/// Maximum time for which a request waits for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time in which an idle connection has to begin a transaction. A slower connection is considered broken.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Statements that begin a read-only transaction with timeouts for statements and locks. The settings are sent in one message and scoped to
/// the transaction, so they also take effect behind a connection pooler.
const BEGIN_READ: &str = "begin isolation level read committed, read only; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                    set local idle_in_transaction_session_timeout = '20s'";

/// Statements that begin a writing transaction with the same timeouts. Under `read committed` no statement fails because of a concurrent
/// change. The level is set explicitly, because the role may have another default.
const BEGIN_WRITE: &str = "begin isolation level read committed; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                      set local idle_in_transaction_session_timeout = '20s'";

/// State of the routes of one store.
pub(super) struct App {
    pub(super) pool: PgPool,
    pub(super) store: Store,
    /// Name of the store in the roster, or the store's schema if the dashboard serves a single store.
    pub(super) name: Arc<str>,
    pub(super) dashboard: Arc<DashboardState>,
    /// Distributes the live parts of pages, rendered as HTML, to their viewers.
    pub(super) hub: Arc<LiveHub<String>>,
    /// Roster and the store's entry in it, if the dashboard serves a roster.
    membership: Option<(Roster, Member)>,
    connections: Arc<Semaphore>,
}

pub(super) type AppState = Arc<App>;

/// Transaction that holds a connection permit.
pub(super) struct DbSession {
    transaction: Transaction<'static, Postgres>,
    _permit: OwnedSemaphorePermit,
}

impl App {
    /// Creates the state for the only store of a dashboard.
    pub(super) fn new(pool: PgPool, store: Store, dashboard: Arc<DashboardState>) -> Self {
        let (hub, connections) = (Arc::new(LiveHub::new(dashboard.viewers.clone())), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        Self { pool, store, name: store.schema().into(), dashboard, hub, membership: None, connections }
    }

    /// Creates the state for one member of a roster. If `beside` is a store in the same database, the two share their connection permits.
    pub(super) fn for_member(roster: &Roster, member: &Member, dashboard: Arc<DashboardState>, beside: Option<&Self>) -> Self {
        let own = Self::new(member.pool().clone(), member.store(), dashboard);
        let connections = beside.map_or(own.connections, |beside| beside.connections.clone());
        Self { name: member.name().into(), membership: Some((roster.clone(), member.clone())), connections, ..own }
    }

    /// Returns whether the state belongs to a member with the same pool. A member that was removed and added again may have a new pool, in
    /// which case the old pool is closed.
    pub(super) fn is_for(&self, member: &Member) -> bool {
        let is_same = |own: &Member| own.is_same(member) && Arc::ptr_eq(&own.pool().connect_options(), &member.pool().connect_options());
        self.membership.as_ref().is_some_and(|(_, own)| is_same(own))
    }

    /// Returns whether the store is in the same database as `member`.
    pub(super) fn shares_database_with(&self, member: &Member) -> bool {
        self.membership.as_ref().is_some_and(|(_, own)| own.is_beside(member))
    }

    /// Returns whether both states share their connection permits.
    pub(super) fn shares_connections_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connections, &other.connections)
    }

    /// Waits until the store is removed from the roster. Never returns for a single store.
    pub(super) async fn removed(self: Arc<Self>) {
        let Some((roster, _)) = &self.membership else { return std::future::pending().await };
        // The wait never fails, because the roster keeps the channel's sender alive.
        let _ = roster.watch().wait_for(|members| !members.iter().any(|found| self.is_for(found))).await;
    }

    /// Begins a read-only transaction.
    pub(super) async fn begin_read(&self) -> HandlerResult<DbSession> {
        self.begin(self.read_pool(), BEGIN_READ).await
    }

    /// Returns the pool for reads. A configured read pool connects to one database, so it is used only for a single store.
    fn read_pool(&self) -> &PgPool {
        self.dashboard.options.read_pool.get().filter(|_| self.membership.is_none()).unwrap_or(&self.pool)
    }

    /// Begins a second read-only transaction for a request that already has one, if a connection is idle. Waiting for a connection while
    /// holding the first one could deadlock. The pool does not test idle connections, so a connection that does not respond within
    /// [`PROBE_TIMEOUT`] is skipped.
    pub(super) async fn try_begin_read(&self) -> Option<DbSession> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let pool = self.read_pool().clone();
        let begun = run_to_completion(async move {
            Ok(pool.try_begin_with(BEGIN_READ).await?.map(|transaction| DbSession { transaction, _permit: permit }))
        });
        timeout(PROBE_TIMEOUT, begun).await.ok()?.ok()?
    }

    /// Begins a writing transaction, which the caller has to commit. Fails if the dashboard is read-only.
    pub(super) async fn begin_write(&self) -> HandlerResult<DbSession> {
        self.check_writable()?;
        self.begin(&self.pool, BEGIN_WRITE).await
    }

    /// Returns an error if the dashboard is read-only.
    pub(super) fn check_writable(&self) -> HandlerResult<()> {
        if self.dashboard.options.read_only { Err(Problem::forbidden("this dashboard is read-only")) } else { Ok(()) }
    }

    async fn begin(&self, pool: &PgPool, statement: &'static str) -> HandlerResult<DbSession> {
        let (until, late) = (Instant::now() + CONNECTION_TIMEOUT, |_| {
            Problem::unavailable("too many requests are waiting for a database connection; try again")
        });
        // The acquisition fails only on timeout, because the semaphore is never closed.
        let permit = timeout_at(until, self.connections.clone().acquire_owned()).await.map_err(late)?;
        let (permit, pool) = (permit.map_err(|_| Problem::unavailable("the server is shutting down"))?, pool.clone());
        let begun = run_to_completion(async move { Ok(DbSession { transaction: pool.begin_with(statement).await?, _permit: permit }) });
        timeout_at(until, begun).await.map_err(late)?
    }
}

/// Runs the begin of a transaction to completion, even if the request is dropped. Otherwise the connection's next user would unknowingly
/// write into the open transaction and lose the changes.
async fn run_to_completion<T: Send + 'static>(begin: impl Future<Output = HandlerResult<T>> + Send + 'static) -> HandlerResult<T> {
    tokio::spawn(begin).await.unwrap_or_else(|_| Err(Problem::unavailable("internal error; see the server log")))
}

impl DbSession {
    /// Commits the transaction.
    pub(super) async fn commit(self) -> HandlerResult<()> {
        Ok(self.transaction.commit().await?)
    }
}

impl Deref for DbSession {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for DbSession {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

//! State shared by all requests to a store. Limits the number of connections, and begins read-only and writing transactions.

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
    trends::TrendCache,
};

/// Maximum number of connections that requests hold to one database at the same time. All stores of a database share this maximum. Further
/// requests wait for a connection.
const MAX_CONNECTIONS: usize = 3;

/// Maximum time that a request waits for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for beginning a second transaction of a request on an idle connection. After a timeout, the request continues with its first
/// transaction only.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Statements that begin a read-only transaction with statement and lock timeouts, sent in one round trip. The timeouts end with the
/// transaction, so they also work behind a connection pooler.
const BEGIN_READ: &str = "begin isolation level read committed, read only; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                    set local idle_in_transaction_session_timeout = '20s'";

/// Statements that begin a writing transaction with the timeouts of [`BEGIN_READ`]. `read committed` avoids serialization failures. The
/// isolation level is set explicitly, because the role may have another default.
const BEGIN_WRITE: &str = "begin isolation level read committed; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                      set local idle_in_transaction_session_timeout = '20s'";

/// State shared by the routes of one store.
pub(super) struct App {
    pub(super) pool: PgPool,
    pub(super) store: Store,
    /// Store name in the roster, or the schema name if the dashboard serves a single store.
    pub(super) name: Arc<str>,
    pub(super) dashboard: Arc<DashboardState>,
    /// Hub that sends the rendered live parts of pages to the viewers.
    pub(super) hub: Arc<LiveHub<String>>,
    pub(super) trends: TrendCache,
    /// Roster of stores and this store's entry in it, or `None` if the dashboard serves a single store.
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
    /// Creates the state for the single store of a dashboard.
    pub(super) fn new(pool: PgPool, store: Store, dashboard: Arc<DashboardState>) -> Self {
        let (hub, connections) = (Arc::new(LiveHub::new(dashboard.viewers.clone())), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let (name, trends) = (store.schema().into(), TrendCache::default());
        Self { pool, store, name, dashboard, hub, trends, membership: None, connections }
    }

    /// Creates the state for one store of a roster. `beside` is the state of another store in the same database, if any. Both states then
    /// share the connection permits.
    pub(super) fn for_member(roster: &Roster, member: &Member, dashboard: Arc<DashboardState>, beside: Option<&Self>) -> Self {
        let own = Self::new(member.pool().clone(), member.store(), dashboard);
        let connections = beside.map_or(own.connections, |beside| beside.connections.clone());
        Self { name: member.name().into(), membership: Some((roster.clone(), member.clone())), connections, ..own }
    }

    /// Returns whether the state belongs to `member` and uses its pool. A member that was removed and added again may have a new pool.
    /// The application may then have closed the old pool, so the state must not be reused.
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

    /// Waits until the store is removed from the roster. Never completes if the dashboard serves a single store.
    pub(super) async fn removed(self: Arc<Self>) {
        let Some((roster, _)) = &self.membership else { return std::future::pending().await };
        // The wait never fails, because the roster keeps the channel's sender alive.
        let _ = roster.watch().wait_for(|members| !members.iter().any(|found| self.is_for(found))).await;
    }

    pub(super) async fn begin_read(&self) -> HandlerResult<DbSession> {
        self.begin(self.read_pool(), BEGIN_READ).await
    }

    /// Returns the pool for reads. A configured read pool is used only if the dashboard serves a single store, because the pool connects
    /// to one database.
    fn read_pool(&self) -> &PgPool {
        self.dashboard.options.read_pool.get().filter(|_| self.membership.is_none()).unwrap_or(&self.pool)
    }

    /// Begins a second read-only transaction for a request. Returns `None` if no connection is idle, because waiting while holding the
    /// first connection could deadlock. Also returns `None` if the idle connection does not respond within [`PROBE_TIMEOUT`].
    pub(super) async fn try_begin_read(&self) -> Option<DbSession> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let pool = self.read_pool().clone();
        let begun = run_to_completion(async move {
            Ok(pool.try_begin_with(BEGIN_READ).await?.map(|transaction| DbSession { transaction, _permit: permit }))
        });
        timeout(PROBE_TIMEOUT, begun).await.ok()?.ok()?
    }

    /// Begins a writing transaction that the caller must commit. Fails if the dashboard is read-only.
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
        // Fails only on a timeout, because the semaphore is never closed.
        let permit = timeout_at(until, self.connections.clone().acquire_owned()).await.map_err(late)?;
        let (permit, pool) = (permit.map_err(|_| Problem::unavailable("the server is shutting down"))?, pool.clone());
        let begun = run_to_completion(async move { Ok(DbSession { transaction: pool.begin_with(statement).await?, _permit: permit }) });
        timeout_at(until, begun).await.map_err(late)?
    }
}

/// Runs `begin` to completion, even if the request is dropped. A `begin` that is dropped half-way could return a connection to the pool
/// inside an open transaction, and the connection's next user would lose its writes.
async fn run_to_completion<T: Send + 'static>(begin: impl Future<Output = HandlerResult<T>> + Send + 'static) -> HandlerResult<T> {
    tokio::spawn(begin).await.unwrap_or_else(|_| Err(Problem::unavailable("internal error; see the server log")))
}

impl DbSession {
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

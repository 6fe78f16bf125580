//! State shared by all requests to one store: the store, the connection limit and read-only or writing transactions.

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

/// Maximum number of requests that hold a connection to the same database at a time, across its stores. Further requests wait.
const MAX_CONNECTIONS: usize = 3;

/// Maximum time a request waits for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for an idle connection to begin a transaction. A slower one counts as broken.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Begins a read-only transaction with timeouts for statements and locks. Sent as one message and scoped to the transaction, so it also
/// holds behind a connection pooler.
const BEGIN_READ: &str = "begin isolation level read committed, read only; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                    set local idle_in_transaction_session_timeout = '20s'";

/// Begins a writing transaction with the same timeouts. Under `read committed` no statement fails because of a concurrent change. It is set
/// explicitly because the role may have another default.
const BEGIN_WRITE: &str = "begin isolation level read committed; set local statement_timeout = '5s'; set local lock_timeout = '2s'; \
                      set local idle_in_transaction_session_timeout = '20s'";

/// State of the routes of one store.
pub(super) struct App {
    pub(super) pool: PgPool,
    pub(super) store: Store,
    /// Name of the store in the roster, or its schema if the dashboard serves a single store.
    pub(super) name: Arc<str>,
    pub(super) dashboard: Arc<DashboardState>,
    /// Subscribers of live pages. They receive the rendered live part as HTML.
    pub(super) hub: Arc<LiveHub<String>>,
    /// Roster and member, if the dashboard serves a roster.
    membership: Option<(Roster, Member)>,
    connections: Arc<Semaphore>,
}

pub(super) type AppState = Arc<App>;

/// Transaction together with its connection permit.
pub(super) struct DbSession {
    transaction: Transaction<'static, Postgres>,
    _permit: OwnedSemaphorePermit,
}

impl App {
    /// Creates the state of a dashboard's single store.
    pub(super) fn new(pool: PgPool, store: Store, dashboard: Arc<DashboardState>) -> Self {
        let (hub, connections) = (Arc::new(LiveHub::new(dashboard.viewers.clone())), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        Self { pool, store, name: store.schema().into(), dashboard, hub, membership: None, connections }
    }

    /// Creates the state of one member of a roster. It shares the connection permits of `beside`, a store in the same database.
    pub(super) fn for_member(roster: &Roster, member: &Member, dashboard: Arc<DashboardState>, beside: Option<&Self>) -> Self {
        let own = Self::new(member.pool().clone(), member.store(), dashboard);
        let connections = beside.map_or(own.connections, |beside| beside.connections.clone());
        Self { name: member.name().into(), membership: Some((roster.clone(), member.clone())), connections, ..own }
    }

    /// Whether this state belongs to the member with the same pool. A member that was removed and added again may have a new pool, because
    /// the old one is closed.
    pub(super) fn is_for(&self, member: &Member) -> bool {
        let is_same = |own: &Member| own.is_same(member) && Arc::ptr_eq(&own.pool().connect_options(), &member.pool().connect_options());
        self.membership.as_ref().is_some_and(|(_, own)| is_same(own))
    }

    /// Whether the store is in the same database as the member.
    pub(super) fn shares_database_with(&self, member: &Member) -> bool {
        self.membership.as_ref().is_some_and(|(_, own)| own.is_beside(member))
    }

    /// Whether both states share their connection permits.
    pub(super) fn shares_connections_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connections, &other.connections)
    }

    /// Completes when the store is removed from the roster. Never completes for a single store.
    pub(super) async fn removed(self: Arc<Self>) {
        let Some((roster, _)) = &self.membership else { return std::future::pending().await };
        // The channel cannot close: the roster held here owns its sender.
        let _ = roster.watch().wait_for(|members| !members.iter().any(|found| self.is_for(found))).await;
    }

    /// Begins a read-only transaction.
    pub(super) async fn begin_read(&self) -> HandlerResult<DbSession> {
        self.begin(self.read_pool(), BEGIN_READ).await
    }

    /// Returns the pool for reads. A separate read pool leads to one database, so it is used for a single store only.
    fn read_pool(&self) -> &PgPool {
        self.dashboard.options.read_pool.get().filter(|_| self.membership.is_none()).unwrap_or(&self.pool)
    }

    /// Begins a second read-only transaction for a request that already has one, if a connection is idle. Waiting for it while holding the
    /// first could deadlock. The pool does not test idle connections, so one that does not respond within [`PROBE_TIMEOUT`] is skipped.
    pub(super) async fn try_begin_read(&self) -> Option<DbSession> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let pool = self.read_pool().clone();
        let begun = run_to_completion(async move {
            Ok(pool.try_begin_with(BEGIN_READ).await?.map(|transaction| DbSession { transaction, _permit: permit }))
        });
        timeout(PROBE_TIMEOUT, begun).await.ok()?.ok()?
    }

    /// Begins a writing transaction, to be committed by the caller. Fails if the dashboard is read-only.
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
        // The semaphore is never closed.
        let permit = timeout_at(until, self.connections.clone().acquire_owned()).await.map_err(late)?;
        let (permit, pool) = (permit.map_err(|_| Problem::unavailable("the server is shutting down"))?, pool.clone());
        let begun = run_to_completion(async move { Ok(DbSession { transaction: pool.begin_with(statement).await?, _permit: permit }) });
        timeout_at(until, begun).await.map_err(late)?
    }
}

/// Runs the begin of a transaction to completion, even if the request is dropped. Otherwise the next user of the connection would
/// unknowingly write into an open transaction and lose its changes.
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

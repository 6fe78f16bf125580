//! Connection of a waiter. Notifications arrive on this connection, and each query polls up to a thousand jobs.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgListener},
};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    node::ListenNode,
    poll::{JobSnapshot, poll_jobs},
};
use crate::{
    define::JobId,
    schema::{Channel, ListenerConnection, NO_SESSION, Store},
};

/// Maximum number of jobs per query.
const MAX_JOBS: usize = 1000;

/// Renewal interval of the row that requests notifications. The row expires after a minute.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// Timeout for a query, and for connecting and listening. After a timeout, the connection is considered lost.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// Delay before the waiter tries to listen again. The previous attempt may have failed because a pooler had no free session.
const LISTEN_RETRY: Duration = Duration::from_secs(30);

/// Connection of a waiter. Listens for notifications, writes the row that requests notifications, and polls.
pub(super) struct WaiterConnection {
    id: Uuid,
    pool: PgPool,
    /// Connection options of the pool, as of the last call to `listen`.
    pool_options: Arc<PgConnectOptions>,
    store: Store,
    listener: Option<PgListener>,
    /// Whether the connection listens on the channel for job-finished notifications.
    is_listening: bool,
    /// Time of the last write of the row that requests notifications; `None` if the row has not been written.
    announced_at: Option<Instant>,
    announce_tried_at: Option<Instant>,
    /// Whether the warning about missing notifications has been logged.
    has_warned: bool,
    /// Time of the check that found listening impossible; reset to `None` before the next check.
    not_listening_since: Option<Instant>,
    /// Node that holds the store, if the store is distributed.
    node: ListenNode,
}

impl WaiterConnection {
    pub(super) fn new(pool: &PgPool, store: Store) -> Self {
        Self {
            id: Uuid::new_v4(),
            pool: pool.clone(),
            pool_options: pool.connect_options(),
            store,
            listener: None,
            is_listening: false,
            announced_at: None,
            announce_tried_at: None,
            has_warned: false,
            not_listening_since: None,
            node: ListenNode::default(),
        }
    }

    /// Connects if necessary, renews the row that requests notifications, and polls the given jobs. After a failure, the connection is
    /// dropped. Returns the duration of the poll, without the time for connecting and renewing the row.
    pub(super) async fn poll(&mut self, jobs: &[JobId], publish: impl FnMut(JobId, Option<JobSnapshot>)) -> sqlx::Result<Duration> {
        let polled = self.try_poll(jobs, publish).await;
        if polled.is_err() {
            self.listener = None;
        }
        polled
    }

    async fn try_poll(&mut self, jobs: &[JobId], mut publish: impl FnMut(JobId, Option<JobSnapshot>)) -> sqlx::Result<Duration> {
        with_timeout(self.listen()).await?;
        let began = Instant::now();
        let listener = self.listener.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        for jobs in jobs.chunks(MAX_JOBS) {
            let mut missing: HashSet<JobId> = jobs.iter().copied().collect();
            for (job, snapshot) in with_timeout(poll_jobs(&mut *listener, self.store, jobs)).await? {
                missing.remove(&job);
                publish(job, snapshot);
            }
            for job in missing {
                publish(job, Some(JobSnapshot::not_found()));
            }
        }
        Ok(began.elapsed())
    }

    /// Connects and listens if necessary, and renews the row that requests notifications.
    async fn listen(&mut self) -> sqlx::Result<()> {
        if self.pool.is_closed() {
            return Err(sqlx::Error::PoolClosed);
        }
        // If the pool now connects to a different server, the existing connection is replaced, because it receives no notifications from
        // the new server.
        let place = |options: &PgConnectOptions| (options.get_host().to_owned(), options.get_port(), options.get_socket().cloned());
        let to = self.pool.connect_options();
        if !Arc::ptr_eq(&to, &self.pool_options) && place(&to) != place(&self.pool_options) {
            self.listener = None;
        }
        self.pool_options = to;
        if self.not_listening_since.is_some_and(|since| since.elapsed() >= LISTEN_RETRY) {
            (self.not_listening_since, self.listener) = (None, None);
        }
        if self.listener.is_none() {
            (self.announced_at, self.announce_tried_at) = (None, None);
            // The driver's listener requires a pool. A separate pool is opened, because the caller's pool may be exhausted, or busy
            // closing an unresponsive connection.
            let options = (*self.pool_options).clone().application_name("queue waiter").disable_statement_logging();
            let ListenerConnection { mut listener, keeps_session } = if self.cannot_listen() {
                ListenerConnection::without_listening(options).await?
            } else {
                self.node.listen(options, self.store).await?
            };
            if !keeps_session && !self.cannot_listen() {
                self.not_listening_since = Some(Instant::now());
            }
            self.is_listening = match Channel::Finished.name(&mut listener, self.store).await {
                Ok(channel) if keeps_session => match listener.listen(&channel).await {
                    Ok(()) => true,
                    // A standby does not allow LISTEN.
                    Err(sqlx::Error::Database(_)) => false,
                    Err(error) => return Err(error),
                },
                // If the connection keeps no session, or the role cannot read the channel name, the waiter polls more often instead.
                Ok(_) | Err(sqlx::Error::Database(_)) => false,
                Err(error) => return Err(error),
            };
            if !keeps_session && !self.has_warned {
                self.has_warned = true;
                tracing::warn!("{NO_SESSION}");
            }
            self.listener = Some(listener);
        }
        let Some(listener) = &mut self.listener else { return Ok(()) };
        self.node.check(listener, self.store).await?;
        if self.is_listening && self.announce_tried_at.is_none_or(|at| at.elapsed() > RENEW_INTERVAL) {
            self.announce_tried_at = Some(Instant::now());
            let row = sqlx::query(self.store.sql(include_str!("../../sql/announce_waiter.sql"))).bind(self.id);
            self.announced_at = match row.execute(&mut *listener).await {
                Ok(_) => self.announce_tried_at,
                // A read-only login cannot write the row that requests notifications, so the waiter polls more often instead.
                Err(sqlx::Error::Database(_)) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Returns whether listening is known to be impossible.
    fn cannot_listen(&self) -> bool {
        self.not_listening_since.is_some()
    }

    pub(super) fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Returns whether the connection is open and has requested notifications from the workers.
    pub(super) fn is_notified(&self) -> bool {
        self.listener.is_some() && self.announced_at.is_some()
    }

    /// Waits until a notification arrives, or the connection is lost.
    pub(super) async fn notified(&mut self) {
        let Some(listener) = &mut self.listener else { return std::future::pending().await };
        if listener.try_recv().await.is_err() {
            self.listener = None;
        }
    }

    /// Deletes the row that requests notifications, and closes the connection.
    pub(super) async fn close(&mut self) {
        if let Some(mut listener) = self.listener.take().filter(|_| self.announced_at.is_some()) {
            let row = sqlx::query(self.store.sql(include_str!("../../sql/leave_waiter.sql"))).bind(self.id);
            // A row that cannot be deleted expires after a minute.
            let _ = timeout(Duration::from_secs(1), row.execute(&mut listener)).await;
        }
        self.announced_at = None;
    }
}

/// Applies [`STATEMENT_TIMEOUT`] to a future. A timeout is returned as an I/O error.
async fn with_timeout<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(STATEMENT_TIMEOUT, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

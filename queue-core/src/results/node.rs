//! Listener on the cluster node that holds a distributed store. Notifications are delivered only on that node. Determining whether a
//! store is distributed costs one query per connection.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgListener};

use crate::schema::{ClusterNode, ListenerConnection, Store, place};

/// Node that holds a distributed store, as of the last query.
#[derive(Default)]
pub(super) struct ListenNode {
    at: Option<ClusterNode>,
    checked_at: Option<Instant>,
}

/// Interval at which a listener checks whether its distributed store has moved to another node.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

impl ListenNode {
    /// Listens on the node that holds the store. If the store is not distributed, listens on the server given by `options`.
    pub(super) async fn listen(&mut self, options: PgConnectOptions, store: Store) -> sqlx::Result<ListenerConnection> {
        let mut listening = ListenerConnection::open(options.clone()).await?;
        self.at = place(&mut listening.listener, store).await?;
        self.checked_at = Some(Instant::now());
        match &self.at {
            Some(node) if listening.keeps_session && !node.is_here() => match node.lead(options) {
                Ok(led) => ListenerConnection::open(led).await,
                // A connection through a Unix socket cannot be redirected to another node. The caller must poll more often instead of
                // listening.
                Err(_) => Ok(ListenerConnection { keeps_session: false, ..listening }),
            },
            _ => Ok(listening),
        }
    }

    /// Returns an error if the store has moved to another node since [`listen`](Self::listen). Queries the store's location at most once
    /// per [`CHECK_INTERVAL`].
    pub(super) async fn check(&mut self, listener: &mut PgListener, store: Store) -> sqlx::Result<()> {
        let Some(at) = self.at.as_ref().filter(|_| self.checked_at.is_none_or(|at| at.elapsed() > CHECK_INTERVAL)) else { return Ok(()) };
        self.checked_at = Some(Instant::now());
        if !place(listener, store).await?.is_some_and(|now| now.is_same(at)) {
            return Err(sqlx::Error::Io(std::io::Error::other("the store has moved to another node")));
        }
        Ok(())
    }
}

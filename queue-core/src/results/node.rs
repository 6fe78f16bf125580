//! Listening on the node that a distributed store is on: what is notified there is heard nowhere else. Where a store is not distributed it costs a question
//! a connection.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgListener};

use crate::schema::{ClusterNode, Listening, Store, place};

/// The node that a distributed store is on, as far as is known.
#[derive(Default)]
pub(super) struct Node {
    at: Option<ClusterNode>,
    looked: Option<Instant>,
}

/// How often it is looked whether a distributed store has moved.
const MOVED: Duration = Duration::from_secs(2);

impl Node {
    /// Where these options lead, or to the node that the store is on.
    pub(super) async fn listen(&mut self, options: PgConnectOptions, store: Store) -> sqlx::Result<Listening> {
        let mut listening = Listening::open(options.clone()).await?;
        self.at = place(&mut listening.listener, store).await?;
        self.looked = Some(Instant::now());
        match &self.at {
            Some(node) if listening.keeps_session && !node.is_here() => match node.lead(options) {
                Ok(led) => Listening::open(led).await,
                // Nobody is heard from here: it is looked more often instead.
                Err(_) => Ok(Listening { keeps_session: false, ..listening }),
            },
            _ => Ok(listening),
        }
    }

    /// An error once the store has moved.
    pub(super) async fn check(&mut self, listener: &mut PgListener, store: Store) -> sqlx::Result<()> {
        let Some(at) = self.at.as_ref().filter(|_| self.looked.is_none_or(|at| at.elapsed() > MOVED)) else { return Ok(()) };
        self.looked = Some(Instant::now());
        if !place(listener, store).await?.is_some_and(|now| now.is_same(at)) {
            return Err(sqlx::Error::Io(std::io::Error::other("the store has moved to another node")));
        }
        Ok(())
    }
}

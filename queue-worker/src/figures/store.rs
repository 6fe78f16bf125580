//! The store in figures, for whoever asks often: a bounded look every few seconds, however many ask, on a connection of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    Store,
    operate::{self, Busiest, Oldest},
};
use sqlx::{PgConnection, PgPool};
use tokio::{sync::Mutex, time::timeout};

use crate::{error::Error, live::Link};

/// Who asks sooner is told the same.
const EVERY: Duration = Duration::from_secs(5);

/// A monitor waits ten seconds, as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// So many queues and types have figures of their own: those with most jobs, and those that wait longest.
const MOST: u16 = 50;

/// Asks, and remembers.
pub(super) struct StoreFigures {
    store: Store,
    last: Arc<Mutex<Last>>,
}

struct Last {
    link: Link,
    /// When, and what was found; nothing, if there was no answer.
    seen: Option<(Instant, Option<Arc<StoreState>>)>,
}

/// What was found.
pub(super) struct StoreState {
    pub(super) jobs: Busiest,
    pub(super) oldest: Vec<Oldest>,
    pub(super) days_ahead: i32,
    /// In transactions.
    pub(super) snapshot_age: i64,
    /// In seconds, if this role may see it.
    pub(super) transaction_age: Option<f64>,
}

impl StoreFigures {
    pub(super) fn new(pool: &PgPool, store: Store) -> Self {
        let link = Link::new(pool, "figures").impatient().hasty();
        Self { store, last: Arc::new(Mutex::new(Last { link, seen: None })) }
    }

    /// What is to be known now; `None` if the store does not say.
    pub(super) async fn look(&self) -> Option<Arc<StoreState>> {
        let (store, last) = (self.store, Arc::clone(&self.last));
        // To its end, even if nobody waits for the answer any more: a connection is not left in the middle of one.
        tokio::spawn(async move { last.lock().await.look(store).await }).await.ok().flatten()
    }
}

impl Last {
    async fn look(&mut self, store: Store) -> Option<Arc<StoreState>> {
        if let Some((_, found)) = self.seen.as_ref().filter(|(at, _)| at.elapsed() < EVERY) {
            return found.clone();
        }
        let asked = match timeout(PATIENCE, async { ask(self.link.get().await?, store).await }).await {
            Ok(asked) => asked,
            Err(_) => Err(Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
        };
        if let Err(error) = &asked {
            tracing::debug!(%error, "the store cannot be asked for figures now");
            let fresh = self.link.another();
            std::mem::replace(&mut self.link, fresh).close().await;
        }
        let found = asked.ok().map(Arc::new);
        self.seen = Some((Instant::now(), found.clone()));
        found
    }
}

async fn ask(connection: &mut PgConnection, store: Store) -> Result<StoreState, Error> {
    let jobs = operate::busiest(&mut *connection, store, MOST).await?;
    let oldest = operate::oldest_of(&mut *connection, store, MOST).await?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/surroundings.sql"))).bind(store.schema());
    let (days_ahead, snapshot_age, transaction_age) = statement.fetch_one(connection).await?;
    Ok(StoreState { jobs, oldest, days_ahead, snapshot_age, transaction_age })
}

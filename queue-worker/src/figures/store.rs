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

use crate::{
    error::Error,
    live::{Link, Paused, Vitals},
};

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
    /// Of the worker, which knows what is paused.
    vitals: Vitals,
    /// When, and what was found; nothing, if there was no answer.
    seen: Option<(Instant, Option<Arc<StoreState>>)>,
    /// Why there was no answer the last time.
    why: Option<String>,
}

/// What was found.
pub(super) struct StoreState {
    pub(super) jobs: Busiest,
    /// Of the queues that are not paused; none while it is not known which these are.
    pub(super) oldest: Vec<Oldest>,
    pub(super) days_ahead: i32,
    /// In transactions.
    pub(super) snapshot_age: i64,
    /// In seconds, if this role may see it.
    pub(super) transaction_age: Option<f64>,
}

impl StoreFigures {
    pub(super) fn new(pool: &PgPool, store: Store, vitals: &Vitals) -> Self {
        let link = Link::new(pool, "figures").impatient().hasty();
        Self { store, last: Arc::new(Mutex::new(Last { link, vitals: vitals.clone(), seen: None, why: None })) }
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
        let asked = match timeout(PATIENCE, async { ask(self.link.get().await?, store, &self.vitals).await }).await {
            Ok(asked) => asked,
            Err(_) => Err(Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
        };
        self.tell(asked.as_ref().err());
        if asked.is_err() {
            let fresh = self.link.another();
            std::mem::replace(&mut self.link, fresh).close().await;
        }
        let found = asked.ok().map(Arc::new);
        self.seen = Some((Instant::now(), found.clone()));
        found
    }
}

impl Last {
    /// Says why there is no answer, and that there is one again: once at each change, for a monitor asks again and again.
    fn tell(&mut self, error: Option<&Error>) {
        let why = error.map(ToString::to_string);
        match (&self.why, &why) {
            (Some(before), Some(now)) if before == now => {}
            (_, Some(error)) => tracing::warn!(error, "the store cannot be asked for figures: `queue_store_reachable` is 0"),
            (Some(_), None) => tracing::info!("the store can be asked for figures again"),
            (None, None) => {}
        }
        self.why = why;
    }
}

async fn ask(connection: &mut PgConnection, store: Store, vitals: &Vitals) -> Result<StoreState, Error> {
    let jobs = operate::busiest(&mut *connection, store, MOST).await?;
    // What is paused is looked at and let go of: whoever keeps it holds up the word that nothing begins any more.
    let paused = vitals.paused().map_or(0, |paused| paused.whole_queues());
    let most = MOST.saturating_add(u16::try_from(paused).unwrap_or(u16::MAX));
    let mut oldest = operate::oldest_of(&mut *connection, store, most).await?;
    match vitals.paused() {
        Some(paused) => keep_unpaused(&mut oldest, &paused),
        None => oldest.clear(),
    }
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/surroundings.sql"))).bind(store.schema());
    let (days_ahead, snapshot_age, transaction_age) = statement.fetch_one(connection).await?;
    Ok(StoreState { jobs, oldest, days_ahead, snapshot_age, transaction_age })
}

/// Jobs of a queue that is paused as a whole wait as they should: more workers would not help them.
fn keep_unpaused(oldest: &mut Vec<Oldest>, paused: &Paused) {
    oldest.retain(|oldest| !paused.covers_all_of(&oldest.queue));
    oldest.truncate(usize::from(MOST));
}

//! Drain notice of a worker that is shutting down. The notice informs the store that the worker starts no more jobs. Without the notice, an
//! operator's pause would wait for the worker while its handlers finish. The shutdown does not wait for the notice.

use std::time::Duration;

use queue_core::Store;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    error::warn_throttled,
    live::{Identity, Pauses, StoreConnection, bounded},
};

pub(super) struct DrainNotice {
    link: StoreConnection,
    store: Store,
    identity: watch::Receiver<Identity>,
    pauses: Pauses,
}

/// Delay before the notice, and interval at which the worker checks whether the notice can be sent. A worker that stops within this delay
/// needs no notice.
const INITIAL_DELAY: Duration = Duration::from_millis(50);

/// Interval between repetitions of the notice. The notice is repeated because a server crash may lose an earlier notice.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Sentinel greater than every pause number.
const EVERY_PAUSE: i64 = i64::MAX;

impl DrainNotice {
    pub(super) fn new(link: StoreConnection, store: Store, identity: watch::Receiver<Identity>, pauses: &Pauses) -> Self {
        Self { link, store, identity, pauses: pauses.clone() }
    }

    /// Sends the notice periodically, under each identity of the worker. Must be called after the last claim, when each claimed job has
    /// started or has been released.
    pub(super) async fn run(mut self) {
        // The notice must not be sent while a task still applies a snapshot of the pauses. `forget` replaces the current snapshot, and the
        // loop waits until no task holds a replaced snapshot.
        self.pauses.forget();
        loop {
            sleep(INITIAL_DELAY).await;
            if self.pauses.are_acknowledged() {
                break;
            }
        }
        loop {
            let own = *self.identity.borrow_and_update();
            if let Some(worker) = own {
                let result = self.acknowledge(worker).await;
                if let Err(error) = self.link.note(result) {
                    warn_throttled(&error, "cannot acknowledge pauses for a worker that is shutting down; retrying");
                }
            }
            if let Ok(Err(_)) = timeout(REPEAT_INTERVAL, self.identity.changed()).await {
                return;
            }
        }
    }

    async fn acknowledge(&mut self, worker: uuid::Uuid) -> sqlx::Result<()> {
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/acknowledge_pauses.sql"))).bind(worker).bind(EVERY_PAUSE);
        bounded(statement.execute(self.link.get().await?)).await.map(drop)
    }
}

//! The last word of a worker that is shutting down and lets its handlers finish: nothing begins here any more, so nobody who pauses something is
//! to wait for it. It decides nothing, and nothing waits for it.

use std::time::Duration;

use queue_core::Store;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    error::complain,
    live::{Identity, Link, Pauses, bounded},
};

pub(super) struct Farewell {
    link: Link,
    store: Store,
    identity: watch::Receiver<Identity>,
    pauses: Pauses,
}

/// Whoever stops sooner has no need of it.
const SOON: Duration = Duration::from_millis(50);

/// It is said again this often: a crash of the server may have lost it.
const ANEW: Duration = Duration::from_secs(3);

/// The number of no pause: up to it are all that are to come.
const ALL: i64 = i64::MAX;

impl Farewell {
    pub(super) fn new(link: Link, store: Store, identity: watch::Receiver<Identity>, pauses: &Pauses) -> Self {
        Self { link, store, identity, pauses: pauses.clone() }
    }

    /// To be called when no claim is made any more, and what was claimed has begun or is given back. Says so under each identity, for ever.
    pub(super) async fn say(mut self) {
        // Transactional jobs that were looked for before may begin still.
        self.pauses.forget();
        loop {
            sleep(SOON).await;
            if self.pauses.are_heeded() {
                break;
            }
        }
        loop {
            let us = *self.identity.borrow_and_update();
            if let Some(worker) = us {
                let said = self.vouch(worker).await;
                if let Err(error) = self.link.note(said) {
                    complain(&error, "cannot say that this worker begins nothing any more; trying again");
                }
            }
            if let Ok(Err(_)) = timeout(ANEW, self.identity.changed()).await {
                return;
            }
        }
    }

    async fn vouch(&mut self, worker: uuid::Uuid) -> sqlx::Result<()> {
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/vouch.sql"))).bind(worker).bind(ALL);
        bounded(statement.execute(self.link.get().await?)).await.map(drop)
    }
}

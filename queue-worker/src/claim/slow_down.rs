//! Writes slow-downs to the store. A slow-down prevents jobs under a limit from starting for a given duration. A separate task writes
//! slow-downs, because a limit's row may be locked and claims must not wait for the lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::Store;
use sqlx::error::DatabaseError;

use crate::{
    error::warn_throttled,
    live::{Notifier, SlowDown, SlowDowns, StoreConnection, bounded},
};

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Writes each slow-down to the store. Never returns. Closes the connection after each write, because slow-downs are rare.
pub(crate) async fn write_slow_downs(slow_downs: Arc<SlowDowns>, link: StoreConnection, store: Store, notifier: Arc<Notifier>) {
    loop {
        let slow = slow_downs.next().await;
        let mut link = link.another();
        match write(&slow, &mut link, store).await {
            Ok(()) => {
                slow_downs.mark_stored(&slow);
                // The slow-down is in the store now, so claims may be sent again.
                notifier.wake_claimers();
            }
            Err(error) => {
                slow_downs.defer(&slow, RETRY);
                if error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "55P03") {
                    let limits = &slow.limit_ids;
                    tracing::warn!(
                        ?limits,
                        "cannot slow down a limit: another session has locked its row in `limiter`; retrying; find the session in pg_locks and end it"
                    );
                } else {
                    warn_throttled(&error, "cannot slow down a limit; retrying");
                }
            }
        }
        link.close().await;
    }
}

async fn write(slow: &SlowDown, link: &mut StoreConnection, store: Store) -> sqlx::Result<()> {
    let wait = slow.until.saturating_duration_since(Instant::now());
    let statement = sqlx::query(store.sql(include_str!("../../sql/slow_down.sql")));
    let statement = statement.bind(&slow.limit_ids).bind(wait.as_secs_f64() * 1000.0);
    let written = bounded(statement.execute(link.get().await?)).await;
    link.note(written).map(drop)
}

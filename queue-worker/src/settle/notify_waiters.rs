//! Notifies waiting clients that their jobs have finished.
//!
//! The notifications are sent by a separate loop, not by the settle statements. The loop's transactions write nothing, so they do not hold
//! the server's global notification lock during a WAL flush. Without waiting clients, the loop costs at most a short query every 50 ms.

use std::{sync::Arc, time::Duration};

use queue_core::Store;

use crate::{
    error::warn_throttled,
    live::{Notifier, StoreConnection, bounded},
};

/// Minimum interval between notifications while clients wait for jobs.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(2);

/// Minimum interval between queries while no client waits for jobs. Bounds the delay of the first notification to a new client.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Delay after an error. Clients poll for their jobs during the delay.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// Sends notifications about finished jobs. Never returns.
pub(crate) async fn notify_waiters(mut connection: StoreConnection, store: Store, notifier: Arc<Notifier>) {
    loop {
        notifier.wait_for_finished().await;
        let pause = match notify_once(&mut connection, store).await {
            Ok(true) => NOTIFY_INTERVAL,
            Ok(false) => IDLE_INTERVAL,
            Err(error) => {
                warn_throttled(&error, "notifying clients that wait for jobs failed; they poll until it succeeds");
                ERROR_DELAY
            }
        };
        // The next notification covers jobs that finish during the pause.
        tokio::time::sleep(pause).await;
    }
}

/// Sends one notification if a client waits for jobs. Returns whether a client waits.
async fn notify_once(connection: &mut StoreConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/notify_waiters.sql")));
    let notified = bounded(statement.fetch_optional(connection.get().await?)).await;
    Ok(connection.note(notified)?.is_some())
}

//! Notifies clients that are waiting for jobs when jobs have finished.
//!
//! The notifications are sent by a separate loop and not by the settle statements. A transaction that writes nothing does not hold the
//! server's global notification lock during a flush of the write-ahead log. Without waiting clients, the loop costs at most a short
//! query every 50 ms.

use std::{sync::Arc, time::Duration};

use queue_core::Store;

use crate::{
    error::warn_throttled,
    live::{Notifier, StoreConnection, bounded},
};

/// Minimum interval between notifications while clients are waiting.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(2);

/// Interval between queries while no client is waiting. The interval bounds the delay of the first notification to a new client.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Delay after an error. Clients poll their jobs in the meantime.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// Sends notifications about finished jobs and never returns.
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
        // Jobs that finish during the pause are covered by the next notification.
        tokio::time::sleep(pause).await;
    }
}

/// Sends one notification. Returns whether any client is waiting.
async fn notify_once(connection: &mut StoreConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/tell.sql")));
    let notified = bounded(statement.fetch_optional(connection.get().await?)).await;
    Ok(connection.note(notified)?.is_some())
}

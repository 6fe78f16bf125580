//! Notifies clients that wait for jobs when some have finished.
//!
//! A separate loop, not part of the settle statements: a transaction that writes nothing does not hold the server's global notification
//! lock during a flush of the write-ahead log. With no waiting client it costs a short query now and then.

use std::{sync::Arc, time::Duration};

use queue_core::Store;

use crate::{
    error::warn_throttled,
    live::{Notifier, StoreConnection, bounded},
};

/// Minimum interval of notifications while clients wait.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(2);

/// Interval of the queries while no client waits. It bounds the delay of the first notification to a new client.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Delay after an error. Clients poll their jobs meanwhile.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// Sends notifications about finished jobs until the task is aborted.
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

/// Sends one notification. Returns whether any client waits.
async fn notify_once(connection: &mut StoreConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/tell.sql")));
    let notified = bounded(statement.fetch_optional(connection.get().await?)).await;
    Ok(connection.note(notified)?.is_some())
}

//! Steps by which a worker falls asleep without missing a job, and notifications by which producers wake it.
//!
//! Producers notify only workers that have announced their sleep. [`SleepState`] describes the steps from awake to asleep, which the poll
//! loop takes. Without notifications everything works by polling.

use std::{sync::Arc, time::Duration};

use queue_core::{
    Store,
    runner::{Channel, ListenerConnection, NO_SESSION},
};
use sqlx::{ConnectOptions as _, PgConnection, PgPool, error::DatabaseError, postgres::PgConnectOptions};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Notifier, Pauses, bounded, dial::is_same_place, jittered};
use crate::error::warn_throttled;

/// Progress of a worker towards sleep.
///
/// A producer that does not see the `idle` row has a transaction id below the `xmax` recorded after that row was committed. Once every such
/// transaction has ended, one more probe finds the jobs of these producers. Later producers see the row and notify the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepState {
    /// The worker is polling, and producers need not notify it.
    Awake,
    /// The `idle` row is committed. Transactions with an id below the given one may not have seen the row.
    Announced(i64),
    /// All transactions that may not have seen the row have ended. The state is kept during small batches of jobs, so that going back to
    /// sleep costs nothing.
    Asleep,
}

impl SleepState {
    /// Commits the `idle` row, and records which transactions may not have seen it.
    pub(crate) async fn announce(connection: &mut PgConnection, store: Store, worker: Uuid, queues: &[String]) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/sleep.sql"))).bind(worker).bind(queues);
        bounded(statement.execute(&mut *connection)).await?;
        Ok(Self::Announced(horizon(connection).await?.1))
    }

    /// Queries the running transactions and returns the next state. The state is `Asleep` if all transactions that may not have seen the
    /// row have ended. It is `Awake` if the server does not know these transactions, and therefore does not have the row either.
    pub(crate) async fn confirm(self, connection: &mut PgConnection) -> sqlx::Result<Self> {
        match self {
            Self::Announced(_) => Ok(self.at_horizon(horizon(connection).await?)),
            other => Ok(other),
        }
    }

    /// Returns the next state for a known horizon: the ids of the oldest running transaction and of the next transaction.
    pub(crate) fn at_horizon(self, (xmin, xmax): (i64, i64)) -> Self {
        match self {
            Self::Announced(noted) if xmax < noted => Self::Awake,
            Self::Announced(noted) if xmin >= noted => Self::Asleep,
            other => other,
        }
    }

    /// Deletes the `idle` row.
    pub(crate) async fn end(connection: &mut PgConnection, store: Store, worker: Uuid) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/wake_up.sql"))).bind(worker);
        bounded(statement.execute(connection)).await?;
        Ok(Self::Awake)
    }
}

async fn horizon(connection: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    bounded(sqlx::query_as(include_str!("../../sql/horizon.sql")).fetch_one(connection)).await
}

/// Time without notifications after which the listener's connection is tested. The connection is dropped if the test takes as long.
pub(super) const SILENCE: Duration = Duration::from_secs(6);

/// Notification that an ordering key may be unblocked. Payloads without a special form are queue names.
const KEYS: &str = "#";

/// Wakes the worker on every notification, and after each reconnect because notifications may have been missed. Never returns.
///
/// The connection is not taken from the user's pool, which may be exhausted. If listening is not permitted, this is logged once and retried
/// later.
pub(crate) async fn listen(pool: PgPool, store: Store, notifier: Arc<Notifier>, pauses: Pauses) {
    let mut has_warned = false;
    loop {
        let to = pool.connect_options();
        let options = (*to).clone().application_name("queue-worker listen").disable_statement_logging();
        let has_moved = || !is_same_place(&pool.connect_options(), &to);
        let mut pause = Duration::from_millis(500);
        match listen_once(options, store, (&notifier, &pauses), has_moved).await {
            Ok(ListenOutcome::Ended) => {}
            Ok(ListenOutcome::NotPermitted) => {
                pause = REFUSED;
                if !has_warned {
                    has_warned = true;
                    tracing::warn!("{NO_SESSION}");
                }
            }
            Err(error) => {
                warn_throttled(&error, "cannot listen for notifications; polling until it succeeds");
                if is_refused(&error) {
                    pause = REFUSED;
                }
            }
        }
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// Reason why listening stopped without an error.
enum ListenOutcome {
    Ended,
    /// Listening is not permitted on this connection.
    NotPermitted,
}

/// Retry interval if listening is not permitted: without access to the channel, on a standby, or behind a pooler in transaction mode.
pub(super) const REFUSED: Duration = Duration::from_secs(30);

fn is_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42501" || code == "25006")
}

/// Notification that a running job is being cancelled, or that a pause or limit has changed.
const CONTROL: &str = "!control";

/// Prefix of the notification that a limit has free permits. The id of the limit follows.
const ROOM: &str = "!room ";

/// Notification that a schedule has changed.
const SCHEDULE: &str = "!schedule";

/// Wakes the tasks that a notification is meant for.
pub(super) fn on_notification(notification: &str, notifier: &Notifier, pauses: &Pauses) {
    match notification {
        KEYS => notifier.notify_keys(),
        CONTROL => notifier.notify_control(),
        SCHEDULE => notifier.notify_schedules(),
        room if room.starts_with(ROOM) => {
            room[ROOM.len()..].parse().map_or_else(|_| notifier.request_probe(), |gate| notifier.notify_free_permit(gate));
        }
        // A paused queue is not probed now, because it is probed when it is resumed.
        queue if pauses.now().is_some_and(|paused| paused.covers_all_of(queue)) => {}
        _ => notifier.request_probe(),
    }
}

async fn listen_once(
    options: PgConnectOptions,
    store: Store,
    (notifier, pauses): (&Notifier, &Pauses),
    has_moved: impl Fn() -> bool,
) -> sqlx::Result<ListenOutcome> {
    let ListenerConnection { mut listener, keeps_session } = bounded(ListenerConnection::open(options)).await?;
    if !keeps_session {
        return Ok(ListenOutcome::NotPermitted);
    }
    let channel = bounded(Channel::Wake.name(&mut listener, store)).await?;
    bounded(listener.listen(&channel)).await?;
    notifier.request_probe();
    notifier.notify_control();
    loop {
        // `None` means that the driver has replaced a lost connection, so notifications may have been missed.
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => on_notification(notification.payload(), notifier, pauses),
            Ok(Ok(None)) => {
                notifier.request_probe();
                notifier.notify_control();
            }
            Ok(Err(error)) => return Err(error),
            // The database has moved. The old server may still be alive although nothing is written to it any more.
            Err(_) if has_moved() => return Ok(ListenOutcome::Ended),
            Err(_) => {
                let probed = timeout(SILENCE, Channel::Wake.name(&mut listener, store)).await;
                // The owner of the store has renamed the channel, so the new channel must be listened on.
                if probed.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))?? != channel {
                    return Ok(ListenOutcome::Ended);
                }
            }
        }
    }
}

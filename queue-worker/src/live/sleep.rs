//! Puts a worker to sleep without missing a job, and wakes the worker on notifications from producers.
//!
//! Producers notify only workers with a row in the table `idle`. [`SleepState`] documents how a worker falls asleep. Notifications only
//! reduce delays, because the lanes are also polled.

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
/// The worker first commits a row in the table `idle`, and then records the server's `xmax`. A producer that does not see the row has a
/// transaction id below this `xmax`. Once all these transactions have ended, one more probe finds their jobs. Later producers see the row
/// and notify the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepState {
    /// The worker is polling, and producers need not notify it.
    Awake,
    /// The `idle` row is committed. Transactions with an id below the recorded `xmax` may not have seen the row.
    Announced(i64),
    /// The worker is asleep: every transaction that may not have seen its `idle` row has ended. A small batch of jobs does not change
    /// this state, so that the worker can return to sleep without another announcement.
    Asleep,
}

impl SleepState {
    /// Commits the worker's `idle` row, and records which transactions may not have seen the row.
    pub(crate) async fn announce(connection: &mut PgConnection, store: Store, worker: Uuid, queues: &[String]) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/sleep.sql"))).bind(worker).bind(queues);
        bounded(statement.execute(&mut *connection)).await?;
        Ok(Self::Announced(horizon(connection).await?.1))
    }

    /// Queries the running transactions and returns the next state. Returns `Asleep` if all transactions that may not have seen the row
    /// have ended. Returns `Awake` if the next transaction id of the server is below the recorded `xmax`, which means that the connection
    /// now leads to a different server, without the row.
    pub(crate) async fn confirm(self, connection: &mut PgConnection) -> sqlx::Result<Self> {
        match self {
            Self::Announced(_) => Ok(self.at_horizon(horizon(connection).await?)),
            other => Ok(other),
        }
    }

    /// Returns the next state, given the id of the oldest running transaction and the next id that the server assigns.
    pub(crate) fn at_horizon(self, (xmin, xmax): (i64, i64)) -> Self {
        match self {
            Self::Announced(noted) if xmax < noted => Self::Awake,
            Self::Announced(noted) if xmin >= noted => Self::Asleep,
            other => other,
        }
    }

    /// Deletes the worker's `idle` row.
    pub(crate) async fn end(connection: &mut PgConnection, store: Store, worker: Uuid) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/wake_up.sql"))).bind(worker);
        bounded(statement.execute(connection)).await?;
        Ok(Self::Awake)
    }
}

async fn horizon(connection: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    bounded(sqlx::query_as(include_str!("../../sql/horizon.sql")).fetch_one(connection)).await
}

/// Time without notifications after which the listener's connection is tested, and timeout for the test. If the test times out, the
/// connection is dropped.
pub(super) const SILENCE: Duration = Duration::from_secs(6);

/// Message that is logged when the listener works again after losing its connection.
pub(super) const RECONNECTED: &str = "listening for notifications again";

/// Payload of the notification that an ordering key may be unblocked. A payload that matches no constant in this module is a queue name.
const KEYS: &str = "#";

/// Listens for notifications, and wakes the worker on each notification. Also wakes the worker after each reconnect, because
/// notifications may have been missed. Never returns.
///
/// The listener's connection is not taken from the user's pool, which may be exhausted. If listening is not permitted, the next attempt
/// is made after at least [`REFUSED`]. The warning that a pooler does not permit listening is logged only once.
pub(crate) async fn listen(pool: PgPool, store: Store, notifier: Arc<Notifier>, pauses: Pauses) {
    let (mut has_warned, mut has_failed) = (false, false);
    loop {
        let to = pool.connect_options();
        let options = (*to).clone().application_name("queue-worker listen").disable_statement_logging();
        let has_moved = || !is_same_place(&pool.connect_options(), &to);
        let mut pause = Duration::from_millis(500);
        match listen_once(options, store, (&notifier, &pauses), (has_moved, &mut has_failed)).await {
            Ok(ListenOutcome::Ended) => {}
            Ok(ListenOutcome::NotPermitted) => {
                pause = REFUSED;
                if !has_warned {
                    has_warned = true;
                    tracing::warn!("{NO_SESSION}");
                }
            }
            Err(error) => {
                has_failed = true;
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
    /// A pooler does not keep the connection's session, so notifications would be lost.
    NotPermitted,
}

/// Minimum retry interval while listening is not permitted, for example because the role has no access to the channel, the server is a
/// standby, or a pooler is in transaction mode.
pub(super) const REFUSED: Duration = Duration::from_secs(30);

fn is_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42501" || code == "25006")
}

/// Payload of the notification that a running job is being cancelled, or that a pause or limit has changed.
const CONTROL: &str = "!control";

/// Payload prefix of the notification that a limit has free permits. The limit's id follows.
const FREE_PERMIT: &str = "!permit ";

/// Payload of the notification that a schedule has changed.
const SCHEDULE: &str = "!schedule";

/// Wakes the tasks that handle a notification.
pub(super) fn on_notification(notification: &str, notifier: &Notifier, pauses: &Pauses) {
    match notification {
        KEYS => notifier.notify_keys(),
        CONTROL => notifier.notify_control(),
        SCHEDULE => notifier.notify_schedules(),
        permit if permit.starts_with(FREE_PERMIT) => {
            permit[FREE_PERMIT.len()..].parse().map_or_else(|_| notifier.request_probe(), |limit_id| notifier.notify_free_permit(limit_id));
        }
        // A paused queue needs no probe now. Resuming the queue requests a probe.
        queue if pauses.now().is_some_and(|paused| paused.covers_all_of(queue)) => {}
        _ => notifier.request_probe(),
    }
}

async fn listen_once(
    options: PgConnectOptions,
    store: Store,
    (notifier, pauses): (&Notifier, &Pauses),
    (has_moved, has_failed): (impl Fn() -> bool, &mut bool),
) -> sqlx::Result<ListenOutcome> {
    let ListenerConnection { mut listener, keeps_session } = bounded(ListenerConnection::open(options)).await?;
    if !keeps_session {
        return Ok(ListenOutcome::NotPermitted);
    }
    let channel = bounded(Channel::Wake.name(&mut listener, store)).await?;
    bounded(listener.listen(&channel)).await?;
    if std::mem::take(has_failed) {
        tracing::info!("{RECONNECTED}");
    }
    notifier.request_probe();
    notifier.notify_control();
    loop {
        // `None` means that the driver has replaced a lost connection, so notifications may have been missed.
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => on_notification(notification.payload(), notifier, pauses),
            Ok(Ok(None)) => {
                tracing::info!("{RECONNECTED}");
                notifier.request_probe();
                notifier.notify_control();
            }
            Ok(Err(error)) => return Err(error),
            // The pool has been redirected to another host, so the worker must listen there. The connection to the previous host is still
            // open.
            Err(_) if has_moved() => return Ok(ListenOutcome::Ended),
            Err(_) => {
                let probed = timeout(SILENCE, Channel::Wake.name(&mut listener, store)).await;
                // If the store's owner has renamed the channel, the worker must listen on the new channel.
                if probed.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))?? != channel {
                    return Ok(ListenOutcome::Ended);
                }
            }
        }
    }
}

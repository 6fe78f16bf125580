//! How a worker falls asleep without missing a job, and is woken by producers.
//!
//! Producers notify only workers that said they sleep. [`Sleep`] is the way from awake to asleep; `worker` takes its steps. Without any
//! notification everything still works, by polling.

use std::{sync::Arc, time::Duration};

use queue_core::{
    Store,
    runner::{Channel, Listening, NO_SESSION},
};
use sqlx::{ConnectOptions as _, PgConnection, PgPool, error::DatabaseError, postgres::PgConnectOptions};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Bell, Pauses, bounded, dial::is_same_place, jittered};
use crate::error::complain;

/// How far a worker is on its way to sleep.
///
/// A producer that does not see the idle row has a transaction id below the `xmax` noted after that row was committed. So once every
/// transaction below it has ended, one more claim finds whatever they enqueued; those that come later see the row and notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Producers need not notify us.
    Awake,
    /// The idle row is committed; transactions below this id may not have seen it.
    Announced(i64),
    /// All of them have ended. Stays so over small batches: a worker that is woken for a few jobs goes back to sleep at no cost.
    Asleep,
}

impl Sleep {
    /// Commits the idle row, and notes which transactions may have missed it.
    pub(crate) async fn announce(connection: &mut PgConnection, store: Store, worker: Uuid, queues: &[String]) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/sleep.sql"))).bind(worker).bind(queues);
        bounded(statement.execute(&mut *connection)).await?;
        Ok(Self::Announced(horizon(connection).await?.1))
    }

    /// Asleep if those transactions have ended, else the same as before; awake if the server knows nothing of them, and so of our row.
    pub(crate) async fn confirm(self, connection: &mut PgConnection) -> sqlx::Result<Self> {
        match self {
            Self::Announced(_) => Ok(self.given(horizon(connection).await?)),
            other => Ok(other),
        }
    }

    /// The same, where this is the lowest transaction that still runs, and the first not given out yet.
    pub(crate) fn given(self, (xmin, xmax): (i64, i64)) -> Self {
        match self {
            Self::Announced(noted) if xmax < noted => Self::Awake,
            Self::Announced(noted) if xmin >= noted => Self::Asleep,
            other => other,
        }
    }

    /// Takes the idle row away.
    pub(crate) async fn end(connection: &mut PgConnection, store: Store, worker: Uuid) -> sqlx::Result<Self> {
        let statement = sqlx::query(store.sql(include_str!("../../sql/wake_up.sql"))).bind(worker);
        bounded(statement.execute(connection)).await?;
        Ok(Self::Awake)
    }
}

async fn horizon(connection: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    bounded(sqlx::query_as(include_str!("../../sql/horizon.sql")).fetch_one(connection)).await
}

/// After this much silence the listener's connection is tried out, and given up when it stays silent for as long again.
pub(super) const SILENCE: Duration = Duration::from_secs(6);

/// Says that an ordering key may go on; anything else is the name of a queue.
const KEYS: &str = "#";

/// Rings the bell for every notification, for ever. After each (re)connection too, since notifications may have been missed before it.
///
/// Over a connection of its own each time: the user's pool may be exhausted. Where it may not listen, that is said once, and looked at again later.
pub(crate) async fn listen(pool: PgPool, store: Store, bell: Arc<Bell>, pauses: Pauses) {
    let mut has_said = false;
    loop {
        let to = pool.connect_options();
        let options = (*to).clone().application_name("queue-worker listen").disable_statement_logging();
        let has_moved = || !is_same_place(&pool.connect_options(), &to);
        let mut pause = Duration::from_millis(500);
        match listen_once(options, store, (&bell, &pauses), has_moved).await {
            Ok(Heard::All) => {}
            Ok(Heard::Nothing) => {
                pause = REFUSED;
                if !has_said {
                    has_said = true;
                    tracing::warn!("{NO_SESSION}");
                }
            }
            Err(error) => {
                complain(&error, "cannot listen; polling meanwhile");
                if is_refused(&error) {
                    pause = REFUSED;
                }
            }
        }
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// What came of listening until the connection ended.
enum Heard {
    All,
    /// It may not listen.
    Nothing,
}

/// For a role that may not know the channel, until somebody grants it; on a standby; and behind a pooler that keeps no sessions.
pub(super) const REFUSED: Duration = Duration::from_secs(30);

fn is_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "42501" || code == "25006")
}

/// Says, where else the name of a queue stands, that a running job is cancelling, or that something was paused or resumed.
const CONTROL: &str = "!control";

/// Says that a limit has permits again, and then which.
const ROOM: &str = "!room ";

/// Says that a schedule has changed.
const SCHEDULE: &str = "!schedule";

/// Does what a notification asks for.
pub(super) fn hear(told: &str, bell: &Bell, pauses: &Pauses) {
    match told {
        KEYS => bell.tell_keys(),
        CONTROL => bell.note_control(),
        SCHEDULE => bell.tell_schedules(),
        room if room.starts_with(ROOM) => room[ROOM.len()..].parse().map_or_else(|_| bell.ring(), |gate| bell.note_room(gate)),
        // Once it is resumed, a claim follows whatever was told of it meanwhile.
        queue if pauses.now().is_some_and(|paused| paused.covers_all_of(queue)) => {}
        _ => bell.ring(),
    }
}

async fn listen_once(
    options: PgConnectOptions,
    store: Store,
    (bell, pauses): (&Bell, &Pauses),
    has_moved: impl Fn() -> bool,
) -> sqlx::Result<Heard> {
    let Listening { mut listener, keeps_session } = bounded(Listening::open(options)).await?;
    if !keeps_session {
        return Ok(Heard::Nothing);
    }
    let channel = bounded(Channel::Wake.name(&mut listener, store)).await?;
    bounded(listener.listen(&channel)).await?;
    bell.ring();
    bell.note_control();
    loop {
        // `None` is a lost connection that the driver has replaced by itself: notifications may have been missed.
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(told))) => hear(told.payload(), bell, pauses),
            Ok(Ok(None)) => {
                bell.ring();
                bell.note_control();
            }
            Ok(Err(error)) => return Err(error),
            // The other end may still be there, and nobody would write to it.
            Err(_) if has_moved() => return Ok(Heard::All),
            Err(_) => {
                let tried = timeout(SILENCE, Channel::Wake.name(&mut listener, store)).await;
                // Its owner has given it another name: begin anew.
                if tried.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))?? != channel {
                    return Ok(Heard::All);
                }
            }
        }
    }
}

//! Startup of a worker while the database accepts no writes. The worker waits or exits, as configured.

use std::time::Duration;

use sqlx::PgPool;

use super::{StoreConnection, fresh::query_server_state};
use crate::error::{Error, warn_throttled};

/// Behavior of a worker that starts while the database accepts no writes, for example because it is a standby.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{OnStandby, Worker, shutdown_signal};
///
/// let worker = Worker::new(pool).on_standby(OnStandby::Exit);
/// worker.run(shutdown_signal()).await
/// # }
/// ```
#[cfg_attr(feature = "cli", derive(clap::ValueEnum, serde::Deserialize), serde(rename_all = "lowercase"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStandby {
    /// Waits until the database accepts writes
    #[default]
    Wait,
    /// Exits, so that a supervisor can decide what to do
    Exit,
}

/// Interval at which a waiting worker checks whether the database accepts writes.
const AGAIN: Duration = Duration::from_secs(1);

const WAITS: &str = "the database is a standby or accepts no writes for another reason: waiting until it does; name the primary in \
    DATABASE_URL, or several hosts (`postgres://user@one,two/name`), or let it exit: `--on-standby exit` (QUEUE_ON_STANDBY)";

impl OnStandby {
    /// Returns a connection once the database accepts writes. Each check opens a new connection, because the host name may resolve to a
    /// different server each time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Standby`] if the worker is configured to exit. If the first check fails, returns its error.
    pub(crate) async fn wait_for_writes(self, pool: &PgPool) -> Result<StoreConnection, Error> {
        let mut has_warned = false;
        loop {
            let mut link = StoreConnection::new(pool, "verify");
            let state = match link.get().await {
                Ok(connection) => query_server_state(connection).await,
                Err(error) => Err(error),
            };
            match state {
                Ok(state) if !state.read_only => {
                    if has_warned {
                        tracing::info!("the database accepts writes now");
                    }
                    return Ok(link);
                }
                Ok(_) if self == Self::Exit => return Err(Error::Standby),
                Ok(_) if !has_warned => tracing::warn!("{WAITS}"),
                Ok(_) => {}
                Err(error) if !has_warned => return Err(error.into()),
                Err(error) => warn_throttled(&error, "cannot check whether the database accepts writes; retrying"),
            }
            has_warned = true;
            link.close().await;
            tokio::time::sleep(AGAIN).await;
        }
    }
}

//! Starting a worker against a database that accepts no writes: waits or exits, as configured.

use std::time::Duration;

use sqlx::PgPool;

use super::{StoreConnection, fresh::query_server_state};
use crate::error::{Error, warn_throttled};

/// What a worker does if the database accepts no writes at its start, because it is a standby or set to read only.
#[cfg_attr(feature = "cli", derive(clap::ValueEnum, serde::Deserialize), serde(rename_all = "lowercase"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStandby {
    /// Waits until it does
    #[default]
    Wait,
    /// Exits and leaves the decision to its supervisor
    Exit,
}

/// Interval between checks.
const AGAIN: Duration = Duration::from_secs(1);

const WAITS: &str = "the database is a standby, or takes no writes for another reason: this worker waits until it does; name the primary in \
    DATABASE_URL, or several hosts (`postgres://user@one,two/name`), or let it exit: `--on-standby exit` (QUEUE_ON_STANDBY)";

impl OnStandby {
    /// Returns a connection once writes are accepted. Reconnects for each check, as the host name may resolve to another server by then.
    ///
    /// # Errors
    ///
    /// [`Error::Standby`] if it must not wait; errors of the first connection.
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
                        tracing::info!("the database takes writes now");
                    }
                    return Ok(link);
                }
                Ok(_) if self == Self::Exit => return Err(Error::Standby),
                Ok(_) if !has_warned => tracing::warn!("{WAITS}"),
                Ok(_) => {}
                Err(error) if !has_warned => return Err(error.into()),
                Err(error) => warn_throttled(&error, "cannot see now whether the database takes writes; trying again"),
            }
            has_warned = true;
            link.close().await;
            tokio::time::sleep(AGAIN).await;
        }
    }
}

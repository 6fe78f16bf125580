//! Names of a store's notification channels. Only this module queries the names. The names are secret, because any role that may connect to
//! a database can notify any channel whose name it knows. For this reason, the names are not cached, sent or logged.

use sqlx::{PgExecutor, query_scalar};

use super::store::Store;

/// Notification channel of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Channel that wakes sleeping workers when jobs are ready.
    Wake,
    /// Channel for job-finished notifications, sent to sessions that wait for jobs.
    Finished,
}

impl Channel {
    /// Returns the name of the channel in `store`.
    ///
    /// # Errors
    /// Returns an error if the database query fails, for example because the role may not read the name.
    pub async fn name(self, on: impl PgExecutor<'_>, store: Store) -> sqlx::Result<String> {
        let purpose = match self {
            Self::Wake => "wake",
            Self::Finished => "over",
        };
        query_scalar(store.sql(include_str!("../../sql/channel.sql"))).bind(purpose).fetch_one(on).await
    }
}

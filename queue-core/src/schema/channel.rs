//! Names of a store's notification channels; no other code queries them. They are secrets of the store, because any role that may connect
//! to a database can notify any channel in it. They are therefore not cached, sent or logged.

use sqlx::{PgExecutor, query_scalar};

use super::store::Store;

/// A notification channel of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Wakes sleeping workers when there is work.
    Wake,
    /// Channel for job-finished notifications, sent to sessions that wait for jobs.
    Finished,
}

impl Channel {
    /// Returns the channel's name in this store.
    ///
    /// # Errors
    /// Database errors, including that of a role that may not read the name.
    pub async fn name(self, on: impl PgExecutor<'_>, store: Store) -> sqlx::Result<String> {
        let purpose = match self {
            Self::Wake => "wake",
            Self::Finished => "over",
        };
        query_scalar(store.sql(include_str!("../../sql/channel.sql"))).bind(purpose).fetch_one(on).await
    }
}

//! The names of a store's channels: the one place that asks for them. They are secrets of the store, for anybody who may connect to a database
//! can notify any channel of it. So they are not kept, told or logged.

use sqlx::{PgExecutor, query_scalar};

use super::store::Store;

/// What is told over a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// That there is something to do: to workers that sleep.
    Wake,
    /// That jobs are over: to those who wait for some.
    Over,
}

impl Channel {
    /// Its name in this store.
    ///
    /// # Errors
    /// The database's error: also when the role may not know it.
    pub async fn name(self, on: impl PgExecutor<'_>, store: Store) -> sqlx::Result<String> {
        let purpose = match self {
            Self::Wake => "wake",
            Self::Over => "over",
        };
        query_scalar(store.sql(include_str!("../../sql/channel.sql"))).bind(purpose).fetch_one(on).await
    }
}

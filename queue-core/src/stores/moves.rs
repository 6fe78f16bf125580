//! Moves of tenants from one store to another. During a move, new jobs are enqueued into the new store, and jobs waiting in the old store
//! are run there. The home database records all progress, so any process can continue a move. A move has three steps:
//!
//! 1. The home database records that the tenant is in the new store in a new epoch, and that the tenant is leaving the old store.
//! 2. Once the open transactions that enqueue for the tenant have ended, the old store's database records that the tenant has left.
//!    Later enqueues into the old store are rejected.
//! 3. Once no job of the tenant is waiting or running in the old store, the home database records the end of the move.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;

use super::{home::Stores, place_cache::PlaceRow, roster::Member};
use crate::{
    connect::TENANT,
    define::Durability,
    error::Error,
    schema::{Connection, Session},
};

/// Tenant move that is in progress.
///
/// ```no_run
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// for tenant in stores.moves().await? {
///     println!("{}: from {} to {}, since {:?}", tenant.key, tenant.from, tenant.to, tenant.since);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Move {
    /// Key of the tenant.
    pub key: String,
    /// Name of the store that the tenant is leaving.
    pub from: String,
    /// Name of the store to which the tenant is moving. New jobs already go to this store.
    pub to: String,
    /// Time the move began.
    pub since: Option<DateTime<Utc>>,
    /// Whether the old store rejects enqueues for the tenant.
    pub is_fenced: bool,
}

/// State of a tenant move.
///
/// ```no_run
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// use queue_core::stores::MoveState;
///
/// stores.move_tenant("acme", "jobs_b").await?;
/// match stores.go_on("acme").await? {
///     MoveState::Draining(jobs) => println!("{jobs} jobs left in the old store"),
///     MoveState::Over => println!("moved"),
///     _ => println!("waiting for open transactions"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum MoveState {
    /// The move is waiting for open transactions that enqueue into the old store.
    Fencing,
    /// Jobs of the tenant are still waiting or running in the old store. Contains the number of remaining jobs.
    Draining(i64),
    /// The tenant is not being moved.
    Over,
}

/// Maximum number of moves that [`Stores::moves`] returns.
const MAX_MOVES: i64 = 1000;

/// Statements that set the timeouts for fencing the old store. An open transaction that has enqueued jobs blocks the move, and a blocked
/// move blocks later enqueues. The move therefore waits only briefly and is retried.
const FENCE_TIMEOUTS: &str = "set local lock_timeout = '500ms'; set local statement_timeout = '8s'";

/// Statements that set the timeouts for counting the remaining jobs. Counting also waits only briefly for locks on the store's tables.
const COUNT_TIMEOUTS: &str = "set local lock_timeout = '500ms'; set local statement_timeout = '5min'";

impl Stores {
    /// Starts to move a tenant to another store.
    ///
    /// After this call, the tenant's jobs are enqueued into the new store. Jobs waiting in the old store, including retries, are run there
    /// by workers that serve both stores. Dead letters stay in the old store. The move is completed by [`Stores::tend`] or
    /// [`Stores::go_on`].
    ///
    /// Jobs in the new store do not wait for jobs in the old store. During the move, ordering keys, fairness keys, uniqueness, capacities
    /// and limits apply in each store separately.
    ///
    /// # Errors
    /// Returns [`Error::CannotMove`] if the tenant is already in the store, if the tenant is already moving, or if the store is closed.
    /// Returns [`Error::NotPlaced`] if the tenant is not in any store, and [`Error::NoStore`] if this process does not know the store.
    /// Returns [`Error::Database`] if a query fails.
    pub async fn move_tenant(&self, key: &str, store: &str) -> Result<(), Error> {
        self.refresh_lenient().await?;
        self.member(store)?;
        let statement = sqlx::query_scalar::<_, i64>(self.schema.sql(include_str!("../../stores/move.sql"))).bind(key).bind(store);
        let begun = statement.fetch_optional(&self.home).await?;
        self.places.forget(key);
        match begun {
            Some(epoch) => {
                tracing::info!(key, store, epoch, "tenant move started");
                Ok(())
            }
            None if self.query_place(key).await?.is_none() => Err(Error::NotPlaced { key: key.to_owned() }),
            None => Err(Error::CannotMove { key: key.to_owned(), store: store.to_owned() }),
        }
    }

    /// Advances a tenant's move as far as currently possible. Concurrent calls are safe.
    ///
    /// # Errors
    /// Returns [`Error::NotPlaced`] if the tenant is not in any store, and [`Error::NoStore`] if this process does not know the old
    /// store. Returns [`Error::Database`] if a query fails.
    pub async fn go_on(&self, key: &str) -> Result<MoveState, Error> {
        let Some(PlaceRow { leaves, epoch, is_fenced, .. }) = self.query_place(key).await? else {
            return Err(Error::NotPlaced { key: key.to_owned() });
        };
        let Some(from) = leaves else { return Ok(MoveState::Over) };
        let member = self.member(&from)?;
        if !is_fenced && !self.fence(key, &member, epoch).await? {
            return Ok(MoveState::Fencing);
        }
        let left = self.count_remaining(key, &member).await?;
        if left > 0 {
            return Ok(MoveState::Draining(left));
        }
        let moved = sqlx::query(self.schema.sql(include_str!("../../stores/moved.sql"))).bind(key).bind(epoch);
        if moved.execute(&self.home).await?.rows_affected() > 0 {
            tracing::info!(key, from, "tenant move finished: no job of the tenant is left in the old store");
        }
        Ok(MoveState::Over)
    }

    /// Makes the old store reject enqueues for the tenant. Returns false if an open transaction blocks the change.
    async fn fence(&self, key: &str, member: &Member, epoch: i64) -> Result<bool, Error> {
        let mut session = Session::begin(Connection::Pool(member.pool()), Durability::Full).await?;
        sqlx::raw_sql(FENCE_TIMEOUTS).execute(session.connection()).await?;
        let leave = sqlx::query(self.schema.sql(include_str!("../../stores/leave.sql")));
        let left = leave.bind(member.store().schema()).bind(key).bind(epoch).execute(session.connection()).await;
        if let Err(error) = session.end(left).await {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            return if code.is_some_and(|code| code == "55P03") { Ok(false) } else { Err(error.into()) };
        }
        let fenced = sqlx::query(self.schema.sql(include_str!("../../stores/fenced.sql"))).bind(key).bind(epoch);
        fenced.execute(&self.home).await?;
        Ok(true)
    }

    /// Returns the number of the tenant's unfinished jobs in the old store. Counting may take minutes in a store with millions of jobs.
    async fn count_remaining(&self, key: &str, member: &Member) -> Result<i64, Error> {
        let mut session = Session::begin(Connection::Pool(member.pool()), Durability::Full).await?;
        sqlx::raw_sql(COUNT_TIMEOUTS).execute(session.connection()).await?;
        let left = sqlx::query_scalar(member.store().sql(include_str!("../../stores/left.sql"))).bind(json!({ TENANT: key }));
        let left = left.fetch_one(session.connection()).await;
        Ok(session.end(left).await?)
    }

    /// Returns the moves in progress, longest-running move first. Returns at most a thousand moves.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn moves(&self) -> Result<Vec<Move>, Error> {
        #[derive(sqlx::FromRow)]
        struct MoveRow {
            key: String,
            #[sqlx(flatten)]
            place: PlaceRow,
        }
        let statement = sqlx::query_as(self.schema.sql(include_str!("../../stores/moves.sql"))).bind(MAX_MOVES);
        let rows: Vec<MoveRow> = statement.fetch_all(&self.home).await?;
        let moving = |MoveRow { key, place: PlaceRow { store, leaves, is_fenced, moved_at, .. } }| {
            leaves.map(|from| Move { key, from, to: store, since: moved_at, is_fenced })
        };
        Ok(rows.into_iter().filter_map(moving).collect())
    }
}

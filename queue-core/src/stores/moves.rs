//! Moves of tenants from one store to another. Jobs that wait in the old store are run there, and new jobs are enqueued into the new store.
//! Each step is idempotent, and the home database records the move, so any process can continue a move:
//!
//! 1. The home database records the new store, a new epoch, and the store that the tenant is leaving.
//! 2. In the new store, the ordering keys of the tenant's jobs in the old store are held: under each key, a job is enqueued that no worker
//!    runs, so later jobs of the key wait.
//! 3. Once the open transactions that enqueue for the tenant have ended, the old store's database records that the tenant has left. Later
//!    enqueues into the old store are rejected (it is fenced).
//! 4. The new store's database records that the tenant has arrived. The same transaction holds the keys of jobs enqueued since step 2.
//! 5. The home database records that the old store is fenced. From now on, processes enqueue into the new store.
//! 6. When no job of a held key is left in the old store, the job that holds the key is cancelled.
//! 7. Once no job of the tenant is waiting or running in the old store, the home database records the end of the move.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    home::{StoreRecord, Stores},
    move_step::MoveStep,
    place_cache::PlaceRow,
};
use crate::error::Error;

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
    /// Name of the store to which the tenant is moving. New jobs go to this store once the old store is fenced.
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
    /// The move is waiting for open transactions that enqueue into the old store. New jobs still go to the old store.
    Fencing,
    /// Jobs of the tenant are still waiting or running in the old store. Contains the number of remaining jobs, which may be zero shortly
    /// before the move finishes.
    Draining(i64),
    /// The tenant is not being moved.
    Over,
}

/// Maximum number of moves that [`Stores::moves`] returns.
const MAX_MOVES: i64 = 1000;

impl Stores {
    /// Starts to move a tenant to another store. Both stores must be available until the tenant has left the old one.
    ///
    /// The move is completed by [`Stores::tend`] or [`Stores::go_on`]. New jobs go to the new store as soon as all open transactions that
    /// enqueue for the tenant have ended. Jobs waiting in the old store, including retries, are run there by workers that serve both
    /// stores. Dead letters stay in the old store.
    ///
    /// The jobs of an ordering key keep their order: jobs in the new store wait until the jobs of their key in the old store have finished.
    /// Jobs that handlers in the old store enqueue there during the move are an exception: their order is not kept. Fairness keys,
    /// uniqueness, capacities and limits apply in each store separately.
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

    /// Closes a store, and starts to move all its tenants to other stores. Returns the number of moves started. Each tenant is moved to the
    /// store `to`, or if that is `None`, to the open store that [`Rule::Hash`](super::Rule::Hash) chooses for it. Tenants that are still
    /// moving into the store are not included; call this function again once they have arrived.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if there is no store with this name, or no open store to move the tenants to. Returns
    /// [`Error::Database`] if a query fails.
    ///
    /// ```no_run
    /// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
    /// println!("{} tenants leave jobs_a", stores.drain("jobs_a", None).await?);
    /// # Ok(()) }
    /// ```
    pub async fn drain(&self, name: &str, to: Option<&str>) -> Result<u64, Error> {
        let accepts = |record: &StoreRecord| record.is_open && record.name != name && to.is_none_or(|to| record.name == to);
        if !self.records().await?.iter().any(accepts) {
            return Err(Error::NoStore { name: to.unwrap_or("*").to_owned() });
        }
        self.close(name).await?;
        let statement = sqlx::query_scalar(self.schema.sql(include_str!("../../stores/drain.sql"))).bind(name).bind(to);
        let leaving: Vec<String> = statement.fetch_all(&self.home).await?;
        for key in &leaving {
            self.places.forget(key);
        }
        tracing::info!(store = name, tenants = leaving.len(), "moves of all tenants of a store started");
        Ok(leaving.len() as u64)
    }

    /// Advances a tenant's move as far as currently possible. Concurrent calls are safe.
    ///
    /// # Errors
    /// Returns [`Error::NotPlaced`] if the tenant is not in any store, and [`Error::NoStore`] if this process does not know one of the
    /// stores. Returns [`Error::Database`] if a query fails.
    pub async fn go_on(&self, key: &str) -> Result<MoveState, Error> {
        let Some(PlaceRow { store, leaves, epoch, is_fenced, .. }) = self.query_place(key).await? else {
            return Err(Error::NotPlaced { key: key.to_owned() });
        };
        let Some(from) = leaves else { return Ok(MoveState::Over) };
        let step = MoveStep { stores: self, key, epoch, old: self.member(&from)?, new: self.member(&store)? };
        if !is_fenced && !step.fence().await? {
            return Ok(MoveState::Fencing);
        }
        let left = step.remaining().await?;
        if !step.arrive(&left.keys).await? {
            return Ok(MoveState::Fencing);
        }
        if !is_fenced {
            let fenced = sqlx::query(self.schema.sql(include_str!("../../stores/fenced.sql"))).bind(key).bind(epoch);
            fenced.execute(&self.home).await?;
            self.places.forget(key);
        }
        let held = step.release(&left.keys).await?;
        if left.jobs > 0 || held > 0 {
            return Ok(MoveState::Draining(left.jobs));
        }
        let moved = sqlx::query(self.schema.sql(include_str!("../../stores/moved.sql"))).bind(key).bind(epoch);
        if moved.execute(&self.home).await?.rows_affected() > 0 {
            tracing::info!(key, from, "tenant move finished: no job of the tenant is left in the old store");
        }
        Ok(MoveState::Over)
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

//! Assignment of tenants to stores. An assignment is read from the home database, and cached until an enqueue detects that the cache
//! entry is out of date.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    home::{Rule, Stores},
    place_cache::PlaceRow,
    roster::Member,
    tenant::Tenant,
};
use crate::error::Error;

/// Assignment of a tenant to a store, as recorded in the home database.
///
/// ```no_run
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// if let Some(place) = stores.look_up("acme").await? {
///     println!("{} is in {}, moved at {:?}", place.key, place.store, place.moved_at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlaceRecord {
    /// Key of the tenant.
    pub key: String,
    /// Store of the tenant, or the store to which the tenant is moving.
    pub store: String,
    /// Store that the tenant is leaving; `None` unless a move is in progress.
    pub leaves: Option<String>,
    /// Whether the store in `leaves` rejects enqueues for the tenant, and new jobs go to `store`; false unless a move is in progress.
    pub is_fenced: bool,
    /// Time the last move began; `None` if the tenant was never moved.
    pub moved_at: Option<DateTime<Utc>>,
}

impl Stores {
    /// Returns the store of a tenant as recorded in the home database, or `None` if the tenant is not in any store. This function does
    /// not assign the tenant to a store, and does not query the stores.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] unless the key has 1 to 200 characters without NUL, and [`Error::Database`] if the query fails.
    pub async fn look_up(&self, key: &str) -> Result<Option<PlaceRecord>, Error> {
        check_key(key)?;
        let found = self.query_place(key).await?;
        Ok(found.map(|PlaceRow { store, leaves, is_fenced, moved_at, .. }| PlaceRecord {
            key: key.to_owned(),
            store,
            leaves,
            is_fenced,
            moved_at,
        }))
    }

    /// Returns a tenant with its store. A new tenant is assigned to a store by the [`Rule`]. Concurrent calls return the same store.
    ///
    /// The stores of up to 10,000 tenants are cached. A cache entry may be out of date, which [`Tenant::begin`] detects and corrects.
    ///
    /// # Errors
    /// Returns [`Error::NotPlaced`] for a new tenant if the rule is [`Rule::Explicit`]. Returns [`Error::NoStore`] if no store is open,
    /// or if this process does not know the tenant's store. Returns [`Error::OutOfRange`] unless the key has 1 to 200 characters without
    /// NUL, and [`Error::Database`] if the query fails.
    pub async fn of(&self, key: &str) -> Result<Tenant, Error> {
        if let Some((store, epoch)) = self.places.get(key)
            && let Some(member) = self.roster.get(&store)
        {
            return Ok(Tenant::new(self.clone(), key, member, epoch));
        }
        let place = self.find_or_place(key).await?;
        let (store, epoch) = place.current();
        if self.roster.get(store).is_none() {
            // The store may have been added since the last refresh.
            self.refresh_lenient().await?;
        }
        let member = self.member(store)?;
        self.record_arrival(key, &member, epoch).await?;
        self.places.put(key, &place);
        Ok(Tenant::new(self.clone(), key, member, epoch))
    }

    /// Records the tenant's epoch in the store's database, if the epoch is not recorded yet. The statement runs in a separate
    /// transaction, because it waits for all transactions that enqueue for the tenant. Each such transaction holds a lock on the tenant's
    /// row. If two of them executed the statement, they would deadlock.
    async fn record_arrival(&self, key: &str, member: &Member, epoch: i64) -> Result<(), Error> {
        let received_epoch =
            sqlx::query_scalar(self.schema.sql(include_str!("../../stores/heard.sql"))).bind(member.store().schema()).bind(key);
        let received_epoch: Option<i64> = received_epoch.fetch_optional(member.pool()).await?;
        if received_epoch.is_none_or(|received_epoch| received_epoch < epoch) {
            let arrive = sqlx::query(self.schema.sql(include_str!("../../stores/arrive.sql")));
            arrive.bind(member.store().schema()).bind(key).bind(epoch).execute(member.pool()).await?;
        }
        Ok(())
    }

    /// Places a new tenant in the given store, and returns whether the tenant was new. A tenant that is already in another store stays
    /// there; see [`Stores::move_tenant`].
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if there is no open store with this name. Returns [`Error::OutOfRange`] unless the key has 1 to 200
    /// characters without NUL, and [`Error::Database`] if a query fails.
    pub async fn place(&self, key: &str, store: &str) -> Result<bool, Error> {
        check_key(key)?;
        let is_new = self.insert_place(key, Some(store)).await?;
        match self.query_place(key).await? {
            Some(_) => Ok(is_new),
            None => Err(Error::NoStore { name: store.to_owned() }),
        }
    }

    async fn find_or_place(&self, key: &str) -> Result<PlaceRow, Error> {
        check_key(key)?;
        match self.query_place(key).await? {
            Some(found) => Ok(found),
            None if self.rule == Rule::Explicit => Err(Error::NotPlaced { key: key.to_owned() }),
            None => {
                self.insert_place(key, None).await?;
                self.query_place(key).await?.ok_or_else(|| Error::NoStore { name: "*".to_owned() })
            }
        }
    }

    async fn insert_place(&self, key: &str, store: Option<&str>) -> Result<bool, Error> {
        let rule = if self.rule == Rule::Fewest { "fewest" } else { "hash" };
        let statement =
            sqlx::query_scalar::<_, bool>(self.schema.sql(include_str!("../../stores/place.sql"))).bind(key).bind(store).bind(rule);
        Ok(statement.fetch_optional(&self.home).await?.is_some())
    }

    pub(super) async fn query_place(&self, key: &str) -> Result<Option<PlaceRow>, Error> {
        let statement = sqlx::query_as(self.schema.sql(include_str!("../../stores/look_place.sql"))).bind(key);
        Ok(statement.fetch_optional(&self.home).await?)
    }

    /// Returns the store named `name`, or [`Error::NoStore`] if this process does not know the store.
    pub(super) fn member(&self, name: &str) -> Result<Member, Error> {
        self.roster.get(name).ok_or_else(|| Error::NoStore { name: name.to_owned() })
    }
}

fn check_key(key: &str) -> Result<(), Error> {
    let length = key.chars().count();
    if (1..=200).contains(&length) && !key.contains('\0') {
        return Ok(());
    }
    Err(Error::OutOfRange { what: "the length of a tenant's key", value: length.to_string(), range: "1 to 200, without NUL" })
}

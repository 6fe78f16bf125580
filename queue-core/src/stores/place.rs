//! Where tenants are: asked at home once, and then known until an enqueue finds that it is so no more.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{
    home::{Rule, Stores},
    known::Place,
    roster::Member,
    tenant::Tenant,
};
use crate::error::Error;

/// Where a tenant is, as it stands at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlaceRecord {
    /// The tenant's key.
    pub key: String,
    /// The store that it is in: what is enqueued for it goes there.
    pub store: String,
    /// While it moves: the store that it leaves.
    pub leaves: Option<String>,
    /// While it moves: whether nobody can enqueue into that any more.
    pub is_fenced: bool,
    /// When it began to move last.
    pub moved_at: Option<DateTime<Utc>>,
}

impl Stores {
    /// Where this tenant is, as it stands at home; nothing if it is in no store. It places nobody, and asks no store.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a key of more than 200 characters; the database's.
    pub async fn look_up(&self, key: &str) -> Result<Option<PlaceRecord>, Error> {
        check_key(key)?;
        let found = self.look(key).await?;
        Ok(found.map(|Place { store, leaves, is_fenced, moved_at, .. }| PlaceRecord {
            key: key.to_owned(),
            store,
            leaves,
            is_fenced,
            moved_at,
        }))
    }

    /// Where this tenant is. A new one is put into a store by the rule; of several who ask at once all get the same.
    ///
    /// What is known is kept in memory, of up to 10,000 tenants. It may be old news: then [`Tenant::begin`] finds out, and asks again.
    ///
    /// # Errors
    /// [`Error::NotPlaced`] by [`Rule::Explicit`]; [`Error::NoStore`] if no store is open, or this process does not know it; [`Error::OutOfRange`] for a
    /// key of more than 200 characters; the database's.
    pub async fn of(&self, key: &str) -> Result<Tenant, Error> {
        if let Some((store, epoch)) = self.known.get(key)
            && let Some(member) = self.roster.get(&store)
        {
            return Ok(Tenant::new(self.clone(), key, member, epoch));
        }
        let place = self.ask(key).await?;
        if self.roster.get(&place.store).is_none() {
            // It may be a store that was added meanwhile.
            self.refresh_right().await?;
        }
        let member = self.member(&place.store)?;
        self.arrive(key, &member, place.epoch).await?;
        self.known.put(key, &place);
        Ok(Tenant::new(self.clone(), key, member, place.epoch))
    }

    /// Sees to it that the store's database has heard of the tenant. On its own, and only if it has not: who writes the row waits for all transactions
    /// that enqueue for the tenant, and two that have both locked it would wait for each other.
    async fn arrive(&self, key: &str, member: &Member, epoch: i64) -> Result<(), Error> {
        let heard = sqlx::query_scalar(self.schema.sql(include_str!("../../stores/heard.sql"))).bind(member.store().schema()).bind(key);
        let heard: Option<i64> = heard.fetch_optional(member.pool()).await?;
        if heard.is_none_or(|heard| heard < epoch) {
            let arrive = sqlx::query(self.schema.sql(include_str!("../../stores/arrive.sql")));
            arrive.bind(member.store().schema()).bind(key).bind(epoch).execute(member.pool()).await?;
        }
        Ok(())
    }

    /// Puts a new tenant into this store; returns whether it was new. One that is in another store stays there: see [`Stores::move_tenant`].
    ///
    /// # Errors
    /// [`Error::NoStore`] if there is none of this name, or it is closed; [`Error::OutOfRange`]; the database's.
    pub async fn place(&self, key: &str, store: &str) -> Result<bool, Error> {
        check_key(key)?;
        let is_new = self.put(key, Some(store)).await?;
        match self.look(key).await? {
            Some(_) => Ok(is_new),
            None => Err(Error::NoStore { name: store.to_owned() }),
        }
    }

    async fn ask(&self, key: &str) -> Result<Place, Error> {
        check_key(key)?;
        match self.look(key).await? {
            Some(found) => Ok(found),
            None if self.rule == Rule::Explicit => Err(Error::NotPlaced { key: key.to_owned() }),
            None => {
                self.put(key, None).await?;
                self.look(key).await?.ok_or_else(|| Error::NoStore { name: "*".to_owned() })
            }
        }
    }

    async fn put(&self, key: &str, store: Option<&str>) -> Result<bool, Error> {
        let rule = if self.rule == Rule::Fewest { "fewest" } else { "hash" };
        let statement =
            sqlx::query_scalar::<_, bool>(self.schema.sql(include_str!("../../stores/place.sql"))).bind(key).bind(store).bind(rule);
        Ok(statement.fetch_optional(&self.home).await?.is_some())
    }

    pub(super) async fn look(&self, key: &str) -> Result<Option<Place>, Error> {
        let statement = sqlx::query_as(self.schema.sql(include_str!("../../stores/look_place.sql"))).bind(key);
        Ok(statement.fetch_optional(&self.home).await?)
    }

    /// The store of this name, known to this process.
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

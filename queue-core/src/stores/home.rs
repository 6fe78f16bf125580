//! Registry of all stores, kept in one database (the home database), and the process's copy of the registry.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;

use super::{
    all_stores::with_timeout,
    place_cache::PlaceCache,
    roster::{Member, Roster},
};
use crate::{
    error::{Error, message},
    schema::{Session, Store, apply_each, check_name},
};

/// Rule that assigns new tenants to stores.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, stores::{Rule, Stores}};
///
/// let stores = Stores::new(pool, Store::new("stores")?).rule(Rule::Explicit).database("main", pool)?;
/// stores.place("acme", "jobs_a").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Assigns tenants by a hash of their key. Each open store receives an equal share of the keys. A store that is added later receives
    /// its share of new keys.
    #[default]
    Hash,
    /// Assigns a new tenant to the store with the fewest tenants. The tenants are counted at each assignment. This rule suits thousands
    /// of tenants, not millions.
    Fewest,
    /// Assigns no tenants automatically. Each tenant is placed by [`Stores::place`].
    Explicit,
}

/// Router that assigns tenants to stores. The assignments are kept in tables of one database (the home database), in a schema of your
/// choice. Clones share their state.
///
/// ```no_run
/// # use queue_core::{Job, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Invoice { month: u32 }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, migrate, stores::Stores};
///
/// let stores = Stores::new(&pool, Store::new("stores")?).database("main", &pool)?;
/// stores.migrate().await?;
/// for name in ["jobs_a", "jobs_b"] {
///     migrate(&pool, Store::new(name)?).await?;
///     stores.add(name, "main", Store::new(name)?).await?;
/// }
///
/// let mut tx = stores.of("acme").await?.begin().await?;
/// Invoice { month: 7 }.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Stores {
    pub(super) home: PgPool,
    pub(super) schema: Store,
    pub(super) rule: Rule,
    pub(super) roster: Roster,
    pub(super) places: PlaceCache,
    databases: Arc<RwLock<BTreeMap<String, PgPool>>>,
    /// Lock that serializes reads and updates of the registry. Without the lock, a stale read could remove a store that was added in the
    /// meantime.
    registry_lock: Arc<Mutex<()>>,
}

/// Store as recorded in the home database.
///
/// ```no_run
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// for store in stores.records().await? {
///     println!("{}: {} tenants{}", store.name, store.tenants, if store.is_open { "" } else { ", closed" });
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[non_exhaustive]
pub struct StoreRecord {
    /// Name of the store.
    pub name: String,
    /// Name of the store's database, as given to [`Stores::database`].
    pub database: String,
    /// Schema of the store in its database.
    pub schema: String,
    /// Whether new tenants are assigned to the store.
    pub is_open: bool,
    /// Number of tenants in the store.
    pub tenants: i64,
}

/// Maximum number of retries after another process has created the same tables concurrently.
const MAX_RETRIES: u32 = 5;

impl Stores {
    /// Creates a router whose tables are in the schema `schema` of the home database and of every database that contains stores. The
    /// schema is reserved for these tables and must not be the schema of a store.
    pub fn new(home: &PgPool, schema: Store) -> Self {
        let (rule, roster, places) = (Rule::default(), Roster::default(), PlaceCache::default());
        Self { home: home.clone(), schema, rule, roster, places, databases: Arc::default(), registry_lock: Arc::default() }
    }

    /// Sets the rule that assigns new tenants to stores. Default: [`Rule::Hash`].
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// Adds a database that may contain stores. All processes must use the same name for a database, but each process may connect to a
    /// different address.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name.
    pub fn database(self, name: &str, pool: &PgPool) -> Result<Self, Error> {
        check_name("name of a database", name)?;
        self.databases.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), pool.clone());
        Ok(self)
    }

    /// Creates or updates the router's tables in the home database and in all other databases. Stores are migrated separately.
    ///
    /// If a migration fails, or the tables of a database are locked for ten seconds, the other databases are still migrated. A log line
    /// names the failed database.
    ///
    /// # Errors
    /// Returns the error of the first database that failed.
    pub async fn migrate(&self) -> Result<(), Error> {
        let databases = self.databases.read().unwrap_or_else(PoisonError::into_inner).clone();
        let home = ("home", &self.home);
        let mut failed = None;
        for (name, pool) in std::iter::once(home).chain(databases.iter().map(|(name, pool)| (name.as_str(), pool))) {
            if let Err(error) = self.migrate_database(pool).await {
                let text = message(&error);
                tracing::warn!(
                    database = name,
                    schema = self.schema.schema(),
                    error = text,
                    "migrating the placement tables failed in this database"
                );
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Migrates one database. Retries if another process creates the tables at the same time.
    async fn migrate_database(&self, pool: &PgPool) -> sqlx::Result<()> {
        let mut met = 0;
        while let Err(error) = self.create_tables(&mut *pool.acquire().await?).await {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            met += 1;
            if met > MAX_RETRIES || !code.is_some_and(|code| ["23505", "42P06", "42P07"].contains(&code.as_ref())) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Creates the tables in one transaction. The statements are sent one at a time, because a Citus cluster propagates the whole query
    /// string instead of one statement.
    async fn create_tables(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let tables = self.schema.text(include_str!("../../stores/migration.sql"));
        let text = format!("create schema if not exists \"{}\";\n{tables}", self.schema.schema());
        let mut session = Session::on(connection).await?;
        sqlx::raw_sql("set local lock_timeout = '10s'; set local statement_timeout = '60s'").execute(session.connection()).await?;
        let made = apply_each(session.connection(), &text).await;
        session.end(made).await
    }

    /// Adds a store for all processes that use this registry. The store must already be migrated. A closed store is reopened.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name. Returns [`Error::OutOfRange`] if another store has the name, or this process
    /// has no database named `database`. Returns [`Error::Database`] if the query fails.
    pub async fn add(&self, name: &str, database: &str, store: Store) -> Result<Member, Error> {
        let taken = |what, range| Error::OutOfRange { what, value: name.to_owned(), range };
        let pool = self.pool(database).ok_or_else(|| taken("the database of a store", "one added with `Stores::database`"))?;
        let member = Member::new(name, &pool, store)?;
        let _alone = self.registry_lock.lock().await;
        let statement = sqlx::query(self.schema.sql(include_str!("../../stores/add_store.sql")));
        let added = statement.bind(name).bind(database).bind(store.schema()).fetch_optional(&self.home);
        let added = with_timeout(async { Ok(added.await?) }).await?;
        added.ok_or_else(|| taken("the name of a store", "unused by other stores"))?;
        self.roster.put(member.clone());
        Ok(member)
    }

    /// Closes a store. No new tenants are assigned to a closed store. Tenants in the store stay there until they are moved.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if there is no store with this name, and [`Error::Database`] if the query fails.
    pub async fn close(&self, name: &str) -> Result<(), Error> {
        self.update_store(name, include_str!("../../stores/close_store.sql")).await
    }

    /// Removes a store from the registry. The store must have no tenants, not even tenants that are leaving. The store's tables
    /// are not changed. Jobs left in these tables run only until each process has reloaded the list of stores.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if no store has this name, and [`Error::Database`] if the store has tenants or the query fails.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let _alone = self.registry_lock.lock().await;
        with_timeout(self.update_store(name, include_str!("../../stores/remove_store.sql"))).await?;
        self.roster.remove(name);
        Ok(())
    }

    async fn update_store(&self, name: &str, statement: &'static str) -> Result<(), Error> {
        let done = sqlx::query(self.schema.sql(statement)).bind(name).execute(&self.home).await?;
        if done.rows_affected() == 0 { Err(Error::NoStore { name: name.to_owned() }) } else { Ok(()) }
    }

    /// Returns the stores recorded in the home database.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn records(&self) -> Result<Vec<StoreRecord>, Error> {
        Ok(sqlx::query_as(self.schema.sql(include_str!("../../stores/stores.sql"))).fetch_all(&self.home).await?)
    }

    /// Reloads the list of stores. Returns the names of stores whose database has not been added with [`Stores::database`].
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails. Returns [`Error::InvalidName`] if a record has an invalid name or schema. The
    /// invalid record is skipped.
    pub async fn refresh(&self) -> Result<Vec<String>, Error> {
        let _alone = self.registry_lock.lock().await;
        let (records, mut unknown, mut wrong) = (with_timeout(self.records()).await?, Vec::new(), None);
        for gone in self.roster.all().iter().filter(|known| records.iter().all(|record| record.name != known.name())) {
            self.roster.remove(gone.name());
        }
        for StoreRecord { name, database, schema, .. } in records {
            match self.pool(&database) {
                Some(pool) => match Store::new(&schema).and_then(|store| Member::new(&name, &pool, store)) {
                    Ok(member) => self.roster.put(member),
                    Err(error) => wrong = wrong.or(Some(error)),
                },
                None => unknown.push(name),
            }
        }
        wrong.map_or(Ok(unknown), Err)
    }

    /// Reloads the list of stores. Unlike [`refresh`](Self::refresh), returns no error for records with invalid names.
    pub(super) async fn refresh_lenient(&self) -> Result<(), Error> {
        match self.refresh().await {
            Ok(_) | Err(Error::InvalidName { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the list of stores known to this process, for a worker that serves all stores and for operations on all stores.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    fn pool(&self, database: &str) -> Option<PgPool> {
        self.databases.read().unwrap_or_else(PoisonError::into_inner).get(database).cloned()
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("schema", &self.schema.schema()).field("roster", &self.roster).finish_non_exhaustive()
    }
}

//! The stores that there are, as a database knows them: a list for every process, and what each process makes of it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;

use super::{
    known::Known,
    over::patiently,
    roster::{Member, Roster},
};
use crate::{
    error::{Error, message},
    schema::{Session, Store, apply_each, check_name},
};

/// Which store a new tenant is put into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// By its key: every store has its part of the keys, and one that is added has its part of the new ones.
    #[default]
    Hash,
    /// That with the fewest tenants. It counts them for each new one: for thousands of tenants, not millions.
    Fewest,
    /// None: each is placed by [`Stores::place`].
    Explicit,
}

/// Routes tenants to stores: by a table at home, in a schema of your choosing. A clone is the same.
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
///     migrate::migrate(&mut *pool.acquire().await?, Store::new(name)?).await?;
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
    pub(super) known: Known,
    databases: Arc<RwLock<BTreeMap<String, PgPool>>>,
    /// What was read before a store was added is not believed after it.
    changing: Arc<Mutex<()>>,
}

/// A store, as it is known at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[non_exhaustive]
pub struct StoreRecord {
    /// What it goes by.
    pub name: String,
    /// The database it is in, by the name that processes know it by.
    pub database: String,
    /// Its schema there.
    pub schema: String,
    /// Whether new tenants are put into it.
    pub is_open: bool,
    /// How many tenants are in it.
    pub tenants: i64,
}

/// How often it is tried to make what somebody else has made meanwhile.
const MEETINGS: u32 = 5;

impl Stores {
    /// With its tables in this schema of this database, and there of every database with stores. It holds nothing else; let it be none of the stores.
    pub fn new(home: &PgPool, schema: Store) -> Self {
        let (rule, roster, known) = (Rule::default(), Roster::default(), Known::default());
        Self { home: home.clone(), schema, rule, roster, known, databases: Arc::default(), changing: Arc::default() }
    }

    /// Which store new tenants are put into. Default [`Rule::Hash`].
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// A database that may have stores, by a name that all processes call it by. Their addresses stay theirs.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn database(self, name: &str, pool: &PgPool) -> Result<Self, Error> {
        check_name("name of a database", name)?;
        self.databases.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), pool.clone());
        Ok(self)
    }

    /// Makes the tables at home and in all databases, or brings them up to date. Stores are migrated by themselves. A database that fails, or has its
    /// tables locked for ten seconds, keeps none from the others; a log line names it.
    ///
    /// # Errors
    /// The first database's that failed.
    pub async fn migrate(&self) -> Result<(), Error> {
        let databases = self.databases.read().unwrap_or_else(PoisonError::into_inner).clone();
        let home = ("home", &self.home);
        let mut failed = None;
        for (name, pool) in std::iter::once(home).chain(databases.iter().map(|(name, pool)| (name.as_str(), pool))) {
            if let Err(error) = self.make_in(pool).await {
                let said = message(&error);
                tracing::warn!(
                    database = name,
                    schema = self.schema.schema(),
                    error = said,
                    "the tables of placements cannot be made here"
                );
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Again, if somebody else makes them at the same time.
    async fn make_in(&self, pool: &PgPool) -> sqlx::Result<()> {
        let mut met = 0;
        while let Err(error) = self.make(&mut *pool.acquire().await?).await {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            met += 1;
            if met > MEETINGS || !code.is_some_and(|code| ["23505", "42P06", "42P07"].contains(&code.as_ref())) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// One transaction. A statement at a time, for a cluster sends each on as the text that it came in.
    async fn make(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let tables = self.schema.text(include_str!("../../stores/migration.sql"));
        let text = format!("create schema if not exists \"{}\";\n{tables}", self.schema.schema());
        let mut session = Session::on(connection).await?;
        sqlx::raw_sql("set local lock_timeout = '10s'; set local statement_timeout = '60s'").execute(session.connection()).await?;
        let made = apply_each(session.connection(), &text).await;
        session.end(made).await
    }

    /// Makes a store known to every process that works with these stores: it is to be migrated by then. One that was closed is open again.
    ///
    /// # Errors
    /// [`Error::InvalidName`]; [`Error::OutOfRange`] if the name is another store's, or this process knows no database of this name; the database's.
    pub async fn add(&self, name: &str, database: &str, store: Store) -> Result<Member, Error> {
        let taken = |what, range| Error::OutOfRange { what, value: name.to_owned(), range };
        let pool = self.pool(database).ok_or_else(|| taken("the database of a store", "one that was given by `Stores::database`"))?;
        let member = Member::new(name, &pool, store)?;
        let _alone = self.changing.lock().await;
        let statement = sqlx::query(self.schema.sql(include_str!("../../stores/add_store.sql")));
        let added = statement.bind(name).bind(database).bind(store.schema()).fetch_optional(&self.home);
        let added = patiently(async { Ok(added.await?) }).await?;
        added.ok_or_else(|| taken("the name of a store", "no other store's"))?;
        self.roster.put(member.clone());
        Ok(member)
    }

    /// No new tenants are put into it. Those that are there stay, until they are moved.
    ///
    /// # Errors
    /// [`Error::NoStore`]; the database's.
    pub async fn close(&self, name: &str) -> Result<(), Error> {
        self.change(name, include_str!("../../stores/close_store.sql")).await
    }

    /// Takes a store off the list, once no tenant is in it or leaves it. Its tables stay as they are. What is left in them is worked on until the
    /// processes hear of it, and not after.
    ///
    /// # Errors
    /// [`Error::NoStore`]; the database's if tenants are in it.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.change(name, include_str!("../../stores/remove_store.sql")).await?;
        self.roster.remove(name);
        Ok(())
    }

    async fn change(&self, name: &str, statement: &'static str) -> Result<(), Error> {
        let done = sqlx::query(self.schema.sql(statement)).bind(name).execute(&self.home).await?;
        if done.rows_affected() == 0 { Err(Error::NoStore { name: name.to_owned() }) } else { Ok(()) }
    }

    /// The stores, as they are known at home.
    ///
    /// # Errors
    /// The database's.
    pub async fn records(&self) -> Result<Vec<StoreRecord>, Error> {
        Ok(sqlx::query_as(self.schema.sql(include_str!("../../stores/stores.sql"))).fetch_all(&self.home).await?)
    }

    /// Reads which stores there are; returns the names of those in databases that this process does not know.
    ///
    /// # Errors
    /// The database's; [`Error::InvalidName`] if somebody has written one of a wrong name or schema there, which is passed over.
    pub async fn refresh(&self) -> Result<Vec<String>, Error> {
        let _alone = self.changing.lock().await;
        let (records, mut unknown, mut wrong) = (patiently(self.records()).await?, Vec::new(), None);
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

    /// Reads which stores there are, for whoever is about another one than those of wrong names.
    pub(super) async fn refresh_right(&self) -> Result<(), Error> {
        match self.refresh().await {
            Ok(_) | Err(Error::InvalidName { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The stores of this process: for a worker over all of them, and for what is asked of all.
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

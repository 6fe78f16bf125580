//! Opens the home database and the databases of the stores that a command needs. An unavailable database does not affect the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use queue_core::{
    Error, Store, check_name, migrate,
    stores::{Member, StoreJob, StoreRecord, Stores},
};
use sqlx::PgPool;
use tokio::{task::JoinSet, time::timeout};

use super::failures::FailedStore;
use crate::{
    cli::{
        job_name::JobName as _,
        open::{open, open_unverified},
        problem::Problem,
        settings::Settings,
    },
    error::Error as WorkerError,
    live::Database,
};

/// Timeout of queries to a database or a store.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for closing connections in order, which an unresponsive database does not do.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Scope of a command.
#[derive(Clone, Copy)]
pub(super) enum StoreScope<'a> {
    /// Only the home database.
    Home,
    /// All stores.
    All,
    /// The stores of these names.
    Stores(&'a [&'a str]),
    /// The database of this name.
    Database(&'a str),
}

/// The stores of a command, as far as their databases can be reached.
pub(super) struct StoreSession {
    pub(super) stores: Stores,
    pub(super) records: Vec<StoreRecord>,
    /// Stores that cannot be queried, and why.
    pub(super) failed: Vec<FailedStore>,
    pub(super) home: Database,
    /// The other databases by name.
    pub(super) others: BTreeMap<String, Database>,
    /// Databases that cannot be reached, and why.
    pub(super) lost: BTreeMap<String, String>,
}

/// Connects to the home database, for reading or for writing.
pub(super) async fn open_home(settings: &Settings, read_only: bool) -> Result<Database, Problem> {
    if read_only { open_unverified(settings).await } else { open(settings).await }
}

impl StoreSession {
    /// Opens the stores for reading.
    pub(super) async fn for_reading(settings: &Settings, about: StoreScope<'_>) -> Result<Self, Problem> {
        Self::with_home(settings, open_home(settings, true).await?, about).await
    }

    /// Opens the stores for writing.
    pub(super) async fn for_writing(settings: &Settings, about: StoreScope<'_>) -> Result<Self, Problem> {
        Self::with_home(settings, open_home(settings, false).await?, about).await
    }

    async fn with_home(settings: &Settings, home: Database, about: StoreScope<'_>) -> Result<Self, Problem> {
        let mut opened = Self::without_records(settings, home)?;
        opened.records = records(settings, &opened.stores).await?;
        match about {
            StoreScope::Home => opened.load_roster(settings).await?,
            StoreScope::All => {
                let names: Vec<String> = opened.records.iter().map(|record| record.name.clone()).collect();
                opened.connect_stores(settings, &names).await?;
            }
            StoreScope::Stores(names) => opened.connect_stores(settings, names).await?,
            StoreScope::Database(name) => opened.connect_databases(settings, |wanted| wanted == name).await?,
        }
        Ok(opened)
    }

    /// Connects to the databases of these stores.
    pub(super) async fn connect_stores(&mut self, settings: &Settings, names: &[impl AsRef<str>]) -> Result<(), Problem> {
        let named = |record: &&StoreRecord| names.iter().any(|name| name.as_ref() == record.name);
        let wanted: BTreeSet<String> = self.records.iter().filter(named).map(|record| record.database.clone()).collect();
        self.connect_databases(settings, |name| wanted.contains(name)).await?;
        self.load_roster(settings).await
    }

    /// Creates the value before the list of stores is read.
    pub(super) fn without_records(settings: &Settings, home: Database) -> Result<Self, Problem> {
        let mut stores = Stores::new(home.pool(), settings.stores.homes()?);
        for name in settings.stores.databases()?.home {
            stores = stores.database(&name, home.pool())?;
        }
        Ok(Self { stores, records: Vec::new(), failed: Vec::new(), home, others: BTreeMap::new(), lost: BTreeMap::new() })
    }

    /// Connects to the databases of these names concurrently.
    pub(super) async fn connect_databases(&mut self, settings: &Settings, is_wanted: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let mut connecting = JoinSet::new();
        for (name, url) in settings.stores.databases()?.others.into_iter().filter(|(name, _)| is_wanted(name)) {
            let connect = settings.worker.pool(Database::options()).url(url).connect();
            connecting.spawn(async move { (name, timeout(QUERY_TIMEOUT, connect).await) });
        }
        for (name, connected) in connecting.join_all().await {
            match connected {
                Ok(Ok(database)) => {
                    self.stores = self.stores.clone().database(&name, database.pool())?;
                    self.others.insert(name, database);
                }
                Ok(Err(error)) => drop(self.lost.insert(name, error.to_string())),
                Err(_) => drop(self.lost.insert(name, WorkerError::from(sqlx::Error::PoolTimedOut).to_string())),
            }
        }
        Ok(())
    }

    /// Loads the list of stores and records those that cannot be queried.
    pub(super) async fn load_roster(&mut self, settings: &Settings) -> Result<(), Problem> {
        query_home(settings, async {
            match self.stores.refresh().await {
                // Somebody inserted a store with an invalid name; the check below reports which.
                Ok(_) | Err(Error::InvalidName { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await?;
        self.failed.clear();
        let known = settings.stores.databases()?;
        let is_named = |name: &String| known.others.contains_key(name) || known.home.contains(name);
        for StoreRecord { name, database, schema, .. } in &self.records {
            if let Some(why) = self.lost.get(database) {
                self.failed.push(FailedStore::of(name, format!("its database `{database}` is out of reach: {why}")));
            } else if !is_named(database) {
                let fix = format!("give its URL: `--database {database}=URL` (QUEUE_DATABASES)");
                self.failed.push(FailedStore::of(name, format!("it is in the database `{database}`, which has no URL here; {fix}")));
            } else if let Err(error) = Store::new(schema).and_then(|_| check_name("name of a store", name)) {
                self.failed.push(FailedStore::from(name, &error));
            }
        }
        Ok(())
    }

    /// Returns the pool of the database of this name.
    pub(super) fn pool(&self, settings: &Settings, name: &str) -> Result<&PgPool, Problem> {
        if let Some(why) = self.lost.get(name) {
            return Err(Problem::failed(format!("the database `{name}` is out of reach: {why}")));
        }
        if settings.stores.databases()?.home.iter().any(|home| home == name) {
            return Ok(self.home.pool());
        }
        let unknown = || Problem::usage(format!("no database `{name}` is known; give its URL: `--database {name}=URL` (QUEUE_DATABASES)"));
        self.others.get(name).map(Database::pool).ok_or_else(unknown)
    }

    /// Returns the store of this name.
    pub(super) fn member(&self, name: &str) -> Result<Member, Problem> {
        if let Some(member) = self.stores.roster().get(name) {
            return Ok(member);
        }
        match self.failed.iter().find(|trouble| trouble.store == name) {
            Some(trouble) => Err(trouble.problem()),
            None => Err(no_store(name)),
        }
    }

    /// Returns the store of this name after verifying its schema.
    pub(super) async fn store(&self, name: &str) -> Result<Member, Problem> {
        let member = self.member(name)?;
        let verified = with_timeout(async { migrate::verify(&mut *member.pool().acquire().await?, member.store()).await }).await;
        verified.map_err(|error| FailedStore::from(name, &error).problem())?;
        Ok(member)
    }

    /// Returns the record of a store at home.
    pub(super) fn record(&self, name: &str) -> Result<&StoreRecord, Problem> {
        self.records.iter().find(|record| record.name == name).ok_or_else(|| no_store(name))
    }

    /// Queries the store of a job.
    pub(super) async fn query_store<T>(&self, job: &StoreJob, ask: impl AsyncFnOnce(Member) -> Result<T, Error>) -> Result<T, Problem> {
        let member = self.member(job.store())?;
        let asked = async {
            migrate::verify(&mut *member.pool().acquire().await?, member.store()).await?;
            ask(member).await
        };
        with_timeout(asked).await.map_err(|error| match error {
            Error::NotFound { .. } => Problem::refused(job.refusal(&error.to_string())),
            error => FailedStore::from(job.store(), &error).problem(),
        })
    }

    /// Queries all stores concurrently and returns the answers in the order of their names. A store that does not answer in time, unless
    /// `is_patient`, is added to `failed`. An invalid query fails for all stores and is returned as an error.
    pub(super) async fn query_all<T, F>(&mut self, is_patient: bool, ask: impl Fn(Member) -> F) -> Result<Vec<(Member, T)>, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let asking = |member: Member| {
            let (asked, own) = (ask(member.clone()), member);
            async move {
                with_timeout(async { migrate::verify(&mut *own.pool().acquire().await?, own.store()).await }).await?;
                if is_patient { asked.await } else { with_timeout(asked).await }
            }
        };
        let mut answers = Vec::new();
        for of in self.stores.roster().each(asking).await {
            match of.answer {
                Ok(answer) => answers.push((of.member, answer)),
                Err(error @ (Error::OutOfRange { .. } | Error::InvalidName { .. })) => return Err(error.into()),
                Err(error) => self.failed.push(FailedStore::from(of.member.name(), &error)),
            }
        }
        self.failed.sort_by(|one, other| one.store.cmp(&other.store));
        Ok(answers)
    }

    pub(super) async fn close(self) {
        let mut closing: JoinSet<()> = self.others.into_values().chain([self.home]).map(Database::close).collect();
        let _ = timeout(CLOSE_TIMEOUT, async { while closing.join_next().await.is_some() {} }).await;
        closing.detach_all();
    }
}

/// Turns a timeout into an error. Only for futures that can be dropped at any time without an effect.
pub(super) async fn with_timeout<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(QUERY_TIMEOUT, asked).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

/// Runs a query against the home database with a timeout and explains its errors.
pub(super) async fn query_home<T>(settings: &Settings, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let homes = settings.stores.homes()?;
    with_timeout(asked).await.map_err(|error| match &error {
        Error::Database(sqlx::Error::PoolTimedOut) => Problem::failed(format!(
            "the home database has not answered for ten seconds; check its server, and locks on tables of the schema `{}`",
            homes.schema()
        )),
        Error::Database(sqlx::Error::Database(of_server)) if of_server.code().is_some_and(|code| ["42P01", "3F000"].contains(&&*code)) => {
            Problem::failed(format!(
                "the schema `{}` has no placement tables, which list the stores; create them with `queue-worker stores migrate`, or name \
                 another schema: `--homes` (QUEUE_HOMES)",
                homes.schema()
            ))
        }
        _ => error.into(),
    })
}

/// Loads the records of the stores at home.
pub(super) async fn records(settings: &Settings, stores: &Stores) -> Result<Vec<StoreRecord>, Problem> {
    query_home(settings, stores.records()).await
}

fn no_store(name: &str) -> Problem {
    Problem::refused(format!("there is no store `{name}`; `queue-worker stores list` lists the stores"))
}

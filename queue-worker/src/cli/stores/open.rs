//! Opens the home database and the databases of the stores that a command needs. An unavailable database affects only its own stores,
//! unless it is the home database.

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

/// Timeout for connecting to a database, for a query, and for an operation on one job.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for closing connections gracefully. Without the timeout, an unresponsive database would block the exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Stores and databases that a command needs.
#[derive(Clone, Copy)]
pub(super) enum StoreScope<'a> {
    /// Only the home database.
    Home,
    /// Databases of all stores.
    All,
    /// Databases of the stores with these names.
    Stores(&'a [&'a str]),
    /// Database with this name.
    Database(&'a str),
}

/// Databases and stores that a command has opened, and the stores and databases that could not be reached.
pub(super) struct StoreSession {
    pub(super) stores: Stores,
    pub(super) records: Vec<StoreRecord>,
    /// Stores that cannot be queried, with the reasons.
    pub(super) failed: Vec<FailedStore>,
    pub(super) home: Database,
    /// Databases other than the home database, by name.
    pub(super) others: BTreeMap<String, Database>,
    /// Reasons why databases cannot be reached, by database name.
    pub(super) lost: BTreeMap<String, String>,
}

/// Connects to the home database, for reading or for writing.
pub(super) async fn open_home(settings: &Settings, read_only: bool) -> Result<Database, Problem> {
    if read_only { open_unverified(settings).await } else { open(settings).await }
}

impl StoreSession {
    /// Opens the stores and databases in `about` for reading.
    pub(super) async fn for_reading(settings: &Settings, about: StoreScope<'_>) -> Result<Self, Problem> {
        Self::with_home(settings, open_home(settings, true).await?, about).await
    }

    /// Opens the stores and databases in `about` for writing.
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
            StoreScope::Database(name) => opened.connect_databases(settings, |database| database == name).await?,
        }
        Ok(opened)
    }

    /// Connects to the databases of the stores in `names`, and reloads the list of stores.
    pub(super) async fn connect_stores(&mut self, settings: &Settings, names: &[impl AsRef<str>]) -> Result<(), Problem> {
        let named = |record: &&StoreRecord| names.iter().any(|name| name.as_ref() == record.name);
        let databases: BTreeSet<String> = self.records.iter().filter(named).map(|record| record.database.clone()).collect();
        self.connect_databases(settings, |name| databases.contains(name)).await?;
        self.load_roster(settings).await
    }

    /// Creates a session without the store records, for use before the placement tables exist.
    pub(super) fn without_records(settings: &Settings, home: Database) -> Result<Self, Problem> {
        let mut stores = Stores::new(home.pool(), settings.stores.homes()?);
        for name in settings.stores.databases()?.home {
            stores = stores.database(&name, home.pool())?;
        }
        Ok(Self { stores, records: Vec::new(), failed: Vec::new(), home, others: BTreeMap::new(), lost: BTreeMap::new() })
    }

    /// Connects concurrently to the databases for which `is_required` returns `true`.
    pub(super) async fn connect_databases(&mut self, settings: &Settings, is_required: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let mut connecting = JoinSet::new();
        for (name, url) in settings.stores.databases()?.others.into_iter().filter(|(name, _)| is_required(name)) {
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

    /// Reloads the list of stores, and sets `failed` to the stores that cannot be queried.
    pub(super) async fn load_roster(&mut self, settings: &Settings) -> Result<(), Problem> {
        query_home(settings, async {
            match self.stores.refresh().await {
                // Only another program can record a store with an invalid name. The loop below reports the store as failed, so the error
                // is ignored here.
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

    /// Returns the pool of the database `name`.
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

    /// Returns the store `name`.
    pub(super) fn member(&self, name: &str) -> Result<Member, Problem> {
        if let Some(member) = self.stores.roster().get(name) {
            return Ok(member);
        }
        match self.failed.iter().find(|trouble| trouble.store == name) {
            Some(trouble) => Err(trouble.problem()),
            None => Err(no_store(name)),
        }
    }

    /// Returns the store `name`, after verifying its schema.
    pub(super) async fn store(&self, name: &str) -> Result<Member, Problem> {
        let member = self.member(name)?;
        let verified = with_timeout(async { migrate::verify(&mut *member.pool().acquire().await?, member.store()).await }).await;
        verified.map_err(|error| FailedStore::from(name, &error).problem())?;
        Ok(member)
    }

    /// Returns the home database's record of a store.
    pub(super) fn record(&self, name: &str) -> Result<&StoreRecord, Problem> {
        self.records.iter().find(|record| record.name == name).ok_or_else(|| no_store(name))
    }

    /// Runs a query against a job's store.
    pub(super) async fn query_store<T>(&self, job: &StoreJob, ask: impl AsyncFnOnce(Member) -> Result<T, Error>) -> Result<T, Problem> {
        let member = self.member(job.store())?;
        let query = async {
            migrate::verify(&mut *member.pool().acquire().await?, member.store()).await?;
            ask(member).await
        };
        with_timeout(query).await.map_err(|error| match error {
            Error::NotFound { .. } => Problem::refused(job.refusal(&error.to_string())),
            error => FailedStore::from(job.store(), &error).problem(),
        })
    }

    /// Queries all stores concurrently, and returns the responses ordered by store name. Adds a store that fails or times out to
    /// `failed`. With `is_patient`, only the preceding schema check has a timeout. If an argument of the query is invalid, returns the
    /// error, because the query would fail in every store.
    pub(super) async fn query_all<T, F>(&mut self, is_patient: bool, ask: impl Fn(Member) -> F) -> Result<Vec<(Member, T)>, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let asking = |member: Member| {
            let (query, own) = (ask(member.clone()), member);
            async move {
                with_timeout(async { migrate::verify(&mut *own.pool().acquire().await?, own.store()).await }).await?;
                if is_patient { query.await } else { with_timeout(query).await }
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

    /// Removes all stores from the roster except those in `answers`, so that a following query skips stores that have failed.
    pub(super) fn keep_only<T>(&self, answers: &[(Member, T)]) {
        let has_answered = |member: &Member| answers.iter().any(|(known, _)| known.name() == member.name());
        for member in self.stores.roster().all().iter().filter(|member| !has_answered(member)) {
            self.stores.roster().remove(member.name());
        }
    }

    pub(super) async fn close(self) {
        let mut closing: JoinSet<()> = self.others.into_values().chain([self.home]).map(Database::close).collect();
        let _ = timeout(CLOSE_TIMEOUT, async { while closing.join_next().await.is_some() {} }).await;
        closing.detach_all();
    }
}

/// Awaits `query`, and returns an error after a timeout. The query must be cancel safe.
pub(super) async fn with_timeout<T>(query: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(QUERY_TIMEOUT, query).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

/// Runs a query against the home database with a timeout. The errors for a timeout and for missing tables suggest a fix.
pub(super) async fn query_home<T>(settings: &Settings, query: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let homes = settings.stores.homes()?;
    with_timeout(query).await.map_err(|error| match &error {
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

/// Loads the records of all stores from the home database.
pub(super) async fn records(settings: &Settings, stores: &Stores) -> Result<Vec<StoreRecord>, Problem> {
    query_home(settings, stores.records()).await
}

fn no_store(name: &str) -> Problem {
    Problem::refused(format!("there is no store `{name}`; `queue-worker stores list` lists the stores"))
}

//! The home, and the databases of the stores that a command is about. One that is not there keeps nobody from the others.

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

use super::told::Trouble;
use crate::{
    cli::{
        named::JobName as _,
        open::{open, open_unchecked},
        problem::Problem,
        settings::Settings,
    },
    error::Error as WorkerError,
    live::Database,
};

/// What is asked of a database or a store is waited for so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Connections are closed in order for so long: whoever has not answered need not answer that either.
const CLOSING: Duration = Duration::from_secs(1);

/// What a command is about.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    /// What stands at home.
    Home,
    /// All stores.
    All,
    /// The stores of these names.
    Stores(&'a [&'a str]),
    /// The database of this name.
    Database(&'a str),
}

/// The stores that a command is about, as far as they are in reach.
pub(super) struct Opened {
    pub(super) stores: Stores,
    pub(super) records: Vec<StoreRecord>,
    /// Those that are not asked, and why.
    pub(super) failed: Vec<Trouble>,
    pub(super) home: Database,
    /// The databases besides.
    pub(super) others: BTreeMap<String, Database>,
    /// Databases that cannot be reached, and why.
    pub(super) lost: BTreeMap<String, String>,
}

/// The home for what only looks, or for what writes.
pub(super) async fn open_home(settings: &Settings, looks: bool) -> Result<Database, Problem> {
    if looks { open_unchecked(settings).await } else { open(settings).await }
}

impl Opened {
    /// For what only looks.
    pub(super) async fn to_look(settings: &Settings, about: About<'_>) -> Result<Self, Problem> {
        Self::at(settings, open_home(settings, true).await?, about).await
    }

    /// For what writes.
    pub(super) async fn to_write(settings: &Settings, about: About<'_>) -> Result<Self, Problem> {
        Self::at(settings, open_home(settings, false).await?, about).await
    }

    async fn at(settings: &Settings, home: Database, about: About<'_>) -> Result<Self, Problem> {
        let mut opened = Self::unread(settings, home)?;
        opened.records = records(settings, &opened.stores).await?;
        match about {
            About::Home => opened.meet(settings).await?,
            About::All => {
                let names: Vec<String> = opened.records.iter().map(|record| record.name.clone()).collect();
                opened.reach_stores(settings, &names).await?;
            }
            About::Stores(names) => opened.reach_stores(settings, names).await?,
            About::Database(name) => opened.reach(settings, |wanted| wanted == name).await?,
        }
        Ok(opened)
    }

    /// Connects to the databases of the stores of these names.
    pub(super) async fn reach_stores(&mut self, settings: &Settings, names: &[impl AsRef<str>]) -> Result<(), Problem> {
        let named = |record: &&StoreRecord| names.iter().any(|name| name.as_ref() == record.name);
        let wanted: BTreeSet<String> = self.records.iter().filter(named).map(|record| record.database.clone()).collect();
        self.reach(settings, |name| wanted.contains(name)).await?;
        self.meet(settings).await
    }

    /// Nothing is known yet of which stores there are.
    pub(super) fn unread(settings: &Settings, home: Database) -> Result<Self, Problem> {
        let mut stores = Stores::new(home.pool(), settings.stores.homes()?);
        for name in settings.stores.databases()?.home {
            stores = stores.database(&name, home.pool())?;
        }
        Ok(Self { stores, records: Vec::new(), failed: Vec::new(), home, others: BTreeMap::new(), lost: BTreeMap::new() })
    }

    /// Connects to the databases of these names, all at once.
    pub(super) async fn reach(&mut self, settings: &Settings, is_wanted: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let mut connecting = JoinSet::new();
        for (name, url) in settings.stores.databases()?.others.into_iter().filter(|(name, _)| is_wanted(name)) {
            let connect = settings.worker.pool(Database::options()).url(url).connect();
            connecting.spawn(async move { (name, timeout(PATIENCE, connect).await) });
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

    /// Reads which stores there are, and notes those that cannot be asked.
    pub(super) async fn meet(&mut self, settings: &Settings) -> Result<(), Problem> {
        at_home(settings, async {
            match self.stores.refresh().await {
                // A wrong name is of a store that somebody wrote there by hand; which one is seen below.
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
                self.failed.push(Trouble::of(name, format!("its database `{database}` is out of reach: {why}")));
            } else if !is_named(database) {
                let fix = format!("say where that is: `--database {database}=URL` (QUEUE_DATABASES)");
                self.failed.push(Trouble::of(name, format!("it is in the database `{database}`, which is not named here; {fix}")));
            } else if let Err(error) = Store::new(schema).and_then(|_| check_name("name of a store", name)) {
                self.failed.push(Trouble::from(name, &error));
            }
        }
        Ok(())
    }

    /// The database of this name.
    pub(super) fn pool(&self, settings: &Settings, name: &str) -> Result<&PgPool, Problem> {
        if let Some(why) = self.lost.get(name) {
            return Err(Problem::failed(format!("the database `{name}` is out of reach: {why}")));
        }
        if settings.stores.databases()?.home.iter().any(|home| home == name) {
            return Ok(self.home.pool());
        }
        let unknown =
            || Problem::usage(format!("no database `{name}` is named; say where it is: `--database {name}=URL` (QUEUE_DATABASES)"));
        self.others.get(name).map(Database::pool).ok_or_else(unknown)
    }

    /// The store of this name.
    pub(super) fn member(&self, name: &str) -> Result<Member, Problem> {
        if let Some(member) = self.stores.roster().get(name) {
            return Ok(member);
        }
        match self.failed.iter().find(|trouble| trouble.store == name) {
            Some(trouble) => Err(trouble.problem()),
            None => Err(no_store(name)),
        }
    }

    /// The same, which is migrated.
    pub(super) async fn store(&self, name: &str) -> Result<Member, Problem> {
        let member = self.member(name)?;
        let verified = patiently(async { migrate::verify(&mut *member.pool().acquire().await?, member.store()).await }).await;
        verified.map_err(|error| Trouble::from(name, &error).problem())?;
        Ok(member)
    }

    /// What stands at home of the store of this name.
    pub(super) fn record(&self, name: &str) -> Result<&StoreRecord, Problem> {
        self.records.iter().find(|record| record.name == name).ok_or_else(|| no_store(name))
    }

    /// What the store of a job says of it.
    pub(super) async fn answer<T>(&self, job: &StoreJob, ask: impl AsyncFnOnce(Member) -> Result<T, Error>) -> Result<T, Problem> {
        let member = self.member(job.store())?;
        let asked = async {
            migrate::verify(&mut *member.pool().acquire().await?, member.store()).await?;
            ask(member).await
        };
        patiently(asked).await.map_err(|error| match error {
            Error::NotFound { .. } => Problem::refused(job.refusal(&error.to_string())),
            error => Trouble::from(job.store(), &error).problem(),
        })
    }

    /// Asks every store, several at a time; the answers are in the order of names. Who does not answer in time, unless it may take any time, is told of
    /// beside those that could not be asked. What is wrong with the question is wrong for all, and is the error.
    pub(super) async fn ask<T, F>(&mut self, is_patient: bool, ask: impl Fn(Member) -> F) -> Result<Vec<(Member, T)>, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let asking = |member: Member| {
            let (asked, own) = (ask(member.clone()), member);
            async move {
                patiently(async { migrate::verify(&mut *own.pool().acquire().await?, own.store()).await }).await?;
                if is_patient { asked.await } else { patiently(asked).await }
            }
        };
        let mut answers = Vec::new();
        for of in self.stores.roster().each(asking).await {
            match of.answer {
                Ok(answer) => answers.push((of.member, answer)),
                Err(error @ (Error::OutOfRange { .. } | Error::InvalidName { .. })) => return Err(error.into()),
                Err(error) => self.failed.push(Trouble::from(of.member.name(), &error)),
            }
        }
        self.failed.sort_by(|one, other| one.store.cmp(&other.store));
        Ok(answers)
    }

    pub(super) async fn close(self) {
        let mut closing: JoinSet<()> = self.others.into_values().chain([self.home]).map(Database::close).collect();
        let _ = timeout(CLOSING, async { while closing.join_next().await.is_some() {} }).await;
        closing.detach_all();
    }
}

/// Who does not answer in time has failed. Only for what a drop half-way leaves as it was.
pub(super) async fn patiently<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

/// The same of what stands at home.
pub(super) async fn at_home<T>(settings: &Settings, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let homes = settings.stores.homes()?;
    patiently(asked).await.map_err(|error| match &error {
        Error::Database(sqlx::Error::PoolTimedOut) => Problem::failed(format!(
            "the home has not answered for ten seconds; see whether its server is well, and who has locked tables of the schema `{}`",
            homes.schema()
        )),
        Error::Database(sqlx::Error::Database(of_server)) if of_server.code().is_some_and(|code| ["42P01", "3F000"].contains(&&*code)) => {
            Problem::failed(format!(
                "the schema `{}` has no tables of placements, which list the stores; make them with `queue-worker stores migrate`, or name \
                 another schema: `--homes` (QUEUE_HOMES)",
                homes.schema()
            ))
        }
        _ => error.into(),
    })
}

/// The stores that stand at home.
pub(super) async fn records(settings: &Settings, stores: &Stores) -> Result<Vec<StoreRecord>, Problem> {
    at_home(settings, stores.records()).await
}

fn no_store(name: &str) -> Problem {
    Problem::refused(format!("there is no store `{name}`; `queue-worker stores list` shows those that there are"))
}

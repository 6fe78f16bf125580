//! Which stores there are: made known, closed, taken off, and the tables in which that stands.

use std::{process::ExitCode, time::Duration};

use queue_core::{
    Error, JobState, Store, check_name,
    migrate::{self, LATEST},
    operate,
    stores::{Member, StoreRecord},
};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use super::{
    open::{About, Opened, at_home, open_home, patiently, records},
    told::{Trouble, tell},
};
use crate::{
    cli::{
        act::confirm,
        migrate::versions,
        print,
        problem::{Problem, warn},
        settings::Settings,
        values::counted_jobs,
    },
    program,
};

/// A store that is not brought up to date in so long is left to the next try.
const LONGEST: Duration = Duration::from_mins(2);

/// What was done to a store's schema.
#[derive(Serialize)]
struct Migrated {
    store: String,
    schema: &'static str,
    applied: Vec<i32>,
}

/// `migrate`: the tables of placements, and, if that is wanted, those of all stores.
pub(super) async fn migrate(settings: &Settings, all: bool, as_json: bool) -> Result<ExitCode, Problem> {
    let mut opened = Opened::unread(settings, open_home(settings, false).await?)?;
    opened.reach(settings, |_| true).await?;
    // One that cannot be made keeps none from the others.
    let made = opened.stores.migrate().await;
    opened.records = match records(settings, &opened.stores).await {
        Ok(records) => records,
        // What kept them from being made is why they cannot be read.
        Err(problem) => return Err(made.err().map_or(problem, Problem::from)),
    };
    opened.meet(settings).await?;
    let homes = settings.stores.homes()?.schema();
    let lost: Vec<String> = opened.lost.iter().map(|(name, why)| format!("the database `{name}` is out of reach: {why}")).collect();
    let mut stores: Vec<Migrated> = Vec::new();
    if all {
        // One after the other: each has locks to wait for, and time to do so.
        for member in opened.stores.roster().all().iter() {
            match bring_up(member).await {
                Ok(applied) => stores.push(Migrated { store: member.name().to_owned(), schema: member.store().schema(), applied }),
                Err(error) => opened.failed.push(Trouble::from(member.name(), &error)),
            }
        }
    } else {
        opened.failed.clear();
    }
    if as_json {
        print::json(&json!({ "homes": homes, "version": LATEST, "stores": stores, "lost": lost, "failed": opened.failed }))?;
    } else {
        let told = stores.iter().map(|Migrated { store, schema, applied }| match applied.as_slice() {
            [] => format!("the store `{store}` in the schema `{schema}` is up to date at version {LATEST}"),
            applied => {
                format!("the store `{store}` in the schema `{schema}` is now at version {LATEST}; applied {}", versions(applied))
            }
        });
        let homes = format!("the schema `{homes}` has the tables of placements");
        print::lines(&std::iter::once(homes).chain(told).collect::<Vec<_>>().join("\n"))?;
    }
    let mut code = tell(&opened.failed, ExitCode::SUCCESS);
    if let Err(error) = made {
        code = Problem::from(error).report();
    }
    for lost in lost {
        code = Problem::failed(lost).report();
    }
    opened.close().await;
    Ok(code)
}

/// Brings its tables up to date. It has time to wait for locks, and no more of it than others behind it can spare.
pub(super) async fn bring_up(member: &Member) -> Result<Vec<i32>, Error> {
    let brought = async { migrate::migrate(&mut *member.pool().acquire().await?, member.store()).await };
    timeout(LONGEST, brought).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

/// `add`: a store that is there, or is made first.
pub(super) async fn add(
    settings: &Settings,
    (name, database, schema): (&str, &str, &str),
    is_made: bool,
    as_json: bool,
) -> Result<(), Problem> {
    if database.contains("://") {
        return Err(Problem::usage(
            "a database is named here by its name, and not by its address; say `--database NAME=URL` (QUEUE_DATABASES), and NAME here",
        ));
    }
    check_name("name of a store", name)?;
    check_name("name of a database", database)?;
    let store = Store::new(schema)?;
    if store == settings.stores.homes()? {
        return Err(Problem::usage(format!("the schema `{schema}` is that of placements; name one that holds jobs")));
    }
    let opened = Opened::to_write(settings, About::Database(database)).await?;
    let pool = opened.pool(settings, database)?;
    if let Some(other) =
        opened.records.iter().find(|record| record.name == name && (record.database != database || record.schema != schema))
    {
        let StoreRecord { database, schema, .. } = other;
        return Err(Problem::usage(format!(
            "the store `{name}` is the schema `{schema}` of the database `{database}`; give another store another name"
        )));
    }
    if let Some(other) = opened.records.iter().find(|record| record.name != name && record.database == database && record.schema == schema)
    {
        return Err(Problem::usage(format!("that schema is the store `{}` already; a store has one name", other.name)));
    }
    if is_made {
        opened.stores.migrate().await?;
    }
    // Looked at before it is made known: from then on tenants are put into it.
    let member = Member::new(name, pool, store)?;
    if is_made {
        bring_up(&member).await?;
    }
    check_is_there(&member, settings.stores.homes()?).await?;
    opened.stores.add(name, database, store).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "added": { "store": name, "database": database, "schema": schema } }));
    }
    print::lines(&format!("the store `{name}` takes new tenants; workers that tend to stores work on it within seconds"))
}

/// That it can be worked on, and that tenants can be enqueued for there.
async fn check_is_there(member: &Member, homes: Store) -> Result<(), Problem> {
    let mut connection = member.pool().acquire().await?;
    migrate::verify(&mut connection, member.store()).await.map_err(|error| match error {
        Error::NotMigrated { schema } => {
            Problem::failed(format!("the schema `{schema}` holds no job queue; say `--migrate`, and it is made first"))
        }
        error => error.into(),
    })?;
    let asked = sqlx::query_scalar("select pg_catalog.to_regclass($1) is not null").bind(format!("\"{}\".tenant", homes.schema()));
    let has_tenants: bool = asked.fetch_one(&mut *connection).await?;
    if has_tenants {
        return Ok(());
    }
    Err(Problem::failed(format!(
        "its database has no tables of placements in the schema `{}`; make them with `queue-worker stores migrate`, or say `--migrate`",
        homes.schema()
    )))
}

/// `close`: no new tenants come.
pub(super) async fn close(settings: &Settings, name: &str, as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_write(settings, About::Home).await?;
    let tenants = opened.record(name)?.tenants;
    opened.stores.close(name).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "closed": name, "tenants": tenants }));
    }
    let stay = match tenants {
        0 => "no tenant is in it".to_owned(),
        tenants => format!("its {tenants} tenants stay until `{} stores move` moves them", program::name()),
    };
    print::lines(&format!("the store `{name}` takes no new tenants; {stay}"))
}

/// `remove`: off the list, once no tenant is in it. Whoever left jobs in it is asked, since nobody works on them after that.
pub(super) async fn remove(settings: &Settings, name: &str, is_meant: bool, as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_write(settings, About::Stores(&[name])).await?;
    let tenants = opened.record(name)?.tenants;
    if tenants > 0 {
        return Err(Problem::refused(format!(
            "{tenants} tenants are in the store `{name}`; close it with `queue-worker stores close {name}`, and move them with \
             `queue-worker stores move KEY STORE`"
        )));
    }
    let leave = at_home(settings, opened.stores.moves()).await?.into_iter().filter(|moving| moving.from == name).count();
    if leave > 0 {
        return Err(Problem::refused(format!(
            "{leave} tenants are leaving the store `{name}`; wait until `queue-worker stores moves` shows none of them"
        )));
    }
    if !is_meant {
        match left(&opened, name).await {
            Ok((0, false)) => {}
            Ok((jobs, partial)) => {
                confirm(&format!("{} in it would have nobody to work on them", counted_jobs(jobs.unsigned_abs(), partial)), "say `--yes`")?;
            }
            Err(problem) => {
                warn(&problem.whole());
                confirm("it does not say whether jobs wait in it, and nobody would work on them", "say `--yes`")?;
            }
        }
    }
    opened.stores.remove(name).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "removed": name }));
    }
    print::lines(&format!("the store `{name}` is off the list; its tables stay as they are"))
}

/// How many jobs go on by themselves in a store, and whether there may be more.
async fn left(opened: &Opened, name: &str) -> Result<(i64, bool), Problem> {
    let member = opened.store(name).await?;
    let busiest = patiently(operate::busiest(member.pool(), member.store(), 1)).await?;
    let goes_on = |state| matches!(state, JobState::Blocked | JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Parked);
    let left = busiest.totals.iter().filter(|count| goes_on(count.state));
    Ok(left.fold((0, false), |(jobs, partial), count| (jobs + count.jobs, partial || count.partial)))
}

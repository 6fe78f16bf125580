//! `stores migrate`, `stores add`, `stores close` and `stores remove`: manage the stores.

use std::{process::ExitCode, time::Duration};

use queue_core::{
    Error, JobState, Store, check_name,
    migrate::{self, LATEST},
    stores::{Member, StoreRecord},
};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use super::{
    failures::{FailedStore, report_failures},
    open::{StoreScope, StoreSession, open_home, query_home, records, with_timeout},
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

/// Timeout for migrating a store. After a timeout, the next run of the same command continues the migration.
const MIGRATE_TIMEOUT: Duration = Duration::from_mins(2);

/// Migrations applied to a store, for the `--json` output.
#[derive(Serialize)]
struct Migrated {
    store: String,
    schema: &'static str,
    applied: Vec<i32>,
}

/// Runs `stores migrate`, which creates or updates the placement tables. With `--all`, also migrates the tables of all stores.
pub(super) async fn migrate(settings: &Settings, all: bool, as_json: bool) -> Result<ExitCode, Problem> {
    let mut opened = StoreSession::without_records(settings, open_home(settings, false).await?)?;
    opened.connect_databases(settings, |_| true).await?;
    // If the migration of one database fails, the other databases are still migrated. The error is reported at the end.
    let made = opened.stores.migrate().await;
    opened.records = match records(settings, &opened.stores).await {
        Ok(records) => records,
        // If the migration failed, its error is returned instead, because it explains why the records cannot be read.
        Err(problem) => return Err(made.err().map_or(problem, Problem::from)),
    };
    opened.load_roster(settings).await?;
    let homes = settings.stores.homes()?.schema();
    let lost: Vec<String> = opened.lost.iter().map(|(name, why)| format!("the database `{name}` is out of reach: {why}")).collect();
    let mut stores: Vec<Migrated> = Vec::new();
    if all {
        // The stores are migrated one after another, each with its own timeout, so that every migration has time to wait for its locks.
        for member in opened.stores.roster().all().iter() {
            match migrate_store(member).await {
                Ok(applied) => stores.push(Migrated { store: member.name().to_owned(), schema: member.store().schema(), applied }),
                Err(error) => opened.failed.push(FailedStore::from(member.name(), &error)),
            }
        }
    } else {
        opened.failed.clear();
    }
    if as_json {
        print::json(&json!({ "homes": homes, "version": LATEST, "stores": stores, "lost": lost, "failed": opened.failed }))?;
    } else {
        let lines = stores.iter().map(|Migrated { store, schema, applied }| match applied.as_slice() {
            [] => format!("the store `{store}` in the schema `{schema}` is up to date at version {LATEST}"),
            applied => {
                format!("the store `{store}` in the schema `{schema}` is now at version {LATEST}; applied {}", versions(applied))
            }
        });
        let homes = format!("the schema `{homes}` has the placement tables");
        print::lines(&std::iter::once(homes).chain(lines).collect::<Vec<_>>().join("\n"))?;
    }
    let mut code = report_failures(&opened.failed, ExitCode::SUCCESS);
    if let Err(error) = made {
        code = Problem::from(error).report();
    }
    for lost in lost {
        code = Problem::failed(lost).report();
    }
    opened.close().await;
    Ok(code)
}

/// Migrates a store's tables. A timeout limits how long locks in this store can delay the migration of the other stores.
pub(super) async fn migrate_store(member: &Member) -> Result<Vec<i32>, Error> {
    let brought = async { queue_core::migrate(member.pool(), member.store()).await };
    timeout(MIGRATE_TIMEOUT, brought).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

/// Runs `stores add`, which adds a store. With `--migrate`, first creates or updates the placement tables and the store's tables.
pub(super) async fn add(
    settings: &Settings,
    (name, database, schema): (&str, &str, &str),
    is_made: bool,
    as_json: bool,
) -> Result<(), Problem> {
    if database.contains("://") {
        return Err(Problem::usage(
            "the database must be given by name, not by URL; pass `--database NAME=URL` (QUEUE_DATABASES), and NAME here",
        ));
    }
    check_name("name of a store", name)?;
    check_name("name of a database", database)?;
    let store = Store::new(schema)?;
    if store == settings.stores.homes()? {
        return Err(Problem::usage(format!("the schema `{schema}` is that of the placement tables; name one for jobs")));
    }
    let opened = StoreSession::for_writing(settings, StoreScope::Database(database)).await?;
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
    // The store is checked before it is added, because a listed store takes tenants immediately.
    let member = Member::new(name, pool, store)?;
    if is_made {
        migrate_store(&member).await?;
    }
    check_usable(&member, settings.stores.homes()?).await?;
    opened.stores.add(name, database, store).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "added": { "store": name, "database": database, "schema": schema } }));
    }
    print::lines(&format!("the store `{name}` takes new tenants; `stores run` workers serve it within seconds"))
}

/// Checks that workers can serve the store, and that producers can enqueue jobs for its tenants.
async fn check_usable(member: &Member, homes: Store) -> Result<(), Problem> {
    let mut connection = member.pool().acquire().await?;
    migrate::verify(&mut connection, member.store()).await.map_err(|error| match error {
        Error::NotMigrated { schema } => {
            Problem::failed(format!("the schema `{schema}` holds no job queue; pass `--migrate` to create it first"))
        }
        error => error.into(),
    })?;
    let query = sqlx::query_scalar("select pg_catalog.to_regclass($1) is not null").bind(format!("\"{}\".leaving", homes.schema()));
    let has_tenants: bool = query.fetch_one(&mut *connection).await?;
    if has_tenants {
        return Ok(());
    }
    Err(Problem::failed(format!(
        "its database has no placement tables in the schema `{}`; create them with `queue-worker stores migrate`, or pass `--migrate`",
        homes.schema()
    )))
}

/// Runs `stores close`, which stops a store from taking new tenants.
pub(super) async fn close(settings: &Settings, name: &str, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_writing(settings, StoreScope::Home).await?;
    let tenants = opened.record(name)?.tenants;
    opened.stores.close(name).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "closed": name, "tenants": tenants }));
    }
    let stay = match tenants {
        0 => "it has no tenants".to_owned(),
        tenants => format!("its {tenants} tenants stay until they are moved with `{} stores drain {name}`", program::name()),
    };
    print::lines(&format!("the store `{name}` takes no new tenants; {stay}"))
}

/// Runs `stores remove`, which removes a store without tenants from the list of stores. Asks for confirmation if the store does not
/// respond, or if unfinished jobs remain, because no worker would run them. `is_meant` skips the confirmation.
pub(super) async fn remove(settings: &Settings, name: &str, is_meant: bool, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_writing(settings, StoreScope::Stores(&[name])).await?;
    let tenants = opened.record(name)?.tenants;
    if tenants > 0 {
        return Err(Problem::refused(format!(
            "{tenants} tenants are in the store `{name}`; move them to other stores with `queue-worker stores drain {name}`"
        )));
    }
    let leave = query_home(settings, opened.stores.moves()).await?.into_iter().filter(|moving| moving.from == name).count();
    if leave > 0 {
        return Err(Problem::refused(format!(
            "{leave} tenants are leaving the store `{name}`; wait until `queue-worker stores moves` shows none of them"
        )));
    }
    if !is_meant {
        match count_left(&opened, name).await {
            Ok((0, false)) => {}
            Ok((jobs, partial)) => {
                confirm(&format!("{} in it would have no worker", counted_jobs(jobs.unsigned_abs(), partial)), "pass `--yes`")?;
            }
            Err(problem) => {
                warn(&problem.text_with_fix());
                confirm("the store does not answer whether jobs wait in it, and no worker would run them", "pass `--yes`")?;
            }
        }
    }
    opened.stores.remove(name).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "removed": name }));
    }
    print::lines(&format!("the store `{name}` is removed from the list; its tables stay"))
}

/// Returns the number of unfinished jobs in a store, and whether the number is a lower bound.
async fn count_left(opened: &StoreSession, name: &str) -> Result<(i64, bool), Problem> {
    let member = opened.store(name).await?;
    let busiest = with_timeout(member.queue().busiest(1)).await?;
    let goes_on = |state| matches!(state, JobState::Blocked | JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Parked);
    let left = busiest.totals.iter().filter(|count| goes_on(count.state));
    Ok(left.fold((0, false), |(jobs, partial), count| (jobs + count.jobs, partial || count.partial)))
}

//! Migrates a store's schema to the latest version. The table of applied migrations is in the store's schema, and never collides with the
//! tables of other migration tools.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    applied::{SchemaState, check_login, load_schema_state},
    citus,
    locks::{LOCK_TIMEOUT, RETRY_DELAY, is_locked, lock_holders_error},
    migration::{Migration, table_names},
    roles::revoke_defaults_sql,
};
use crate::{
    error::Error,
    schema::{Session, Store, in_transaction},
};

const MIGRATIONS: [Migration; 25] = [
    Migration::new(1, "jobs", include_str!("../../migrations/1_jobs.sql")),
    Migration::new(2, "days", include_str!("../../migrations/2_days.sql")),
    Migration::new(3, "keys", include_str!("../../migrations/3_keys.sql")),
    Migration::new(4, "unique", include_str!("../../migrations/4_unique.sql")),
    Migration::new(5, "capacity", include_str!("../../migrations/5_capacity.sql")),
    Migration::new(6, "enqueue", include_str!("../../migrations/6_enqueue.sql")),
    Migration::new(7, "results", include_str!("../../migrations/7_results.sql")),
    Migration::new(8, "control", include_str!("../../migrations/8_control.sql")),
    Migration::new(9, "history", include_str!("../../migrations/9_history.sql")),
    Migration::new(10, "figures", include_str!("../../migrations/10_figures.sql")),
    Migration::new(11, "doors", include_str!("../../migrations/11_doors.sql")),
    Migration::new(12, "pauses", include_str!("../../migrations/12_pauses.sql")),
    Migration::new(13, "schedules", include_str!("../../migrations/13_schedules.sql")),
    Migration::new(14, "expiry", include_str!("../../migrations/14_expiry.sql")),
    Migration::new(15, "limits", include_str!("../../migrations/15_limits.sql")),
    Migration::new(16, "fair_queues", include_str!("../../migrations/16_fair_queues.sql")),
    Migration::new(17, "keyed", include_str!("../../migrations/17_keyed.sql")),
    Migration::new(18, "tallies", include_str!("../../migrations/18_tallies.sql")),
    Migration::new(19, "why", include_str!("../../migrations/19_why.sql")),
    Migration::new(20, "audit", include_str!("../../migrations/20_audit.sql")),
    Migration::new(21, "logs", include_str!("../../migrations/21_logs.sql")),
    Migration::new(22, "durable", include_str!("../../migrations/22_durable.sql")),
    Migration::new(23, "children", include_str!("../../migrations/23_children.sql")),
    Migration::new(24, "gathers", include_str!("../../migrations/24_gathers.sql")),
    Migration::new(25, "flows", include_str!("../../migrations/25_flows.sql")),
];

/// Latest schema version that this release supports.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Minimum schema version that a release must support to use a store migrated by this release. A migration that removes or changes an
/// object in use raises this version. A migration that only adds objects does not.
pub const COMPATIBLE: i32 = LATEST;

/// Number of future days for which partitions are created.
pub const DAYS_AHEAD: i32 = 7;

/// Migration, with the time it was applied to the store.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, migrate};
///
/// for migration in migrate::status(&mut *pool.acquire().await?, Store::default()).await? {
///     println!("{} {}: {:?}", migration.version, migration.name, migration.applied_at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// Version number, starting at 1.
    pub version: i32,
    /// Short name of the migration, such as `jobs`.
    pub name: String,
    /// Time the migration was applied, according to the database clock. `None` if the migration is not applied.
    pub applied_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// Maximum number of retries after another session has created the store concurrently.
const MAX_CREATE_CONFLICTS: u32 = 5;

/// Maximum time for retrying a blocked migration.
pub(crate) const MAX_LOCK_RETRY: Duration = Duration::from_mins(1);

/// Migrates like [`migrate()`](crate::migrate()), but also applies the migrations in `later`. Retries a blocked migration for up to
/// `patience`. Tests use this function to migrate a store that is in use.
#[doc(hidden)]
pub async fn migrate_with(connection: &mut PgConnection, store: Store, later: &[Migration], patience: Duration) -> Result<Vec<i32>, Error> {
    let migrations = [&MIGRATIONS, later].concat();
    let (in_caller_transaction, began) = (in_transaction(connection).await?, Instant::now());
    let (mut fresh, mut conflicts) = (Vec::new(), 0);
    loop {
        match run_step(connection, store, &migrations, in_caller_transaction).await {
            Ok(MigrationStep { done, more }) => {
                fresh.extend(done);
                if !more {
                    break;
                }
            }
            // Another session may have created the store concurrently. The next iteration loads the applied migrations and applies the
            // missing ones.
            Err(Error::Database(error)) if is_created_concurrently(&error) && conflicts < MAX_CREATE_CONFLICTS => conflicts += 1,
            // If a name conflict persists, the existing object does not belong to the store.
            Err(Error::Database(sqlx::Error::Database(error))) if is_name_conflict(&*error) => {
                let why = format!("it contains an object with the name of one of the store's: {}", error.message());
                return Err(Error::ForeignSchema { schema: store.schema().to_owned(), why });
            }
            Err(Error::Database(error)) if is_locked(&error) && !in_caller_transaction => {
                if began.elapsed() > patience {
                    return Err(lock_holders_error(connection, store, began.elapsed()).await.unwrap_or(Error::Database(error)));
                }
                tracing::debug!(schema = store.schema(), "migration blocked by a lock of another session; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(fresh)
}

/// Migrations applied by one transaction, and whether more migrations remain.
struct MigrationStep {
    done: Vec<i32>,
    more: bool,
}

async fn run_step(
    connection: &mut PgConnection,
    store: Store,
    migrations: &[Migration],
    in_caller_transaction: bool,
) -> Result<MigrationStep, Error> {
    // `sqlx`'s `begin` is not used, because it leaves the connection in a transaction if this future is dropped midway.
    let mut session = Session::on(connection).await?;
    // The savepoint keeps the caller's own transaction usable after an error.
    sqlx::raw_sql("savepoint queue_migrate").execute(session.connection()).await?;
    match apply(session.connection(), store, migrations, in_caller_transaction).await {
        Ok(step) => {
            session.commit().await?;
            Ok(step)
        }
        Err(error) => {
            // The rollback fails only if the connection is lost. In that case, there is nothing to roll back.
            let _ = sqlx::raw_sql("rollback to savepoint queue_migrate").execute(session.connection()).await;
            session.roll_back().await;
            Err(error)
        }
    }
}

async fn apply(tx: &mut PgConnection, store: Store, migrations: &[Migration], in_caller_transaction: bool) -> Result<MigrationStep, Error> {
    // The search path is overridden, because `now()` in a column default could resolve to a function other than `pg_catalog.now()`. The
    // settings are saved first and are restored explicitly, because the caller may be in a transaction.
    let before: Vec<String> = sqlx::query_scalar(CURRENT_VALUES).bind(&SETTINGS[..]).fetch_all(&mut *tx).await?;
    sqlx::query(SET_LOCAL).bind("search_path").bind("pg_catalog, pg_temp").execute(&mut *tx).await?;
    if citus::is_distributed(tx, store).await? {
        // The role is set before the first query on the store's tables, because a Citus cluster rejects changes to a table that the same
        // transaction has already read as a different user.
        sqlx::query(ASSUME_OWNER).bind(store.schema()).execute(&mut *tx).await?;
    }
    let found = load_exclusively(tx, store, migrations).await?;
    let is_fresh = found.is_empty();
    let is_distributed = citus::is_distributed(tx, store).await?;
    if is_distributed && found.len() < migrations.len() {
        citus::prepare(tx, store).await?;
    }
    let missing: Vec<&Migration> = migrations.iter().filter(|migration| !found.contains(&migration.version)).collect();
    let (mut done, all) = (Vec::new(), missing.len());
    for migration in missing.into_iter().take(if is_fresh || in_caller_transaction { all } else { 1 }) {
        if !is_fresh {
            sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *tx).await?;
        }
        if is_distributed {
            citus::apply(tx, store.text(migration.sql)).await?;
        } else {
            sqlx::raw_sql(store.text(migration.sql)).execute(&mut *tx).await?;
        }
        sqlx::query(store.sql("insert into queue.migration (version, name, hash, compatible) values ($1, $2, $3, $4)"))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.hash())
            .bind(COMPATIBLE)
            .execute(&mut *tx)
            .await?;
        done.push(migration.version);
    }
    if !done.is_empty() && is_distributed {
        citus::finish(tx, store, is_fresh).await?;
        citus::apply(tx, &revoke_defaults_sql(store)).await?;
    } else if !done.is_empty() {
        sqlx::raw_sql(AssertSqlSafe(revoke_defaults_sql(store))).execute(&mut *tx).await?;
    }
    let more = done.len() < all;
    if is_fresh && all > 0 {
        sqlx::query(store.sql("select queue.add_days($1)")).bind(DAYS_AHEAD).execute(&mut *tx).await?;
    }
    for (name, value) in SETTINGS.into_iter().zip(before) {
        sqlx::query(SET_LOCAL).bind(name).bind(value).execute(&mut *tx).await?;
    }
    sqlx::raw_sql("release savepoint queue_migrate").execute(tx).await?;
    Ok(MigrationStep { done, more })
}

/// Returns the applied migrations. If migrations are missing, also assumes the owner's role and locks the migration table until the
/// transaction ends. The lock excludes concurrent migrations. An advisory lock is not used, because any role could take it. For a new
/// store, creating the schema and the table excludes other migrations.
async fn load_exclusively(tx: &mut PgConnection, store: Store, migrations: &[Migration]) -> Result<Vec<i32>, Error> {
    match load_schema_state(tx, store, migrations).await? {
        SchemaState::Absent => {
            sqlx::raw_sql(AssertSqlSafe(create_schema(store))).execute(&mut *tx).await?;
            sqlx::query(ASSUME_OWNER).bind(store.schema()).execute(&mut *tx).await?;
            sqlx::raw_sql(store.text(BOOTSTRAP)).execute(&mut *tx).await?;
            Ok(Vec::new())
        }
        SchemaState::Versions(found) if migrations.iter().all(|migration| found.contains(&migration.version)) => Ok(found),
        SchemaState::Versions(_) => {
            sqlx::query(ASSUME_OWNER).bind(store.schema()).execute(&mut *tx).await?;
            // No lock timeout is set, because the holder of the lock is migrating the same store. The caller's own `lock_timeout` still
            // applies.
            sqlx::raw_sql(store.text("lock table queue.migration in share row exclusive mode")).execute(&mut *tx).await?;
            match load_schema_state(tx, store, migrations).await? {
                SchemaState::Versions(found) => Ok(found),
                SchemaState::Absent => Ok(Vec::new()),
            }
        }
    }
}

/// Settings that a migration overrides and then restores.
const SETTINGS: [&str; 3] = ["search_path", "lock_timeout", "role"];
const CURRENT_VALUES: &str = "
select pg_catalog.current_setting(s.name)
from pg_catalog.unnest($1) with ordinality s (name, place)
order by s.place";

/// Statement that assumes the role of the schema's owner, if the current role may assume it. All objects then belong to the owner,
/// regardless of which member of the owner's role migrates. Since PostgreSQL 16, the membership must have the `SET` option.
const ASSUME_OWNER: &str = "
select pg_catalog.set_config('role', o.name, true)
from (select pg_catalog.pg_get_userbyid(n.nspowner) as name from pg_catalog.pg_namespace n where n.nspname operator(pg_catalog.=) $1::name) o
where o.name operator(pg_catalog.<>) current_user
  and pg_catalog.pg_has_role(o.name,
    case when pg_catalog.current_setting('server_version_num')::int operator(pg_catalog.>=) 160000 then 'SET' else 'MEMBER' end)";

const SET_LOCAL: &str = "select pg_catalog.set_config($1, $2, true)";

/// Returns whether the error may mean that another session has just created the schema or one of its tables.
fn is_created_concurrently(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "23505" || code == "42P06" || code == "42P07")
}

/// Returns whether the error reports that a relation, function, type or constraint of the same name already exists.
fn is_name_conflict(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().is_some_and(|code| ["42P07", "42723", "42710"].contains(&&*code))
}

/// Returns all migrations of this release and the applied migrations of newer releases, with the time each migration was applied.
///
/// # Errors
/// Returns the errors of [`migrate()`](crate::migrate()).
pub async fn status(connection: &mut PgConnection, store: Store) -> Result<Vec<MigrationStatus>, Error> {
    let mut found: Vec<MigrationStatus> = Vec::new();
    if let SchemaState::Versions(_) = load_schema_state(connection, store, &MIGRATIONS).await? {
        let rows = sqlx::query_as(store.sql("select version, name, applied_at from queue.migration order by version"));
        for (version, name, applied_at) in rows.fetch_all(&mut *connection).await? {
            found.push(MigrationStatus { version, name, applied_at: Some(applied_at) });
        }
    }
    let missing: Vec<&Migration> = MIGRATIONS.iter().filter(|known| found.iter().all(|found| found.version != known.version)).collect();
    found.extend(missing.into_iter().map(|m| MigrationStatus { version: m.version, name: m.name.to_owned(), applied_at: None }));
    found.sort_by_key(|migration| migration.version);
    Ok(found)
}

/// Checks that this release can work on the store. The store must have this release's version, or a newer, compatible version.
///
/// # Errors
/// Returns [`Error::NotMigrated`] if there is no store, [`Error::OlderSchema`] if the store is older, and [`Error::NewerSchema`] if the
/// store is newer and not compatible. Returns [`Error::ChangedMigration`] if an applied migration differs, and [`Error::ForeignSchema`]
/// if the schema belongs to other software. Returns [`Error::Encoding`] if the database encoding is not UTF-8, [`Error::NoRights`] if the
/// login lacks privileges, and [`Error::RowSecurity`] if rows are hidden from the login.
pub async fn verify(connection: &mut PgConnection, store: Store) -> Result<(), Error> {
    let schema = store.schema().to_owned();
    match load_schema_state(connection, store, &MIGRATIONS).await? {
        SchemaState::Absent => Err(Error::NotMigrated { schema }),
        SchemaState::Versions(versions) => match versions.last().copied() {
            None => Err(Error::NotMigrated { schema }),
            Some(found) if found < LATEST => Err(Error::OlderSchema { schema, found, known: LATEST }),
            Some(_) => Ok(()),
        },
    }
}

/// Checks that a worker's login may access the store. Called when the worker starts and regularly afterwards, because privileges may
/// change while the worker runs. The check reads only system catalogs.
///
/// # Errors
/// Returns [`Error::Encoding`], [`Error::NoRights`] or [`Error::RowSecurity`], as for [`verify`].
#[doc(hidden)]
pub async fn verify_worker(connection: &mut PgConnection, store: Store) -> Result<(), Error> {
    check_login(connection, store, &MIGRATIONS, true).await
}

/// Returns the names of a store's tables, without their partitions.
pub(crate) fn tables() -> Vec<&'static str> {
    table_names(&MIGRATIONS)
}

/// Returns the complete SQL of a new store, for users who apply it with other tools. The SQL also records the migrations as applied, so
/// that a later [`migrate()`](crate::migrate()) finds nothing to do.
pub fn print(store: Store) -> String {
    let (schema, bootstrap) = (create_schema(store), store.text(BOOTSTRAP));
    let mut text = format!("begin;\nset local search_path = pg_catalog, pg_temp;\n{CHECK_ENCODING}\n{schema};\n{bootstrap}");
    for migration in &MIGRATIONS {
        let (version, name) = (migration.version, migration.name);
        let record = store.text("insert into queue.migration (version, name, hash, compatible) values");
        let hash = migration.hash();
        let sql = store.text(migration.sql);
        text = format!("{text}\n-- Migration {version}: {name}\n\n{sql}\n{record} ({version}, '{name}', {hash}, {COMPATIBLE});\n");
    }
    text + "\n" + &revoke_defaults_sql(store) + store.text("\nselect queue.add_days(7);\n\ncommit;\n")
}

const CHECK_ENCODING: &str = "
do $$
begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'a store requires a database with the encoding UTF8' using errcode = '22023';
  end if;
end
$$;
";

const BOOTSTRAP: &str = "
create table if not exists queue.migration (
  version     integer     not null,
  name        text        not null,
  hash        bigint      not null,
  compatible  integer     not null,
  applied_at  timestamptz not null default now(),
  constraint migration_applied_at_in_range check (applied_at >= '1970-01-01+00' and applied_at < '10000-01-01+00'),
  constraint migration_pkey primary key (version)
);
";

fn create_schema(store: Store) -> String {
    format!("create schema if not exists \"{}\"", store.schema())
}

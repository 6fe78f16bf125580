//! Brings a store's schema up to date. Our own table of migrations lives in our schema, so that it never meets the user's.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    applied::{Applied, applied, check_login},
    citus,
    locks::{LOCK_TIMEOUT, PAUSE, in_the_way, is_locked},
    migration::{Migration, tables_of},
    roles::closed,
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
    Migration::new(16, "lines", include_str!("../../migrations/16_lines.sql")),
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

/// The newest version that this release knows.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The compatibility number that this release writes: releases that know this version work on with a store that this one has migrated. It is
/// raised by a migration that takes away or changes what they use; one that only adds leaves it.
pub const COMPATIBLE: i32 = LATEST;

/// How many days ahead partitions are made.
pub const DAYS_AHEAD: i32 = 7;

/// A migration and whether the store has it.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// Its number, from 1.
    pub version: i32,
    /// What it is about.
    pub name: String,
    /// When it was applied, by the database's clock; `None` if it was not.
    pub applied_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// How often it is tried to make a store that somebody else has made meanwhile.
const MEETINGS: u32 = 5;

/// How long it is tried.
const PATIENCE: Duration = Duration::from_mins(1);

/// Applies what is missing; returns the versions applied. Any number of processes may call it at once: one works, the others wait and find
/// nothing to do. A fresh store is made in one transaction. On a store in use each migration is one, which waits 50 ms at most for a lock, and is
/// tried again for a minute. In a transaction of the caller's all of it is part of that, and nothing is tried again.
///
/// # Errors
/// [`Error::Encoding`], [`Error::NoRights`], [`Error::RowSecurity`], [`Error::NewerSchema`], [`Error::ChangedMigration`], [`Error::ForeignSchema`],
/// [`Error::SchemaInUse`], or the database's error. After an error
/// the migration that failed has changed nothing.
pub async fn migrate(connection: &mut PgConnection, store: Store) -> Result<Vec<i32>, Error> {
    migrate_with(connection, store, &[], PATIENCE).await
}

/// As [`migrate`], with later migrations too and with this patience, for tests of what a migration does to a store in use.
#[doc(hidden)]
pub async fn migrate_with(connection: &mut PgConnection, store: Store, later: &[Migration], patience: Duration) -> Result<Vec<i32>, Error> {
    let known = [&MIGRATIONS, later].concat();
    let (lent, began) = (in_transaction(connection).await?, Instant::now());
    let (mut fresh, mut met) = (Vec::new(), 0);
    loop {
        match one_step(connection, store, &known, lent).await {
            Ok(Step { done, more }) => {
                fresh.extend(done);
                if !more {
                    break;
                }
            }
            // Somebody else has made the store while we did: then there is nothing to do.
            Err(Error::Database(error)) if is_there(&error) && met < MEETINGS => met += 1,
            // Nobody has made the store: what is in the way is somebody else's.
            Err(Error::Database(sqlx::Error::Database(error))) if is_taken(&*error) => {
                let why = format!("it has something of the same name as a part of a store: {}", error.message());
                return Err(Error::ForeignSchema { schema: store.schema().to_owned(), why });
            }
            Err(Error::Database(error)) if is_locked(&error) && !lent => {
                if began.elapsed() > patience {
                    return Err(in_the_way(connection, store, began.elapsed()).await.unwrap_or(Error::Database(error)));
                }
                tracing::debug!(schema = store.schema(), "a migration waits until nobody else holds a lock that it needs");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(fresh)
}

/// What one transaction has applied, and whether there is more.
struct Step {
    done: Vec<i32>,
    more: bool,
}

async fn one_step(connection: &mut PgConnection, store: Store, known: &[Migration], lent: bool) -> Result<Step, Error> {
    // Not the driver's `begin`, which leaves its connection in a transaction when this future is dropped half-way.
    let mut session = Session::on(connection).await?;
    // After an error the caller's own transaction, if there is one, is as it was.
    sqlx::raw_sql("savepoint queue_migrate").execute(session.connection()).await?;
    match apply(session.connection(), store, known, lent).await {
        Ok(step) => {
            session.commit().await?;
            Ok(step)
        }
        Err(error) => {
            // Fails with its connection only, and then there is nothing to undo.
            let _ = sqlx::raw_sql("rollback to savepoint queue_migrate").execute(session.connection()).await;
            session.roll_back().await;
            Err(error)
        }
    }
}

async fn apply(tx: &mut PgConnection, store: Store, known: &[Migration], lent: bool) -> Result<Step, Error> {
    // Or a default `now()` would be whatever the caller's search_path finds first. Put back by hand: the caller may be in a transaction.
    let before: Vec<String> = sqlx::query_scalar(BEFORE).bind(&SETTINGS[..]).fetch_all(&mut *tx).await?;
    sqlx::query(SET).bind("search_path").bind("pg_catalog, pg_temp").execute(&mut *tx).await?;
    if citus::is_distributed(tx, store).await? {
        // From the first look on: a cluster changes no table in a transaction that has read it as two users.
        sqlx::query(AS_OWNER).bind(store.schema()).execute(&mut *tx).await?;
    }
    let found = found_alone(tx, store, known).await?;
    let is_fresh = found.is_empty();
    let is_distributed = citus::is_distributed(tx, store).await?;
    if is_distributed && found.len() < known.len() {
        citus::prepare(tx, store).await?;
    }
    let missing: Vec<&Migration> = known.iter().filter(|migration| !found.contains(&migration.version)).collect();
    let (mut done, all) = (Vec::new(), missing.len());
    for migration in missing.into_iter().take(if is_fresh || lent { all } else { 1 }) {
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
        citus::apply(tx, &closed(store)).await?;
    } else if !done.is_empty() {
        sqlx::raw_sql(AssertSqlSafe(closed(store))).execute(&mut *tx).await?;
    }
    let more = done.len() < all;
    if is_fresh && all > 0 {
        sqlx::query(store.sql("select queue.add_days($1)")).bind(DAYS_AHEAD).execute(&mut *tx).await?;
    }
    for (name, value) in SETTINGS.into_iter().zip(before) {
        sqlx::query(SET).bind(name).bind(value).execute(&mut *tx).await?;
    }
    sqlx::raw_sql("release savepoint queue_migrate").execute(tx).await?;
    Ok(Step { done, more })
}

/// The migrations that the store has; if some are missing, we are its owner, and nobody else will apply one before our transaction ends. By the
/// table's lock, for which one needs a right to the table: anybody could hold an advisory lock. A fresh store's schema or table is made by one, and
/// is there to the others.
async fn found_alone(tx: &mut PgConnection, store: Store, known: &[Migration]) -> Result<Vec<i32>, Error> {
    match applied(tx, store, known).await? {
        Applied::Absent => {
            sqlx::raw_sql(AssertSqlSafe(create_schema(store))).execute(&mut *tx).await?;
            sqlx::query(AS_OWNER).bind(store.schema()).execute(&mut *tx).await?;
            sqlx::raw_sql(store.text(BOOTSTRAP)).execute(&mut *tx).await?;
            Ok(Vec::new())
        }
        Applied::Versions(found) if known.iter().all(|migration| found.contains(&migration.version)) => Ok(found),
        Applied::Versions(_) => {
            sqlx::query(AS_OWNER).bind(store.schema()).execute(&mut *tx).await?;
            // Waited for as long as the caller's lock_timeout says: whoever has it migrates this store.
            sqlx::raw_sql(store.text("lock table queue.migration in share row exclusive mode")).execute(&mut *tx).await?;
            match applied(tx, store, known).await? {
                Applied::Versions(found) => Ok(found),
                Applied::Absent => Ok(Vec::new()),
            }
        }
    }
}

/// What a migration sets for itself, and how it was before.
const SETTINGS: [&str; 3] = ["search_path", "lock_timeout", "role"];
const BEFORE: &str = "
select pg_catalog.current_setting(s.name)
from pg_catalog.unnest($1) with ordinality s (name, place)
order by s.place";

/// Takes the role of the schema's owner, if that is another one that may be taken: then all that is made is the owner's, whoever migrates. From
/// version 16 on not every member may.
const AS_OWNER: &str = "
select pg_catalog.set_config('role', o.name, true)
from (select pg_catalog.pg_get_userbyid(n.nspowner) as name from pg_catalog.pg_namespace n where n.nspname operator(pg_catalog.=) $1::name) o
where o.name operator(pg_catalog.<>) current_user
  and pg_catalog.pg_has_role(o.name,
    case when pg_catalog.current_setting('server_version_num')::int operator(pg_catalog.>=) 160000 then 'SET' else 'MEMBER' end)";

const SET: &str = "select pg_catalog.set_config($1, $2, true)";

/// A schema, or a table, that was not there when we looked.
fn is_there(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "23505" || code == "42P06" || code == "42P07")
}

/// A relation, function, type or constraint that stands where one of ours is to be.
fn is_taken(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().is_some_and(|code| ["42P07", "42723", "42710"].contains(&&*code))
}

/// Each migration of this release, and when the store got it; then those of newer releases that the store has.
///
/// # Errors
/// As [`migrate`].
pub async fn status(connection: &mut PgConnection, store: Store) -> Result<Vec<MigrationStatus>, Error> {
    let mut found: Vec<MigrationStatus> = Vec::new();
    if let Applied::Versions(_) = applied(connection, store, &MIGRATIONS).await? {
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

/// Checks that this release can work on the store: it is at this release's version, or at a newer one that is compatible with it.
///
/// # Errors
/// [`Error::NotMigrated`] when there is none, [`Error::OlderSchema`] when it is older, [`Error::NewerSchema`] when it is newer and not compatible,
/// [`Error::ChangedMigration`] and [`Error::ForeignSchema`] when it is none of ours; [`Error::Encoding`], [`Error::NoRights`] and
/// [`Error::RowSecurity`] when the database cannot hold one, does not let this login in, or hides rows from it.
pub async fn verify(connection: &mut PgConnection, store: Store) -> Result<(), Error> {
    let schema = store.schema().to_owned();
    match applied(connection, store, &MIGRATIONS).await? {
        Applied::Absent => Err(Error::NotMigrated { schema }),
        Applied::Versions(versions) => match versions.last().copied() {
            None => Err(Error::NotMigrated { schema }),
            Some(found) if found < LATEST => Err(Error::OlderSchema { schema, found, known: LATEST }),
            Some(_) => Ok(()),
        },
    }
}

/// Checks that a worker's login may see and use the store, which may change while the worker runs. Reads catalogs alone.
///
/// # Errors
/// [`Error::Encoding`], [`Error::NoRights`] and [`Error::RowSecurity`], as [`verify`].
#[doc(hidden)]
pub async fn verify_worker(connection: &mut PgConnection, store: Store) -> Result<(), Error> {
    check_login(connection, store, &MIGRATIONS, true).await
}

/// The tables of a store, without their partitions.
pub(crate) fn tables() -> Vec<&'static str> {
    tables_of(&MIGRATIONS)
}

/// The whole SQL of a fresh store, for those who apply it by other means. It records itself: a later [`migrate`] finds nothing to do.
pub fn print(store: Store) -> String {
    let (schema, bootstrap) = (create_schema(store), store.text(BOOTSTRAP));
    let mut text = format!("begin;\nset local search_path = pg_catalog, pg_temp;\n{IN_UTF8}\n{schema};\n{bootstrap}");
    for migration in &MIGRATIONS {
        let (version, name) = (migration.version, migration.name);
        let record = store.text("insert into queue.migration (version, name, hash, compatible) values");
        let hash = migration.hash();
        let sql = store.text(migration.sql);
        text = format!("{text}\n-- Migration {version}: {name}\n\n{sql}\n{record} ({version}, '{name}', {hash}, {COMPATIBLE});\n");
    }
    text + "\n" + &closed(store) + store.text("\nselect queue.add_days(7);\n\ncommit;\n")
}

const IN_UTF8: &str = "
do $$
begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'a store needs a database whose encoding is UTF8' using errcode = '22023';
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

//! Brings a store's schema up to date. Our own table of migrations lives in our schema, so that it never meets the user's.

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::{
    error::Error,
    schema::{Session, Store},
};

/// One step of the schema. Its text is final once released: a change is a new migration.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 11] = [
    Migration { version: 1, name: "jobs", sql: include_str!("../../migrations/1_jobs.sql") },
    Migration { version: 2, name: "days", sql: include_str!("../../migrations/2_days.sql") },
    Migration { version: 3, name: "keys", sql: include_str!("../../migrations/3_keys.sql") },
    Migration { version: 4, name: "unique", sql: include_str!("../../migrations/4_unique.sql") },
    Migration { version: 5, name: "capacity", sql: include_str!("../../migrations/5_capacity.sql") },
    Migration { version: 6, name: "enqueue", sql: include_str!("../../migrations/6_enqueue.sql") },
    Migration { version: 7, name: "results", sql: include_str!("../../migrations/7_results.sql") },
    Migration { version: 8, name: "control", sql: include_str!("../../migrations/8_control.sql") },
    Migration { version: 9, name: "requeue", sql: include_str!("../../migrations/9_requeue.sql") },
    Migration { version: 10, name: "control_one", sql: include_str!("../../migrations/10_control_one.sql") },
    Migration { version: 11, name: "history", sql: include_str!("../../migrations/11_history.sql") },
];

/// The newest version that this release knows.
pub const LATEST: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// How many days ahead partitions are made.
pub const DAYS_AHEAD: i32 = 7;

/// A migration and whether the store has it.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// Its number, from 1.
    pub version: i32,
    /// What it is about.
    pub name: &'static str,
    /// When it was applied, by the database's clock; `None` if it was not.
    pub applied_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// Applies what is missing, in one transaction; returns the versions applied. Any number of processes may call it at once: one works, the
/// others wait and find nothing to do.
///
/// # Errors
/// [`Error::NewerSchema`], [`Error::ChangedMigration`], or the database's error, after which nothing has changed.
pub async fn migrate(connection: &mut PgConnection, store: Store) -> Result<Vec<i32>, Error> {
    // Not the driver's `begin`, which leaves its connection in a transaction when this future is dropped half-way.
    let mut session = Session::on(connection).await?;
    // After an error the caller's own transaction, if there is one, is as it was.
    sqlx::raw_sql("savepoint queue_migrate").execute(session.connection()).await?;
    match apply(session.connection(), store).await {
        Ok(fresh) => {
            session.commit().await?;
            Ok(fresh)
        }
        Err(error) => {
            // Fails with its connection only, and then there is nothing to undo.
            let _ = sqlx::raw_sql("rollback to savepoint queue_migrate").execute(session.connection()).await;
            session.roll_back().await;
            Err(error)
        }
    }
}

async fn apply(tx: &mut PgConnection, store: Store) -> Result<Vec<i32>, Error> {
    // Or a default `now()` would be whatever the caller's search_path finds first. Put back by hand: the caller may be in a transaction.
    let path: String = sqlx::query_scalar("select pg_catalog.current_setting('search_path')").fetch_one(&mut *tx).await?;
    sqlx::query(SEARCH_PATH).bind("pg_catalog, pg_temp").execute(&mut *tx).await?;
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))").bind(store.text("queue.migrate")).execute(&mut *tx).await?;
    sqlx::raw_sql(AssertSqlSafe(create_schema(store))).execute(&mut *tx).await?;
    sqlx::raw_sql(store.text(BOOTSTRAP)).execute(&mut *tx).await?;
    let applied = check(tx, store).await?;
    let mut fresh = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)) {
        sqlx::raw_sql(store.text(migration.sql)).execute(&mut *tx).await?;
        sqlx::query(store.sql("insert into queue.migration (version, name, hash) values ($1, $2, $3)"))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.hash())
            .execute(&mut *tx)
            .await?;
        fresh.push(migration.version);
    }
    if !fresh.is_empty() {
        sqlx::query(store.sql("select queue.add_days($1)")).bind(DAYS_AHEAD).execute(&mut *tx).await?;
    }
    sqlx::query(SEARCH_PATH).bind(path).execute(&mut *tx).await?;
    sqlx::raw_sql("release savepoint queue_migrate").execute(tx).await?;
    Ok(fresh)
}

const SEARCH_PATH: &str = "select pg_catalog.set_config('search_path', $1, true)";

/// Each migration of this release, and when the store got it.
///
/// # Errors
/// As [`migrate`].
pub async fn status(connection: &mut PgConnection, store: Store) -> Result<Vec<MigrationStatus>, Error> {
    let mut found = Vec::new();
    if exists(connection, store).await? {
        check(connection, store).await?;
        let rows = sqlx::query(store.sql("select version, applied_at from queue.migration")).fetch_all(&mut *connection).await?;
        for row in rows {
            found.push((row.try_get::<i32, _>(0)?, row.try_get(1)?));
        }
    }
    let applied_at = |version| found.iter().find(|(other, _)| *other == version).map(|(_, at)| *at);
    Ok(MIGRATIONS.iter().map(|m| MigrationStatus { version: m.version, name: m.name, applied_at: applied_at(m.version) }).collect())
}

/// Checks that the store is at this release's version.
///
/// # Errors
/// [`Error::NotMigrated`] when it is older or absent, [`Error::NewerSchema`] when it is newer.
pub async fn verify(connection: &mut PgConnection, store: Store) -> Result<(), Error> {
    let current = status(connection, store).await?.iter().all(|migration| migration.applied_at.is_some());
    if current { Ok(()) } else { Err(Error::NotMigrated { schema: store.schema().to_owned() }) }
}

/// The whole SQL of a fresh store, for those who apply it by other means. It records itself: a later [`migrate`] finds nothing to do.
pub fn print(store: Store) -> String {
    let mut text = format!("begin;\nset local search_path = pg_catalog, pg_temp;\n\n{};\n{}", create_schema(store), store.text(BOOTSTRAP));
    for migration in &MIGRATIONS {
        let (version, name) = (migration.version, migration.name);
        let record = store.text("insert into queue.migration (version, name, hash) values");
        let hash = migration.hash();
        let sql = store.text(migration.sql);
        text = format!("{text}\n-- Migration {version}: {name}\n\n{sql}\n{record} ({version}, '{name}', {hash});\n");
    }
    text + store.text("\nselect queue.add_days(7);\n\ncommit;\n")
}

const BOOTSTRAP: &str = "
create table if not exists queue.migration (
  version     integer     not null,
  name        text        not null,
  hash        bigint      not null,
  applied_at  timestamptz not null default now(),
  constraint migration_pkey primary key (version)
);
";

fn create_schema(store: Store) -> String {
    format!("create schema if not exists \"{}\"", store.schema())
}

impl Migration {
    /// FNV-1a of the lines without their comments, which may be mended: tells that a file was edited after its release, no more.
    fn hash(&self) -> i64 {
        let code = self.sql.lines().filter_map(|line| line.split("--").next().map(str::trim_end)).filter(|line| !line.is_empty());
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        code.flat_map(|line| line.bytes().chain([b'\n'])).fold(0xcbf2_9ce4_8422_2325, step) as i64
    }
}

async fn exists(connection: &mut PgConnection, store: Store) -> Result<bool, Error> {
    let table = store.text("queue.migration");
    Ok(sqlx::query_scalar("select pg_catalog.to_regclass($1) is not null").bind(table).fetch_one(connection).await?)
}

/// The versions applied, each checked against this release's.
async fn check(connection: &mut PgConnection, store: Store) -> Result<Vec<i32>, Error> {
    let schema = || store.schema().to_owned();
    let rows = sqlx::query(store.sql("select version, hash from queue.migration order by version")).fetch_all(connection).await?;
    let mut versions = Vec::with_capacity(rows.len());
    for row in rows {
        let (version, hash): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        match MIGRATIONS.iter().find(|migration| migration.version == version) {
            None => return Err(Error::NewerSchema { schema: schema(), found: version, known: LATEST }),
            Some(known) if known.hash() != hash => return Err(Error::ChangedMigration { schema: schema(), version }),
            Some(_) => versions.push(version),
        }
    }
    Ok(versions)
}

//! Migrations that build indexes on a store in use: outside a transaction, one index at a time, each beside the work on its table.
//!
//! `create index concurrently` waits until older transactions have ended, and nobody waits for it meanwhile. What takes a stronger lock waits
//! 50 ms at most and is tried again. A run may end anywhere: the next one finds what is built, and builds again what was left unfinished.
//! Nothing is held between statements, so no run can lock out another: whoever builds an index holds a lock on its table, and what is unfinished
//! while that lock is to be had was left behind.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    locks::{LOCK_TIMEOUT, PAUSE, in_the_way, is_locked},
    migration::Migration,
    session::Session,
    store::Store,
};
use crate::error::Error;

/// One statement of such a migration.
#[derive(Debug, PartialEq)]
struct Statement<'s> {
    unique: bool,
    index: &'s str,
    table: &'s str,
    /// What is indexed: all that follows the table's name.
    what: &'s str,
}

/// The longest name of an index or a table: others are made of two, and the server cuts names at 63 bytes.
const LONGEST: usize = 24;

/// Reads a text that has nothing but such statements; else it is none for this.
fn statements(sql: &str) -> Option<Vec<Statement<'_>>> {
    let code = sql.split(';').map(without_comments);
    code.filter(|part| !part.is_empty()).map(statement).collect()
}

/// Comments stand on lines of their own, before a statement.
fn without_comments(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with("--") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    text.trim_end()
}

fn statement(text: &str) -> Option<Statement<'_>> {
    let (unique, rest) = match text.strip_prefix("create unique index concurrently ") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("create index concurrently ")?),
    };
    let (index, rest) = rest.split_once(" on queue.")?;
    let (table, what) = rest.split_once(char::is_whitespace)?;
    let is_name = |name: &str| {
        (1..=LONGEST).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    (is_name(index) && is_name(table)).then_some(Statement { unique, index, table, what })
}

/// Builds what the migration says. Gives up once others have been in the way of one step for so long.
pub(super) async fn build(connection: &mut PgConnection, store: Store, migration: &Migration, patience: Duration) -> Result<(), Error> {
    let Some(statements) = statements(migration.sql) else {
        let why = format!("migration {} has other statements than `create index concurrently name on queue.table ..`", migration.version);
        return Err(Error::Database(sqlx::Error::Protocol(why)));
    };
    let before: (String, String, String) = sqlx::query_as(SETTINGS).fetch_one(&mut *connection).await?;
    // Not for a transaction: a build is none. One that waits for a lock delays nobody.
    let longest = patience.as_millis().clamp(1, i32::MAX as u128);
    set(connection, ["pg_catalog, pg_temp", &format!("{longest}ms"), "0"]).await?;
    let mut builder = Builder { connection, store, began: Instant::now(), patience };
    let mut built = Ok(());
    for statement in statements {
        built = builder.build(&statement).await;
        if built.is_err() {
            break;
        }
    }
    // Whatever became of it; fails with the connection only.
    let restored = set(connection, [&before.0, &before.1, &before.2]).await;
    built.and(restored.map_err(Error::Database))
}

/// For a lock that no enqueue waits behind: long enough for an automatic vacuum to be told to give way (`deadlock_timeout`).
const YIELD_TIMEOUT: &str = "set local lock_timeout = '2s'";

const SETTINGS: &str = "select pg_catalog.current_setting('search_path'), pg_catalog.current_setting('lock_timeout'),
  pg_catalog.current_setting('statement_timeout')";

async fn set(connection: &mut PgConnection, [path, lock, statement]: [&str; 3]) -> sqlx::Result<()> {
    const SET: &str = "select pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('lock_timeout', $2, false),
      pg_catalog.set_config('statement_timeout', $3, false)";
    sqlx::query(SET).bind(path).bind(lock).bind(statement).execute(connection).await.map(drop)
}

struct Builder<'c> {
    connection: &'c mut PgConnection,
    store: Store,
    /// The step that is tried.
    began: Instant,
    patience: Duration,
}

/// What there is of an index.
enum State {
    Absent,
    /// Left unfinished by a run that has ended; out of the way under this name.
    Broken,
    Valid,
}

impl Builder<'_> {
    async fn build(&mut self, wanted: &Statement<'_>) -> Result<(), Error> {
        let is_partitioned: bool =
            sqlx::query_scalar(IS_PARTITIONED).bind(self.name(wanted.table)).fetch_one(&mut *self.connection).await?;
        if is_partitioned { self.each_partition(wanted).await } else { self.one(wanted, wanted.index, wanted.table).await }
    }

    /// Beside the work on a partitioned table no index can be built: each partition gets its own, and these are attached to one of the whole.
    async fn each_partition(&mut self, wanted: &Statement<'_>) -> Result<(), Error> {
        let (whole, table) = (self.name(wanted.index), self.name(wanted.table));
        // Partitions that come from now on have it when they are made.
        let create = create(wanted, "index if not exists", wanted.index, &format!("only {table}"));
        self.briefly(&create).await?;
        loop {
            let lacking: Vec<String> = sqlx::query_scalar(LACKING).bind(&table).bind(&whole).fetch_all(&mut *self.connection).await?;
            let Some(partition) = lacking.first() else { return Ok(()) };
            let index = format!("{partition}_{}", wanted.index);
            let attach = format!("alter index {whole} attach partition {}", self.name(&index));
            let built = match self.one(wanted, &index, partition).await {
                Ok(()) => self.briefly(&attach).await,
                Err(error) => Err(error),
            };
            match built {
                // A day that has gone meanwhile.
                Err(Error::Database(error)) if code(&error).as_deref() == Some("42P01") && self.has_time() => {}
                other => other?,
            }
        }
    }

    /// An index of a table that is no partitioned one.
    async fn one(&mut self, wanted: &Statement<'_>, index: &str, table: &str) -> Result<(), Error> {
        let create = create(wanted, "index concurrently", index, &self.name(table));
        loop {
            let (tried, is_build) = match self.look(index, table).await {
                Ok(State::Valid) => return Ok(()),
                Ok(State::Broken) => (self.drop_broken(index).await, true),
                Ok(State::Absent) => {
                    tracing::info!(schema = self.store.schema(), index, table, "building an index beside the work on its table");
                    (self.say(&create).await, true)
                }
                Err(error) => (Err(error), false),
            };
            self.put_off(tried, is_build).await?;
        }
    }

    /// What there is of the index, while nobody builds it. One that nobody goes on with is named otherwise, in the same transaction: nobody
    /// drops by mistake what others have begun anew.
    async fn look(&mut self, index: &str, table: &str) -> sqlx::Result<State> {
        let (name, table) = (self.name(index), self.name(table));
        let (schema, left) = (self.store.schema(), broken_like(index));
        let mut session = Session::on(self.connection).await?;
        let tx = session.connection();
        let lock = format!("{YIELD_TIMEOUT}; lock table only {table} in share update exclusive mode");
        let looked = async {
            sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *tx).await?;
            let found: Option<(bool, i64)> = sqlx::query_as(FOUND).bind(&name).bind(&table).fetch_optional(&mut *tx).await?;
            if let Some((false, oid)) = found {
                tracing::warn!(schema, index, "an earlier run left this index unfinished; it is dropped, and built again");
                let rename = format!("alter index {name} rename to \"{index}_broken_{oid}\"");
                sqlx::raw_sql(AssertSqlSafe(rename)).execute(&mut *tx).await?;
            }
            let is_left = !sqlx::query_scalar::<_, String>(BROKEN).bind(schema).bind(left).fetch_all(&mut *tx).await?.is_empty();
            Ok(match found {
                _ if is_left => State::Broken,
                Some(_) => State::Valid,
                None => State::Absent,
            })
        };
        let looked = looked.await;
        if looked.is_ok() {
            session.commit().await?;
        } else {
            session.roll_back().await;
        }
        looked
    }

    async fn drop_broken(&mut self, index: &str) -> sqlx::Result<()> {
        let broken: Vec<String> =
            sqlx::query_scalar(BROKEN).bind(self.store.schema()).bind(broken_like(index)).fetch_all(&mut *self.connection).await?;
        for name in broken {
            self.say(&format!("drop index concurrently if exists {}", self.name(&name))).await?;
        }
        Ok(())
    }

    /// A statement that others may have to wait for: it waits only a moment itself, again and again.
    async fn briefly(&mut self, statement: &str) -> Result<(), Error> {
        loop {
            let mut session = Session::on(self.connection).await?;
            let all = format!("{LOCK_TIMEOUT}; {statement}");
            let done = match sqlx::raw_sql(AssertSqlSafe(all)).execute(session.connection()).await {
                Ok(_) => session.commit().await,
                Err(error) => {
                    session.roll_back().await;
                    Err(error)
                }
            };
            let is_done = done.is_ok();
            self.put_off(done, false).await?;
            if is_done {
                return Ok(());
            }
        }
    }

    fn has_time(&self) -> bool {
        self.began.elapsed() < self.patience
    }

    /// Waits a moment if somebody is in the way and there is time left. After what was done there is as much of it again, and while another run
    /// builds: that ends by itself. A build of our own that was in vain has had its time.
    async fn put_off(&mut self, tried: sqlx::Result<()>, is_build: bool) -> Result<(), Error> {
        let Err(error) = tried else {
            self.began = Instant::now();
            return Ok(());
        };
        // Of two that begin at once, one finds the other's index.
        let is_passing = is_locked(&error) || code(&error).as_deref() == Some("42P07");
        if is_passing && !is_build && self.others_build().await? {
            self.began = Instant::now();
        }
        if is_passing && self.has_time() {
            tracing::debug!(schema = self.store.schema(), "an index waits until nobody else is in the way");
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        }
        if is_locked(&error) {
            return Err(in_the_way(self.connection, self.store, self.began.elapsed()).await.unwrap_or(Error::Database(error)));
        }
        Err(Error::Database(error))
    }

    /// Whether another run builds an index of this store: it ends by itself, and may take long.
    async fn others_build(&mut self) -> sqlx::Result<bool> {
        sqlx::query_scalar(BUILDING).bind(self.store.schema()).fetch_one(&mut *self.connection).await
    }

    async fn say(&mut self, statement: &str) -> sqlx::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *self.connection).await.map(drop)
    }

    /// With its schema, as SQL writes it.
    fn name(&self, name: &str) -> String {
        format!("\"{}\".\"{name}\"", self.store.schema())
    }
}

fn create(wanted: &Statement<'_>, kind: &str, index: &str, on: &str) -> String {
    let unique = if wanted.unique { "unique " } else { "" };
    format!("create {unique}{kind} \"{index}\" on {on} {}", wanted.what)
}

/// The names of what was left of an index, as a regular expression.
fn broken_like(index: &str) -> String {
    format!("^{index}_broken_[0-9]+$")
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).map(Into::into)
}

const IS_PARTITIONED: &str = "
select exists (
  select from pg_catalog.pg_partitioned_table p where p.partrelid operator(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid
)";

/// Partitions of a table whose index is no part of that of the whole.
const LACKING: &str = "
select c.relname::pg_catalog.text
from pg_catalog.pg_inherits h
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) h.inhrelid
where h.inhparent operator(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid
  and not exists (
    select
    from pg_catalog.pg_index i
    join pg_catalog.pg_inherits p on p.inhrelid operator(pg_catalog.=) i.indexrelid
    where i.indrelid operator(pg_catalog.=) c.oid
      and p.inhparent operator(pg_catalog.=) pg_catalog.to_regclass($2)::pg_catalog.oid
  )
order by 1";

/// The index of this name on this table.
const FOUND: &str = "
select i.indisvalid, i.indexrelid::pg_catalog.int8
from pg_catalog.pg_index i
where i.indexrelid operator(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid
  and i.indrelid operator(pg_catalog.=) pg_catalog.to_regclass($2)::pg_catalog.oid";

const BROKEN: &str = "
select c.relname::pg_catalog.text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
join pg_catalog.pg_index i on i.indexrelid operator(pg_catalog.=) c.oid
where n.nspname operator(pg_catalog.=) $1::pg_catalog.name
  and c.relname operator(pg_catalog.~) $2
  and not i.indisvalid";

const BUILDING: &str = "
select exists (
  select
  from pg_catalog.pg_stat_progress_create_index p
  join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) p.relid
  join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
  where n.nspname operator(pg_catalog.=) $1::pg_catalog.name
    and p.datname operator(pg_catalog.=) pg_catalog.current_database()
)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_nothing_but_such_statements_is_read() {
        let text = "-- concurrently\n-- Why.\ncreate index concurrently one on queue.job (id);\n\n-- Why.\n\
            create unique index concurrently two on queue.ready\n  (id) where lane > 0;\n";
        let want = [
            Statement { unique: false, index: "one", table: "job", what: "(id)" },
            Statement { unique: true, index: "two", table: "ready", what: "  (id) where lane > 0" },
        ];
        assert_eq!(statements(text), Some(Vec::from(want)));
    }

    #[test]
    fn any_other_text_is_refused() {
        for text in [
            "create index one on queue.job (id);",
            "create index concurrently on queue.job (id);",
            "create index concurrently one on job (id);",
            "create index concurrently one on queue.job (id); update queue.job set id = 1;",
        ] {
            assert_eq!(statements(text), None, "{text}");
        }
    }
}

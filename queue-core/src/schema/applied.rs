//! Which migrations a store has, and whether they are ours: of this release, of a newer one that it can work with, or of somebody else.

use sqlx::{PgConnection, Row as _};

use super::{migration::Migration, store::Store};
use crate::error::Error;

/// What a schema holds.
pub(super) enum Applied {
    /// Nothing of ours.
    Absent,
    /// A store with these migrations, in their order.
    Versions(Vec<i32>),
}

/// Those that the store has, each that is known here checked against it.
pub(super) async fn applied(connection: &mut PgConnection, store: Store, known: &[Migration]) -> Result<Applied, Error> {
    let schema = || store.schema().to_owned();
    let found: Database = sqlx::query_as(DATABASE).bind(store.schema()).fetch_one(&mut *connection).await?;
    found.check(store)?;
    let columns: Vec<String> = sqlx::query_scalar(COLUMNS).bind(store.text("queue.migration")).fetch_all(&mut *connection).await?;
    if columns.is_empty() {
        return Ok(Applied::Absent);
    }
    if !["version", "name", "hash", "compatible", "applied_at"].iter().all(|column| columns.iter().any(|found| found == column)) {
        return Err(Error::ForeignSchema { schema: schema(), why: "its table `migration` has other columns".to_owned() });
    }
    let rows =
        sqlx::query(store.sql("select version, hash, compatible from queue.migration order by version")).fetch_all(connection).await?;
    let latest = known.last().map_or(0, |migration| migration.version);
    let (mut versions, mut newest) = (Vec::with_capacity(rows.len()), None);
    for row in rows {
        let (version, hash, compatible): (i32, i64, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        versions.push(version);
        match known.iter().find(|migration| migration.version == version) {
            None if version <= latest => {
                return Err(Error::ForeignSchema { schema: schema(), why: format!("it has a migration {version}, which no release has") });
            }
            None if compatible > latest => {
                return Err(Error::NewerSchema { schema: schema(), found: version, compatible, known: latest });
            }
            None => newest = Some(version),
            Some(known) if known.hash() != hash => return Err(Error::ChangedMigration { schema: schema(), version }),
            Some(_) => {}
        }
    }
    if let (Some(newest), Some(missing)) = (newest, known.iter().find(|known| !versions.contains(&known.version))) {
        let why = format!("it has migration {newest}, but not {}, which comes before it", missing.version);
        return Err(Error::ForeignSchema { schema: schema(), why });
    }
    Ok(Applied::Versions(versions))
}

/// The database and the login, as far as a store depends on them.
#[derive(sqlx::FromRow)]
struct Database {
    encoding: String,
    login: String,
    is_let_in: bool,
    /// A role that has rights in the schema, and of which the login is a member without its rights.
    not_inherited: Option<String>,
    /// Tables of which row level security hides rows from this login.
    hidden: Vec<String>,
    version: i32,
}

impl Database {
    fn check(self, store: Store) -> Result<(), Error> {
        let (schema, login) = (store.schema().to_owned(), self.login);
        if self.encoding != "UTF8" {
            return Err(Error::Encoding { encoding: self.encoding });
        }
        if !self.is_let_in {
            let fix = match &self.not_inherited {
                Some(role) if self.version >= 160_000 => format!("grant \"{role}\" to \"{login}\" with inherit true"),
                Some(_) => format!("alter role \"{login}\" inherit"),
                None => format!("grant \"{schema}_worker\" to \"{login}\""),
            };
            return Err(Error::NoRights { schema, login, not_inherited: self.not_inherited, fix });
        }
        if !self.hidden.is_empty() {
            return Err(Error::RowSecurity { schema, tables: self.hidden });
        }
        Ok(())
    }
}

/// Of a schema that is not there nothing is wrong.
const DATABASE: &str = "
select pg_catalog.current_setting('server_encoding') as encoding,
  current_user::text as login,
  coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), true) as is_let_in,
  (
    select r.rolname::text
    from pg_catalog.pg_roles r
    where pg_catalog.has_schema_privilege(r.oid, n.oid, 'usage')
      and pg_catalog.pg_has_role(r.oid, 'member')
      and not pg_catalog.pg_has_role(r.oid, 'usage')
    order by r.rolname
    limit 1
  ) as not_inherited,
  array(
    select c.relname::text
    from pg_catalog.pg_class c
    where c.relnamespace operator(pg_catalog.=) n.oid
      and c.relrowsecurity
      and pg_catalog.row_security_active(c.oid)
    order by c.relname
  ) as hidden,
  pg_catalog.current_setting('server_version_num')::pg_catalog.int4 as version
from (select) one
left join pg_catalog.pg_namespace n on n.nspname operator(pg_catalog.=) $1::pg_catalog.name";

const COLUMNS: &str = "
select attname::text
from pg_catalog.pg_attribute
where attrelid operator(pg_catalog.=) pg_catalog.to_regclass($1)
  and attnum operator(pg_catalog.>) 0
  and not attisdropped";

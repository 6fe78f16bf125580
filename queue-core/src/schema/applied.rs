//! Loads the applied migrations of a store. Checks whether the migrations belong to this release, to a newer compatible release or to other
//! software.

use sqlx::{PgConnection, Row as _};

use super::{
    migration::{Migration, table_names},
    store::Store,
};
use crate::error::Error;

/// Result of inspecting a schema for a store.
pub(super) enum SchemaState {
    /// The schema contains no store.
    Absent,
    /// The schema contains a store with these migrations, in ascending order.
    Versions(Vec<i32>),
}

/// Loads the applied migrations and verifies their checksums.
pub(super) async fn load_schema_state(connection: &mut PgConnection, store: Store, migrations: &[Migration]) -> Result<SchemaState, Error> {
    let schema = || store.schema().to_owned();
    check_login(&mut *connection, store, migrations, false).await?;
    let columns: Vec<String> =
        sqlx::query_scalar(MIGRATION_COLUMNS).bind(store.text("queue.migration")).fetch_all(&mut *connection).await?;
    if columns.is_empty() {
        return Ok(SchemaState::Absent);
    }
    if !["version", "name", "hash", "compatible", "applied_at"].iter().all(|column| columns.iter().any(|found| found == column)) {
        return Err(Error::ForeignSchema { schema: schema(), why: "its table `migration` has unexpected columns".to_owned() });
    }
    let rows =
        sqlx::query(store.sql("select version, hash, compatible from queue.migration order by version")).fetch_all(connection).await?;
    let latest = migrations.last().map_or(0, |migration| migration.version);
    let (mut versions, mut newest) = (Vec::with_capacity(rows.len()), None);
    for row in rows {
        let (version, hash, compatible): (i32, i64, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        versions.push(version);
        match migrations.iter().find(|migration| migration.version == version) {
            None if version <= latest => {
                return Err(Error::ForeignSchema {
                    schema: schema(),
                    why: format!("it has migration {version}, which no release contains"),
                });
            }
            None if compatible > latest => {
                return Err(Error::NewerSchema { schema: schema(), found: version, compatible, known: latest });
            }
            None => newest = Some(version),
            Some(migration) if migration.hash() != hash => return Err(Error::ChangedMigration { schema: schema(), version }),
            Some(_) => {}
        }
    }
    if let (Some(newest), Some(missing)) = (newest, migrations.iter().find(|migration| !versions.contains(&migration.version))) {
        let why = format!("it has migration {newest}, but not the earlier migration {}", missing.version);
        return Err(Error::ForeignSchema { schema: schema(), why });
    }
    Ok(SchemaState::Versions(versions))
}

/// Checks the database and the login. If `is_worker` is true, also checks the privileges that only workers need. The check reads only
/// system catalogs, and therefore does not wait for locks on tables of the store.
pub(super) async fn check_login(
    connection: &mut PgConnection,
    store: Store,
    migrations: &[Migration],
    is_worker: bool,
) -> Result<(), Error> {
    let found = sqlx::query_as::<_, LoginFacts>(LOGIN_FACTS).bind(store.schema()).bind(table_names(migrations)).bind(is_worker);
    found.fetch_one(connection).await?.check(store)
}

/// Properties of the database and of the login that [`check_login`] checks.
#[derive(sqlx::FromRow)]
struct LoginFacts {
    encoding: String,
    login: String,
    /// Whether the login has the required privileges: `USAGE` on the schema and, for a worker, `INSERT` on the lease table.
    has_privileges: bool,
    /// Roles that have the required privileges and to which the login belongs, but whose privileges the login does not inherit.
    not_inherited: Vec<String>,
    /// Tables whose row-level security hides rows from the login.
    hidden: Vec<String>,
    version: i32,
}

impl LoginFacts {
    fn check(self, store: Store) -> Result<(), Error> {
        let (schema, login) = (store.schema().to_owned(), self.login);
        if self.encoding != "UTF8" {
            return Err(Error::Encoding { encoding: self.encoding });
        }
        if !self.has_privileges {
            let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
            let (to, roles) = (quoted(&login), self.not_inherited.iter().map(|role| quoted(role)).collect::<Vec<_>>().join(", "));
            let fix = match self.version {
                _ if roles.is_empty() => format!("grant {} to {to}", quoted(&format!("{schema}_worker"))),
                160_000.. => format!("grant {roles} to {to} with inherit true"),
                _ => format!("alter role {to} inherit"),
            };
            return Err(Error::NoRights { schema, login, not_inherited: self.not_inherited, fix });
        }
        if !self.hidden.is_empty() {
            return Err(Error::RowSecurity { schema, tables: self.hidden });
        }
        Ok(())
    }
}

/// Query for [`LoginFacts`]. A schema that does not exist passes the checks of privileges and row-level security.
const LOGIN_FACTS: &str = "
select pg_catalog.current_setting('server_encoding') as encoding,
  current_user::pg_catalog.text as login,
  coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage') and (t.oid is null or pg_catalog.has_table_privilege(t.oid, 'insert')), true) as has_privileges,
  array(
    select r.rolname::pg_catalog.text
    from pg_catalog.pg_auth_members m
    join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) m.roleid
    where m.member operator(pg_catalog.=) (select u.oid from pg_catalog.pg_roles u where u.rolname operator(pg_catalog.=) current_user)
      and not r.rolsuper
      and pg_catalog.has_schema_privilege(r.oid, n.oid, 'usage')
      and (t.oid is null or pg_catalog.has_table_privilege(r.oid, t.oid, 'insert'))
      and not pg_catalog.pg_has_role(r.oid, 'usage')
    order by r.rolname
  ) as not_inherited,
  array(
    select c.relname::pg_catalog.text
    from pg_catalog.pg_class c
    where c.relnamespace operator(pg_catalog.=) n.oid
      and c.relname operator(pg_catalog.=) any ($2::pg_catalog.name[])
      and c.relrowsecurity
      and pg_catalog.row_security_active(c.oid)
    order by c.relname
  ) as hidden,
  pg_catalog.current_setting('server_version_num')::pg_catalog.int4 as version
from (select) one
left join pg_catalog.pg_namespace n on n.nspname operator(pg_catalog.=) $1::pg_catalog.name
left join pg_catalog.pg_class t on $3 and t.relnamespace operator(pg_catalog.=) n.oid and t.relname operator(pg_catalog.=) 'lease'";

const MIGRATION_COLUMNS: &str = "
select attname::text
from pg_catalog.pg_attribute
where attrelid operator(pg_catalog.=) pg_catalog.to_regclass($1)
  and attnum operator(pg_catalog.>) 0
  and not attisdropped";

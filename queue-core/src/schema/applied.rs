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

const COLUMNS: &str = "
select attname::text
from pg_catalog.pg_attribute
where attrelid operator(pg_catalog.=) pg_catalog.to_regclass($1)
  and attnum operator(pg_catalog.>) 0
  and not attisdropped";

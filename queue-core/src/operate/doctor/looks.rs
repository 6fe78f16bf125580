//! What is looked at, and what of it is a finding.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use sqlx::{FromRow, PgConnection, types::Json};

use super::{
    checkup::Checkup,
    finding::{Finding, found},
    full::full_limits,
    kind::FindingKind,
};
use crate::{
    error::{Error, no_row_security},
    operate,
    schema::{Roles, Store, migrate},
};

/// A subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Settings,
    Migrations,
    Sessions,
    Rights,
    SearchPath,
    Tables,
    Locks,
    Days,
    Workers,
    Unserved,
    Capacities,
    Limits,
    Jobs,
    Keys,
    Figures,
}

impl Look {
    /// In the order in which they are taken.
    pub(super) const ALL: [Self; 15] = [
        Self::Settings,
        Self::Migrations,
        Self::Sessions,
        Self::Rights,
        Self::SearchPath,
        Self::Tables,
        Self::Locks,
        Self::Days,
        Self::Workers,
        Self::Unserved,
        Self::Capacities,
        Self::Limits,
        Self::Jobs,
        Self::Keys,
        Self::Figures,
    ];

    /// As people say it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Migrations => "migrations",
            Self::Sessions => "sessions",
            Self::Rights => "roles",
            Self::SearchPath => "schemas and grants",
            Self::Tables => "tables and indexes",
            Self::Locks => "locks",
            Self::Days => "days",
            Self::Workers => "workers",
            Self::Unserved => "jobs that nobody serves",
            Self::Capacities => "capacities",
            Self::Limits => "limits",
            Self::Jobs => "suspects and dead letters",
            Self::Keys => "ordering keys",
            Self::Figures => "notes and counts",
        }
    }

    /// Whether it asks the store's tables, and not only the server's.
    pub(super) fn needs_store(self) -> bool {
        !matches!(self, Self::Settings | Self::Migrations | Self::Sessions)
    }
}

/// A row of a statement.
#[derive(FromRow)]
struct Row {
    kind: String,
    says: String,
    fix: Option<String>,
    facts: Json<Map<String, Value>>,
}

/// Who looks, as the database knows it.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) name: Option<String>,
    pub(super) roles: Vec<String>,
}

/// Takes a look.
pub(super) async fn look(
    look: Look,
    on: &mut PgConnection,
    store: Store,
    checkup: &Checkup,
    login: &mut Login,
) -> Result<Vec<Finding>, Error> {
    let of = |text: &'static str| sqlx::query_as::<_, Row>(store.sql(text));
    let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
    let schema = store.schema();
    let query = match look {
        Look::Settings => of(include_str!("../../../sql/doctor_server.sql"))
            .bind(checkup.timeout.as_millis() as i64)
            .bind(i64::from(checkup.sessions))
            .bind(&checkup.trusted_networks),
        Look::Sessions => {
            of(include_str!("../../../sql/doctor_sessions.sql")).bind(ms(checkup.transaction)).bind(i64::from(checkup.transactions))
        }
        Look::SearchPath => of(include_str!("../../../sql/doctor_path.sql")).bind(schema),
        Look::Tables => of(include_str!("../../../sql/doctor_tables.sql"))
            .bind(schema)
            .bind(i64::from(checkup.dead_rows))
            .bind(i64::from(checkup.oldest))
            .bind(checkup.sequence)
            .bind(migrate::tables()),
        Look::Locks => of(include_str!("../../../sql/doctor_locks.sql")),
        Look::Days => of(include_str!("../../../sql/doctor_days.sql"))
            .bind(schema)
            .bind(i32::from(checkup.days_ahead))
            .bind(migrate::DAYS_AHEAD)
            .bind(i32::from(checkup.days)),
        Look::Workers => of(include_str!("../../../sql/doctor_workers.sql")),
        Look::Jobs => of(include_str!("../../../sql/doctor_jobs.sql")).bind(i64::from(checkup.dead_letters)),
        Look::Keys => of(include_str!("../../../sql/doctor_keys.sql")),
        Look::Figures => of(include_str!("../../../sql/doctor_figures.sql")).bind(NOTES).bind(ms(checkup.tallies)),
        Look::Migrations => return migrations(on, store).await,
        Look::Rights => return rights(on, store, checkup, login).await,
        Look::Unserved => return unserved(on, store).await,
        Look::Capacities => return capacities(on, store).await,
        Look::Limits => return full_limits(on, store, checkup).await,
    };
    let rows = query.fetch_all(on).await?;
    Ok(rows.into_iter().filter_map(finding).collect())
}

/// So many acts are noted at most, with those of a transaction or two that have not cleaned up yet.
const NOTES: i32 = 11_000;

fn finding(row: Row) -> Option<Finding> {
    let kind = row.kind.parse().ok()?;
    Some(Finding::new(kind, row.says, row.fix, row.facts.0))
}

async fn migrations(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
    let Err(error) = migrate::verify(on, store).await else { return Ok(Vec::new()) };
    let kind = match &error {
        Error::NotMigrated { .. } => FindingKind::NoStore,
        Error::OlderSchema { .. } => FindingKind::MigrationsMissing,
        Error::NewerSchema { .. } => FindingKind::StoreNewer,
        Error::ForeignSchema { .. } | Error::ChangedMigration { .. } => FindingKind::ForeignStore,
        Error::Encoding { .. } => FindingKind::Encoding,
        Error::RowSecurity { .. } => FindingKind::RowSecurity,
        _ => return Err(error),
    };
    let fix = match &error {
        Error::NotMigrated { .. } | Error::OlderSchema { .. } => Some(of_store(store, "migrate")),
        Error::RowSecurity { schema, tables } => Some(no_row_security(schema, tables)),
        _ => None,
    };
    Ok(vec![found(kind, error.to_string(), fix, json!({ "schema": store.schema() }))])
}

/// A command on this store.
fn of_store(store: Store, command: &str) -> String {
    if store == Store::default() {
        format!("queue-worker {command}")
    } else {
        format!("queue-worker {command} --schema {}", store.schema())
    }
}

async fn rights(on: &mut PgConnection, store: Store, checkup: &Checkup, login: &mut Login) -> Result<Vec<Finding>, Error> {
    let roles = Roles::of(store);
    let roles = match &checkup.role_prefix {
        Some(prefix) => roles.prefix(prefix)?,
        None => roles,
    };
    let (names, functions): (Vec<String>, Vec<String>) = roles.may_execute().into_iter().unzip();
    let query = sqlx::query_as(store.sql(include_str!("../../../sql/doctor_rights.sql"))).bind(store.schema()).bind(names).bind(functions);
    let (name, has, lacking, first): (String, Vec<String>, Vec<String>, Option<String>) = query.fetch_one(on).await?;
    *login = Login { name: Some(name), roles: has };
    if lacking.is_empty() {
        return Ok(Vec::new());
    }
    let says = format!("{} may not execute all that this release lets them, as {}", lacking.join(", "), first.unwrap_or_default());
    let prefix = checkup.role_prefix.as_ref().map_or_else(String::new, |prefix| format!(" --prefix {prefix}"));
    Ok(vec![found(FindingKind::RolesOutdated, says, Some(of_store(store, &format!("roles{prefix}"))), json!({ "roles": lacking }))])
}

async fn unserved(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
    let found_ones = operate::unserved(on, store).await?.into_iter().filter(|one| one.jobs > 0);
    let said = found_ones.take(20).map(|one| {
        let version = if one.version > 1 { format!(" of version {}", one.version) } else { String::new() };
        let more = if one.partial { " or more" } else { "" };
        let says = format!("no living worker serves {}{version} of queue {}: {}{more} wait", one.job_type, one.queue, one.jobs);
        found(FindingKind::Unserved, says, None, json!(one))
    });
    Ok(said.collect())
}

async fn capacities(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
    let full = operate::capacities(on, store).await?.into_iter().filter(|queue| queue.waiting >= queue.capacity);
    let said = full.take(20).map(|full| {
        let says = format!("queue {} is at its capacity: {} jobs wait, of {}", full.queue, full.waiting, full.capacity);
        found(FindingKind::CapacityFull, says, None, json!(full))
    });
    Ok(said.collect())
}

/// The first release of the server that all statements work on.
const OLDEST_SERVER: i32 = 150_000;

/// What is wrong with a server of this version.
pub(super) fn of_version(number: i32, name: &str) -> Option<Finding> {
    let says = || format!("the server is {name}, and 15 is the oldest that works");
    (number < OLDEST_SERVER).then(|| found(FindingKind::ServerVersion, says(), None, json!({ "version": number })))
}

/// What is wrong with clocks: the server's was asked for between two times of this machine's.
pub(super) fn of_clocks(asked: DateTime<Utc>, server: DateTime<Utc>, answered: DateTime<Utc>, checkup: &Checkup) -> Option<Finding> {
    let (behind, ahead) = ((server - answered).to_std().ok(), (asked - server).to_std().ok());
    let (apart, here) = behind.map(|apart| (apart, "behind")).or(ahead.map(|apart| (apart, "ahead of")))?;
    let says = || format!("the clock of this machine is {} ms {here} the server's", apart.as_millis());
    let facts = || json!({ "apart_ms": apart.as_millis() as u64, "this_machine_is": if here == "behind" { "behind" } else { "ahead" } });
    (apart > checkup.clock).then(|| found(FindingKind::ClockApart, says(), None, facts()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_is_too_old_below_15() {
        assert_eq!(of_version(140_011, "14.11").map(|found| found.kind), Some(FindingKind::ServerVersion));
        assert!(of_version(150_000, "15.0").is_none() && of_version(180_001, "18.1").is_none());
    }

    #[test]
    fn clocks_are_apart_by_more_than_the_way_takes() {
        let checkup = Checkup { clock: Duration::from_secs(1), ..Checkup::default() };
        let at = |ms: i64| DateTime::from_timestamp_millis(1_000_000 + ms).unwrap();
        let of = |asked, server, answered| of_clocks(at(asked), at(server), at(answered), &checkup).map(|found| found.says);
        assert_eq!(of(0, 700, 600), None, "a little is nothing");
        assert_eq!(of(0, 3000, 5000), None, "it may have been said at any time between");
        assert_eq!(of(0, 3000, 500), Some("the clock of this machine is 2500 ms behind the server's".to_owned()));
        assert_eq!(of(5000, 3000, 5100), Some("the clock of this machine is 2000 ms ahead of the server's".to_owned()));
    }
}

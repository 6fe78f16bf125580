//! Checks of the doctor, and conversion of their results to findings.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use sqlx::{FromRow, PgConnection, types::Json};

use super::{
    checkup::Checkup,
    exhausted_limits::find_exhausted_limits,
    finding::{Finding, build_finding},
    kind::FindingKind,
};
use crate::{
    error::{Error, disable_row_security},
    results::Queue,
    schema::{Roles, Store, migrate},
};

/// Check of the doctor, named after its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
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
    Maintenance,
}

impl Check {
    /// All checks, in execution order.
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
        Self::Maintenance,
    ];

    /// Returns the display name of the check.
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
            Self::Unserved => "unserved jobs",
            Self::Capacities => "capacities",
            Self::Limits => "limits",
            Self::Jobs => "quarantined jobs and dead letters",
            Self::Keys => "ordering keys",
            Self::Maintenance => "audit log and counts",
        }
    }

    /// Returns whether the check requires a usable store. The other checks run even if the store is missing or cannot be used.
    pub(super) fn needs_store(self) -> bool {
        !matches!(self, Self::Settings | Self::Migrations | Self::Sessions)
    }
}

/// Row returned by a `doctor_*.sql` statement.
#[derive(FromRow)]
struct FindingRow {
    kind: String,
    message: String,
    fix: Option<String>,
    facts: Json<Map<String, Value>>,
}

/// Database role that runs the checks, and its memberships in store roles. Empty until [`Check::Rights`] has run.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) name: Option<String>,
    pub(super) roles: Vec<String>,
}

/// Runs a check and returns its findings. [`Check::Rights`] also sets `login`.
pub(super) async fn run_check(
    check: Check,
    on: &mut PgConnection,
    store: Store,
    checkup: &Checkup,
    login: &mut Login,
) -> Result<Vec<Finding>, Error> {
    let of = |text: &'static str| sqlx::query_as::<_, FindingRow>(store.sql(text));
    let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
    let schema = store.schema();
    let query = match check {
        Check::Settings => of(include_str!("../../../sql/doctor_server.sql"))
            .bind(checkup.timeout.as_millis() as i64)
            .bind(i64::from(checkup.sessions))
            .bind(&checkup.trusted_networks),
        Check::Sessions => {
            of(include_str!("../../../sql/doctor_sessions.sql")).bind(ms(checkup.transaction)).bind(i64::from(checkup.transactions))
        }
        Check::SearchPath => of(include_str!("../../../sql/doctor_search_path.sql")).bind(schema),
        Check::Tables => of(include_str!("../../../sql/doctor_tables.sql"))
            .bind(schema)
            .bind(i64::from(checkup.dead_rows))
            .bind(i64::from(checkup.oldest))
            .bind(checkup.sequence)
            .bind(migrate::tables()),
        Check::Locks => of(include_str!("../../../sql/doctor_locks.sql")),
        Check::Days => of(include_str!("../../../sql/doctor_days.sql"))
            .bind(schema)
            .bind(i32::from(checkup.days_ahead))
            .bind(migrate::DAYS_AHEAD)
            .bind(i32::from(checkup.days)),
        Check::Workers => of(include_str!("../../../sql/doctor_workers.sql")),
        Check::Jobs => of(include_str!("../../../sql/doctor_jobs.sql")).bind(i64::from(checkup.dead_letters)),
        Check::Keys => of(include_str!("../../../sql/doctor_keys.sql")),
        Check::Maintenance => of(include_str!("../../../sql/doctor_maintenance.sql")).bind(MAX_AUDIT_ENTRIES).bind(ms(checkup.tallies)),
        Check::Migrations => return check_migrations(on, store).await,
        Check::Rights => return check_rights(on, store, checkup, login).await,
        Check::Unserved => return check_unserved(on, store).await,
        Check::Capacities => return check_capacities(on, store).await,
        Check::Limits => return find_exhausted_limits(on, store, checkup).await,
    };
    let rows = query.fetch_all(on).await?;
    Ok(rows.into_iter().filter_map(to_finding).collect())
}

/// Number of audit log entries above which the log becomes a finding. The log keeps 10,000 entries. The margin is for one or two
/// transactions that have written entries but have not pruned the log yet.
const MAX_AUDIT_ENTRIES: i32 = 11_000;

fn to_finding(row: FindingRow) -> Option<Finding> {
    let kind = row.kind.parse().ok()?;
    Some(Finding::new(kind, row.message, row.fix, row.facts.0))
}

async fn check_migrations(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
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
        Error::NotMigrated { .. } | Error::OlderSchema { .. } => Some(cli_command(store, "migrate")),
        Error::RowSecurity { schema, tables } => Some(disable_row_security(schema, tables)),
        _ => None,
    };
    Ok(vec![build_finding(kind, error.to_string(), fix, json!({ "schema": store.schema() }))])
}

/// Formats a CLI command that applies to `store`.
fn cli_command(store: Store, command: &str) -> String {
    if store == Store::default() {
        format!("queue-worker {command}")
    } else {
        format!("queue-worker {command} --schema {}", store.schema())
    }
}

async fn check_rights(on: &mut PgConnection, store: Store, checkup: &Checkup, login: &mut Login) -> Result<Vec<Finding>, Error> {
    let roles = Roles::of(store);
    let roles = match &checkup.role_prefix {
        Some(prefix) => roles.prefix(prefix)?,
        None => roles,
    };
    let (names, functions): (Vec<String>, Vec<String>) = roles.executable_functions().into_iter().unzip();
    let query =
        sqlx::query_as(store.sql(include_str!("../../../sql/doctor_privileges.sql"))).bind(store.schema()).bind(names).bind(functions);
    let (name, has, lacking, first): (String, Vec<String>, Vec<String>, Option<String>) = query.fetch_one(on).await?;
    *login = Login { name: Some(name), roles: has };
    if lacking.is_empty() {
        return Ok(Vec::new());
    }
    let message =
        format!("{} may not execute all functions that this release grants, such as {}", lacking.join(", "), first.unwrap_or_default());
    let prefix = checkup.role_prefix.as_ref().map_or_else(String::new, |prefix| format!(" --prefix {prefix}"));
    Ok(vec![build_finding(
        FindingKind::RolesOutdated,
        message,
        Some(cli_command(store, &format!("roles{prefix}"))),
        json!({ "roles": lacking }),
    )])
}

async fn check_unserved(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
    let unserved = Queue::on(on).store(store).unserved().await?.into_iter().filter(|one| one.jobs > 0);
    let findings = unserved.take(20).map(|one| {
        let version = if one.version > 1 { format!(" of version {}", one.version) } else { String::new() };
        let more = if one.partial { " or more" } else { "" };
        let message = format!("no live worker serves {}{version} of queue {}: {}{more} wait", one.job_type, one.queue, one.jobs);
        build_finding(FindingKind::Unserved, message, None, json!(one))
    });
    Ok(findings.collect())
}

async fn check_capacities(on: &mut PgConnection, store: Store) -> Result<Vec<Finding>, Error> {
    let queue = Queue::on(on).store(store);
    let mut capacities = queue.capacities().await?;
    // A bounded count below the capacity does not show whether the queue is full.
    if capacities.iter().any(|of| of.partial && of.waiting < of.capacity) {
        capacities = queue.capacities_exactly().await?;
    }
    let findings = capacities.into_iter().filter(|of| of.waiting >= of.capacity).take(20).map(|full| {
        let message = format!("queue {} is at its capacity: {} jobs wait, the capacity is {}", full.queue, full.waiting, full.capacity);
        build_finding(FindingKind::CapacityFull, message, None, json!(full))
    });
    Ok(findings.collect())
}

/// Oldest supported server version, in the format of `server_version_num`.
const MIN_SERVER_VERSION: i32 = 150_000;

/// Returns a finding if the server's version is not supported.
pub(super) fn check_version(number: i32, name: &str) -> Option<Finding> {
    let message = || format!("the server has version {name}, and 15 is the oldest supported");
    (number < MIN_SERVER_VERSION).then(|| build_finding(FindingKind::ServerVersion, message(), None, json!({ "version": number })))
}

/// Returns a finding if the clocks of this machine and of the server differ by more than [`Checkup::clock`]. The server read its clock
/// between `sent_at` and `received_at`.
pub(super) fn check_clocks(
    sent_at: DateTime<Utc>,
    server: DateTime<Utc>,
    received_at: DateTime<Utc>,
    checkup: &Checkup,
) -> Option<Finding> {
    let (behind, ahead) = ((server - received_at).to_std().ok(), (sent_at - server).to_std().ok());
    let (apart, here) = behind.map(|apart| (apart, "behind")).or(ahead.map(|apart| (apart, "ahead of")))?;
    let message = || format!("the clock of this machine is {} ms {here} the server's", apart.as_millis());
    let facts = || json!({ "apart_ms": apart.as_millis() as u64, "this_machine_is": if here == "behind" { "behind" } else { "ahead" } });
    (apart > checkup.clock).then(|| build_finding(FindingKind::ClockApart, message(), None, facts()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn servers_below_15_are_unsupported() {
        assert_eq!(check_version(140_011, "14.11").map(|found| found.kind), Some(FindingKind::ServerVersion));
        assert!(check_version(150_000, "15.0").is_none() && check_version(180_001, "18.1").is_none());
    }

    #[test]
    fn clock_difference_excludes_the_round_trip() {
        let checkup = Checkup { clock: Duration::from_secs(1), ..Checkup::default() };
        let at = |ms: i64| DateTime::from_timestamp_millis(1_000_000 + ms).unwrap();
        let of = |sent_at, server, received_at| check_clocks(at(sent_at), at(server), at(received_at), &checkup).map(|found| found.message);
        assert_eq!(of(0, 700, 600), None, "small differences are ignored");
        assert_eq!(of(0, 3000, 5000), None, "the server may have read its clock at any time in between");
        assert_eq!(of(0, 3000, 500), Some("the clock of this machine is 2500 ms behind the server's".to_owned()));
        assert_eq!(of(5000, 3000, 5100), Some("the clock of this machine is 2000 ms ahead of the server's".to_owned()));
    }
}

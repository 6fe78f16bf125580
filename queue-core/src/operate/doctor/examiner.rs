//! Runs the checks of the doctor in sequence on a connection outside the pool. Each check runs in a read-only transaction with a timeout.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::{
    checks::{self, Check, Login, check_clocks, check_version},
    checkup::Checkup,
    finding::{Diagnosis, Finding, build_finding},
    kind::FindingKind,
};
use crate::{
    error::Error,
    schema::{Store, is_refused_setting},
};

/// Timeout for connecting, for the query that identifies the server, and for the check of the pooler.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Examiner<'a> {
    options: PgConnectOptions,
    store: Store,
    checkup: &'a Checkup,
    connection: Option<PgConnection>,
    at: Option<DateTime<Utc>>,
    server: Option<String>,
    login: Login,
    findings: Vec<Finding>,
    /// Names of the checks that failed because the login lacks privileges.
    denied: Vec<&'static str>,
    /// Statement that makes the login inherit the privileges of a role that has been granted to it.
    inherit: Option<String>,
}

impl<'a> Examiner<'a> {
    pub(super) fn new(pool: &PgPool, store: Store, checkup: &'a Checkup) -> Self {
        let options = (*pool.connect_options()).clone().disable_statement_logging();
        let (findings, denied, login) = (Vec::new(), Vec::new(), Login::default());
        Self { options, store, checkup, connection: None, at: None, server: None, login, findings, denied, inherit: None }
    }

    pub(super) async fn run_all(&mut self) {
        if let Err(why) = self.identify_server().await {
            self.findings = Diagnosis::unreachable(self.store, &why).findings;
            return;
        }
        for check in Check::ALL {
            // Checks of store tables are skipped if there is no usable store.
            if !(check.needs_store() && self.findings.iter().any(is_unusable_store)) {
                self.run(check).await;
            }
        }
        self.check_pooler().await;
        if !self.denied.is_empty() {
            let message = format!("this login lacks rights to check: {}", self.denied.join(", "));
            let reader = self.checkup.role_prefix.as_deref().unwrap_or(self.store.schema());
            let grant = |login: &String| format!("grant \"{reader}_reader\" to \"{}\"", login.replace('"', "\"\""));
            let fix = self.inherit.take().or_else(|| self.login.name.as_ref().map(grant));
            self.findings.push(build_finding(FindingKind::NotPermitted, message, fix, serde_json::json!({ "what": self.denied })));
        }
        if let Some(connection) = self.connection.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }

    pub(super) fn diagnosis(mut self) -> Diagnosis {
        self.findings.sort_by_key(|finding| finding.kind);
        Diagnosis {
            schema: self.store.schema().to_owned(),
            at: self.at,
            server: self.server,
            login: self.login.name,
            roles: self.login.roles,
            findings: self.findings,
        }
    }

    /// Connects to the server and reads its version and time.
    async fn identify_server(&mut self) -> Result<(), String> {
        let mut connection = connect(&self.options).await?;
        let sent_at = Utc::now();
        let statement = self.store.sql(include_str!("../../../sql/doctor_version.sql"));
        let answer = timeout(CONNECT_TIMEOUT, sqlx::query_as(statement).fetch_one(&mut connection)).await;
        let (number, name, at): (i32, String, DateTime<Utc>) =
            answer.map_err(|_| NO_RESPONSE.to_owned())?.map_err(|error| database_message(&error))?;
        self.findings.extend(check_version(number, &name));
        self.findings.extend(check_clocks(sent_at, at, Utc::now(), self.checkup));
        (self.at, self.server, self.connection) = (Some(at), Some(name), Some(connection));
        Ok(())
    }

    async fn run(&mut self, check: Check) {
        let result = match self.connection.take() {
            Some(connection) => Ok(connection),
            // The previous check left no usable connection.
            None => connect(&self.options).await,
        };
        let mut connection = match result {
            Ok(connection) => connection,
            Err(why) => return self.record_failure(check, &why),
        };
        // The server cancels a statement that exceeds its timeout. If the server does not respond in time, the connection is abandoned.
        let running = timeout(self.checkup.patience + Duration::from_secs(1), self.run_in_transaction(check, &mut connection));
        match running.await {
            Ok(Ok(found)) => {
                self.findings.extend(found);
                self.connection = Some(connection);
            }
            Ok(Err(error)) => {
                match error {
                    Error::NoRights { not_inherited, fix, .. } => {
                        self.denied.push(check.name());
                        self.inherit = (!not_inherited.is_empty()).then_some(fix);
                    }
                    error if is_denied(&error) => self.denied.push(check.name()),
                    error => self.record_failure(check, &error_message(&error)),
                }
                let rolled_back = timeout(self.checkup.patience, sqlx::raw_sql("rollback").execute(&mut connection)).await;
                self.connection = rolled_back.is_ok_and(|done| done.is_ok()).then_some(connection);
            }
            Err(_) => self.record_failure(check, NO_RESPONSE),
        }
    }

    async fn run_in_transaction(&mut self, check: Check, on: &mut PgConnection) -> Result<Vec<Finding>, Error> {
        let ms = self.checkup.patience.as_millis().max(1);
        let begin = format!(
            "begin isolation level read committed, read only; set local statement_timeout = '{ms}ms'; set local lock_timeout = '{}ms'",
            ms.div_ceil(4)
        );
        // Only numbers are interpolated, so the statement is safe.
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *on).await?;
        let found = checks::run_check(check, on, self.store, self.checkup, &mut self.login).await?;
        sqlx::raw_sql("rollback").execute(on).await?;
        Ok(found)
    }

    fn record_failure(&mut self, check: Check, why: &str) {
        let message = format!("{} could not be checked: {why}", check.name());
        self.findings.push(build_finding(FindingKind::NotLookedAt, message, None, serde_json::json!({ "what": check.name() })));
    }

    /// Checks whether a pooler passes a connection's startup settings to the server. Workers rely on these settings.
    async fn check_pooler(&mut self) {
        let options = self.options.clone().options([("plan_cache_mode", "force_generic_plan")]);
        let reached = async {
            let mut connection = options.connect().await?;
            let mode = self.store.sql(include_str!("../../../sql/doctor_mode.sql"));
            let mode: String = sqlx::query_scalar(mode).fetch_one(&mut connection).await?;
            let _ = connection.close().await;
            Ok::<_, sqlx::Error>(mode == "force_generic_plan")
        };
        let message = match timeout(CONNECT_TIMEOUT, reached).await {
            Ok(Ok(false)) => "a pooler drops the startup settings of connections",
            Ok(Err(error)) if is_refused_setting(&error) => "a pooler rejects the startup settings of connections",
            // Either the setting is in effect, or no second session was available. Neither case indicates a fault of the pooler.
            _ => return,
        };
        self.findings.push(build_finding(FindingKind::Pooler, message.to_owned(), None, serde_json::json!({})));
    }
}

const NO_RESPONSE: &str = "no answer in time";

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, String> {
    timeout(CONNECT_TIMEOUT, options.connect()).await.map_err(|_| NO_RESPONSE.to_owned())?.map_err(|error| database_message(&error))
}

/// Returns the message of a database error without the server's `DETAIL`, which may contain row data.
fn database_message(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn error_message(error: &Error) -> String {
    if let Error::Database(error) = error { database_message(error) } else { error.to_string() }
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Database(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501"))
}

fn is_unusable_store(finding: &Finding) -> bool {
    use FindingKind::{Encoding, ForeignStore, MigrationsMissing, NoStore, RowSecurity, StoreNewer};
    matches!(finding.kind, NoStore | MigrationsMissing | StoreNewer | ForeignStore | Encoding | RowSecurity)
}

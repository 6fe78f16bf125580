//! Takes the looks, one after the other, on a connection of its own: each in a transaction that only reads, and with an end.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::{
    checkup::Checkup,
    finding::{Diagnosis, Finding, found},
    kind::FindingKind,
    looks::{self, Login, Look, of_clocks, of_version},
};
use crate::{
    error::Error,
    schema::{Store, is_refused_setting},
};

/// A server that does not answer within this time is out of reach.
const REACH: Duration = Duration::from_secs(10);

pub(super) struct Examiner<'a> {
    options: PgConnectOptions,
    store: Store,
    checkup: &'a Checkup,
    connection: Option<PgConnection>,
    at: Option<DateTime<Utc>>,
    server: Option<String>,
    login: Login,
    findings: Vec<Finding>,
    /// What the login may not look at.
    denied: Vec<&'static str>,
    /// The statement by which it inherits the rights that a role of it has.
    inherit: Option<String>,
}

impl<'a> Examiner<'a> {
    pub(super) fn new(pool: &PgPool, store: Store, checkup: &'a Checkup) -> Self {
        let options = (*pool.connect_options()).clone().disable_statement_logging();
        let (findings, denied, login) = (Vec::new(), Vec::new(), Login::default());
        Self { options, store, checkup, connection: None, at: None, server: None, login, findings, denied, inherit: None }
    }

    pub(super) async fn examine(&mut self) {
        if let Err(why) = self.meet().await {
            self.findings = Diagnosis::unreachable(self.store, &why).findings;
            return;
        }
        for look in Look::ALL {
            // Without a store there is nothing to ask of it.
            if !(look.needs_store() && self.findings.iter().any(is_no_store)) {
                self.take(look).await;
            }
        }
        self.look_for_pooler().await;
        if !self.denied.is_empty() {
            let says = format!("this login may not look at: {}", self.denied.join(", "));
            let reader = self.checkup.role_prefix.as_deref().unwrap_or(self.store.schema());
            let grant = |login: &String| format!("grant \"{reader}_reader\" to \"{}\"", login.replace('"', "\"\""));
            let fix = self.inherit.take().or_else(|| self.login.name.as_ref().map(grant));
            self.findings.push(found(FindingKind::NotPermitted, says, fix, serde_json::json!({ "what": self.denied })));
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

    /// Connects, and asks which server that is and what time it has.
    async fn meet(&mut self) -> Result<(), String> {
        let mut connection = connect(&self.options).await?;
        let asked = Utc::now();
        let statement = self.store.sql(include_str!("../../../sql/doctor_meet.sql"));
        let met = timeout(REACH, sqlx::query_as(statement).fetch_one(&mut connection)).await;
        let (number, name, at): (i32, String, DateTime<Utc>) = met.map_err(|_| SILENT.to_owned())?.map_err(|error| text(&error))?;
        self.findings.extend(of_version(number, &name));
        self.findings.extend(of_clocks(asked, at, Utc::now(), self.checkup));
        (self.at, self.server, self.connection) = (Some(at), Some(name), Some(connection));
        Ok(())
    }

    async fn take(&mut self, look: Look) {
        let result = match self.connection.take() {
            Some(connection) => Ok(connection),
            // The last look has broken it.
            None => connect(&self.options).await,
        };
        let mut connection = match result {
            Ok(connection) => connection,
            Err(why) => return self.could_not(look, &why),
        };
        // The server ends the statement; should it not even do that, its connection is left alone.
        let looking = timeout(self.checkup.patience + Duration::from_secs(1), self.look_within(look, &mut connection));
        match looking.await {
            Ok(Ok(found)) => {
                self.findings.extend(found);
                self.connection = Some(connection);
            }
            Ok(Err(error)) => {
                match error {
                    Error::NoRights { not_inherited, fix, .. } => {
                        self.denied.push(look.name());
                        self.inherit = (!not_inherited.is_empty()).then_some(fix);
                    }
                    error if is_denied(&error) => self.denied.push(look.name()),
                    error => self.could_not(look, &text_of(&error)),
                }
                let rolled_back = timeout(self.checkup.patience, sqlx::raw_sql("rollback").execute(&mut connection)).await;
                self.connection = rolled_back.is_ok_and(|done| done.is_ok()).then_some(connection);
            }
            Err(_) => self.could_not(look, SILENT),
        }
    }

    async fn look_within(&mut self, look: Look, on: &mut PgConnection) -> Result<Vec<Finding>, Error> {
        let ms = self.checkup.patience.as_millis().max(1);
        let begin = format!(
            "begin isolation level read committed, read only; set local statement_timeout = '{ms}ms'; set local lock_timeout = '{}ms'",
            ms.div_ceil(4)
        );
        // Numbers alone were put in.
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *on).await?;
        let found = looks::look(look, on, self.store, self.checkup, &mut self.login).await?;
        sqlx::raw_sql("rollback").execute(on).await?;
        Ok(found)
    }

    fn could_not(&mut self, look: Look, why: &str) {
        let says = format!("{} could not be looked at: {why}", look.name());
        self.findings.push(found(FindingKind::NotLookedAt, says, None, serde_json::json!({ "what": look.name() })));
    }

    /// Whether what a connection begins with reaches the server, as a worker's does.
    async fn look_for_pooler(&mut self) {
        let options = self.options.clone().options([("plan_cache_mode", "force_generic_plan")]);
        let reached = async {
            let mut connection = options.connect().await?;
            let mode = self.store.sql(include_str!("../../../sql/doctor_mode.sql"));
            let mode: String = sqlx::query_scalar(mode).fetch_one(&mut connection).await?;
            let _ = connection.close().await;
            Ok::<_, sqlx::Error>(mode == "force_generic_plan")
        };
        let says = match timeout(REACH, reached).await {
            Ok(Ok(false)) => "a pooler leaves out the settings that connections begin with",
            Ok(Err(error)) if is_refused_setting(&error) => "a pooler refuses the settings that connections begin with",
            // They are in force; or a second session was not to be had, and that is no pooler's doing.
            _ => return,
        };
        self.findings.push(found(FindingKind::Pooler, says.to_owned(), None, serde_json::json!({})));
    }
}

const SILENT: &str = "no answer in time";

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, String> {
    timeout(REACH, options.connect()).await.map_err(|_| SILENT.to_owned())?.map_err(|error| text(&error))
}

/// Never the server's DETAIL, which prints rows.
fn text(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn text_of(error: &Error) -> String {
    if let Error::Database(error) = error { text(error) } else { error.to_string() }
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Database(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501"))
}

fn is_no_store(finding: &Finding) -> bool {
    use FindingKind::{Encoding, ForeignStore, MigrationsMissing, NoStore, RowSecurity, StoreNewer};
    matches!(finding.kind, NoStore | MigrationsMissing | StoreNewer | ForeignStore | Encoding | RowSecurity)
}

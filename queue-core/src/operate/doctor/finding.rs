//! Findings, and the diagnosis that collects them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::kind::{FindingKind, Severity};
use crate::schema::Store;

/// Diagnosis of a store and its server.
///
/// The JSON form is stable. Fields and kinds may be added, but existing fields and kinds keep their meaning.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) {
/// use queue_core::{Queue, operate::{Checkup, Severity}};
///
/// let diagnosis = Queue::new(pool).doctor(&Checkup::default()).await;
/// if diagnosis.worst() == Some(Severity::Broken) {
///     println!("schema {}: {}", diagnosis.schema, diagnosis.findings[0].message);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Schema of the store.
    pub schema: String,
    /// Time of the diagnosis, according to the database clock; `None` if the database is unreachable.
    pub at: Option<DateTime<Utc>>,
    /// Version of the server, such as `15.4`; `None` if the database is unreachable.
    pub server: Option<String>,
    /// Database role that ran the checks; `None` if the check of the role's privileges failed.
    pub login: Option<String>,
    /// Store roles of which the login is a member.
    pub roles: Vec<String>,
    /// Findings of the diagnosis, most severe first. Empty for a healthy store.
    pub findings: Vec<Finding>,
}

/// Problem found by the doctor, with its consequence and fix.
///
/// ```
/// use queue_core::{Store, operate::{Diagnosis, FindingKind}};
///
/// let diagnosis = Diagnosis::unreachable(Store::default(), "connection refused");
/// for finding in &diagnosis.findings {
///     println!("{}: {}; {}", finding.severity, finding.message, finding.fix);
/// }
/// assert_eq!(diagnosis.findings[0].kind, FindingKind::Unreachable);
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the problem. Written in snake case in JSON, such as `no_worker`.
    pub kind: FindingKind,
    /// Severity of the problem, determined by its kind.
    pub severity: Severity,
    /// One-line description of the problem. May quote untrusted text, such as names and errors, which must be escaped for display.
    pub message: String,
    /// Consequence of the problem.
    pub consequence: &'static str,
    /// Fix for the problem: a command, an SQL statement, or advice.
    pub fix: String,
    /// Whether `fix` is a command or an SQL statement that can be pasted unchanged.
    pub can_be_pasted: bool,
    /// Values on which the description is based, keyed by name. The names are stable. Job ids are strings.
    pub facts: Map<String, Value>,
}

impl Finding {
    /// Creates a finding. If `fix` is `None`, the advice for the kind becomes the fix.
    pub(super) fn new(kind: FindingKind, message: String, fix: Option<String>, facts: Map<String, Value>) -> Self {
        let (severity, consequence, can_be_pasted) = (kind.severity(), kind.consequence(), fix.is_some());
        Self { kind, severity, message, consequence, fix: fix.unwrap_or_else(|| kind.advice().to_owned()), can_be_pasted, facts }
    }
}

impl Diagnosis {
    /// Returns the diagnosis of a store whose server is unreachable. `why` describes the cause.
    pub fn unreachable(store: Store, why: &str) -> Self {
        let message = format!("the database is out of reach: {why}");
        let finding = Finding::new(FindingKind::Unreachable, message, None, Map::new());
        Self { schema: store.schema().to_owned(), findings: vec![finding], ..Self::default() }
    }

    /// Returns the highest severity of all findings; `None` if there are no findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Builds a finding for a check that is written in Rust instead of SQL.
pub(super) fn build_finding(kind: FindingKind, message: String, fix: Option<String>, facts: Value) -> Finding {
    let Value::Object(facts) = facts else { return Finding::new(kind, message, fix, Map::new()) };
    Finding::new(kind, message, fix, facts)
}

//! Findings and the diagnosis made of them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::kind::{FindingKind, Severity};
use crate::schema::Store;

/// Findings about a store and its server.
///
/// Its JSON is stable: fields and kinds may be added, and none changes its meaning.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Schema of the store.
    pub schema: String,
    /// Time of the diagnosis, by the database's clock; `None` if the database is unreachable.
    pub at: Option<DateTime<Utc>>,
    /// Version of the server, such as `15.4`.
    pub server: Option<String>,
    /// Database role that ran the checks.
    pub login: Option<String>,
    /// Store roles that this role has.
    pub roles: Vec<String>,
    /// Findings, most severe first. Empty for a healthy store.
    pub findings: Vec<Finding>,
}

/// Problem found by the doctor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Severity of the finding.
    pub severity: Severity,
    /// Description for people, on one line. It may quote untrusted text (names, errors): escape it for display.
    pub says: String,
    /// Consequence of the problem.
    pub means: &'static str,
    /// Fix: a command, SQL, or advice.
    pub fix: String,
    /// Whether the fix is a command or SQL that can be pasted unchanged.
    pub can_be_pasted: bool,
    /// Facts behind the description, by name, as listed in `docs/DOCTOR.md`. Job ids are strings.
    pub facts: Map<String, Value>,
}

impl Finding {
    /// Without a fix that can be pasted, the kind's advice is the fix.
    pub(super) fn new(kind: FindingKind, says: String, fix: Option<String>, facts: Map<String, Value>) -> Self {
        let (severity, means, can_be_pasted) = (kind.severity(), kind.means(), fix.is_some());
        Self { kind, severity, says, means, fix: fix.unwrap_or_else(|| kind.advice().to_owned()), can_be_pasted, facts }
    }
}

impl Diagnosis {
    /// Returns the diagnosis of a store whose server cannot be reached, for this reason.
    pub fn unreachable(store: Store, why: &str) -> Self {
        let says = format!("the database is out of reach: {why}");
        let finding = Finding::new(FindingKind::Unreachable, says, None, Map::new());
        Self { schema: store.schema().to_owned(), findings: vec![finding], ..Self::default() }
    }

    /// Returns the severity of the worst finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Builds a finding that was detected by code instead of SQL.
pub(super) fn build_finding(kind: FindingKind, says: String, fix: Option<String>, facts: Value) -> Finding {
    let Value::Object(facts) = facts else { return Finding::new(kind, says, fix, Map::new()) };
    Finding::new(kind, says, fix, facts)
}

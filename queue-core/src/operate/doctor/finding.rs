//! What was found: its sentence, and what goes with its kind.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};

use super::kind::{FindingKind, Severity};
use crate::schema::Store;

/// What was found, and by whom.
///
/// Its JSON is stable: fields and kinds are added, and none changes its meaning.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The schema of the store.
    pub schema: String,
    /// When that was looked at, by the database's clock; `None` if it is out of reach.
    pub at: Option<DateTime<Utc>>,
    /// The server's version, such as `15.4`.
    pub server: Option<String>,
    /// The role that looked.
    pub login: Option<String>,
    /// Which of the store's roles that role has.
    pub roles: Vec<String>,
    /// What is wrong, the worst first. Nothing, it is hoped.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which it is.
    pub kind: FindingKind,
    /// How bad that is.
    pub severity: Severity,
    /// A sentence for people, on one line. It may quote what others have written (names, errors): make that inert where it is shown.
    pub says: String,
    /// What follows from it.
    pub means: &'static str,
    /// What cures it: a command, SQL, or advice.
    pub fix: String,
    /// Whether the fix is a command or SQL, to be pasted as it is.
    pub can_be_pasted: bool,
    /// What the sentence was made of, by name; `docs/DOCTOR.md` says which there are. Ids of jobs are strings.
    pub facts: Map<String, Value>,
}

impl Finding {
    /// Without a fix to paste the kind's advice is the fix.
    pub(super) fn new(kind: FindingKind, says: String, fix: Option<String>, facts: Map<String, Value>) -> Self {
        let (severity, means, can_be_pasted) = (kind.severity(), kind.means(), fix.is_some());
        Self { kind, severity, says, means, fix: fix.unwrap_or_else(|| kind.advice().to_owned()), can_be_pasted, facts }
    }
}

impl Diagnosis {
    /// Of a store whose server cannot be reached, for this reason.
    pub fn unreachable(store: Store, why: &str) -> Self {
        let says = format!("the database is out of reach: {why}");
        let finding = Finding::new(FindingKind::Unreachable, says, None, Map::new());
        Self { schema: store.schema().to_owned(), findings: vec![finding], ..Self::default() }
    }

    /// How bad the worst finding is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// One of our own making.
pub(super) fn found(kind: FindingKind, says: String, fix: Option<String>, facts: Value) -> Finding {
    let Value::Object(facts) = facts else { return Finding::new(kind, says, fix, Map::new()) };
    Finding::new(kind, says, fix, facts)
}

//! Diagnosis of a store and its server. Each finding has a consequence and a fix.
//!
//! Each statement `sql/doctor_*.sql` covers one subject. It returns findings, or data from which findings are derived. [`FindingKind`]
//! defines the meaning and severity of each finding. Each check runs in a separate read-only transaction with a timeout.

mod checkup;
mod examiner;
mod finding;
mod exhausted_limits;
mod kind;
mod checks;

use self::examiner::Examiner;
pub use self::{
    checkup::Checkup,
    finding::{Diagnosis, Finding},
    kind::{FindingKind, Severity},
};
use crate::results::Queue;

impl Queue {
    /// Checks a store and its server. Returns the problems found.
    ///
    /// The checks are read-only and use a connection outside the pool. [`Checkup::patience`] limits the duration of each check. A check
    /// that is blocked, too slow or forbidden becomes a finding and does not prevent other checks. A check's cost does not grow with the
    /// number of waiting or finished jobs.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) {
    /// use queue_core::{Queue, operate};
    ///
    /// let diagnosis = Queue::new(&pool).doctor(&operate::Checkup::default()).await;
    /// for finding in &diagnosis.findings {
    ///     println!("{}: {}; {}", finding.severity, finding.message, finding.fix);
    /// }
    /// # }
    /// ```
    pub async fn doctor(&self, checkup: &Checkup) -> Diagnosis {
        let mut examiner = Examiner::new(self.pool(), self.store, checkup);
        examiner.run_all().await;
        examiner.diagnosis()
    }
}

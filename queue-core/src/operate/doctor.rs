//! What is wrong with a store or its server, or soon will be: findings, each with what it means and what cures it.
//!
//! What is looked for stands in statements, one for each subject (`sql/doctor_*.sql`), which name what they find; what that means, and how bad it is,
//! stands in [`FindingKind`]. Each look has its own transaction, which only reads, and an end in time.

mod checkup;
mod examine;
mod finding;
mod full;
mod kind;
mod looks;

use sqlx::PgPool;

use self::examine::Examiner;
pub use self::{
    checkup::Checkup,
    finding::{Diagnosis, Finding},
    kind::{FindingKind, Severity},
};
use crate::schema::Store;

/// Looks at a store and its server, and says what is wrong.
///
/// It only reads. Each look ends within [`Checkup::patience`], on a connection that is not the pool's: what is locked, slow or forbidden is a finding
/// as well, and keeps no other look from being taken. What a look costs does not grow with the jobs that wait or are over.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) {
/// use queue_core::{Store, operate};
///
/// let diagnosis = operate::doctor(&pool, Store::default(), &operate::Checkup::default()).await;
/// for finding in &diagnosis.findings {
///     println!("{}: {}; {}", finding.severity, finding.says, finding.fix);
/// }
/// # }
/// ```
pub async fn doctor(pool: &PgPool, store: Store, checkup: &Checkup) -> Diagnosis {
    let mut examiner = Examiner::new(pool, store, checkup);
    examiner.examine().await;
    examiner.diagnosis()
}

//! Audit log of operations performed from the command line. The transaction that performs an operation also writes an entry to
//! `queue.audit`, as in the dashboard.

use std::ops::{Deref, DerefMut};

use queue_core::{Error, Queue, Store, operate::Note};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

/// Statement that begins an operation's transaction. The isolation level is set explicitly, because the role's default level may cause
/// serialization failures.
const BEGIN: &str = "begin isolation level read committed";

/// Transaction that records its operation in the audit log on commit, and rolls back on drop.
pub(super) struct AuditedTransaction {
    transaction: Transaction<'static, Postgres>,
    store: Store,
}

impl AuditedTransaction {
    pub(super) async fn begin(pool: &PgPool, store: Store) -> Result<Self, Error> {
        Ok(Self { transaction: pool.begin_with(BEGIN).await?, store })
    }

    /// Records the operation, its target and the number of jobs in the audit log, then commits.
    pub(super) async fn commit(mut self, act: &str, what: impl Into<String>, jobs: u64) -> Result<(), Error> {
        Queue::on(&mut self.transaction).store(self.store).record_operation(&audit_note(act, what), jobs).await?;
        Ok(self.transaction.commit().await?)
    }
}

impl Deref for AuditedTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for AuditedTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

/// Returns the audit note for an operation. The actor is the user who runs the command.
pub(super) fn audit_note(act: &str, what: impl Into<String>) -> Note {
    Note { actor: current_actor(), act: act.to_owned(), what: what.into() }
}

/// Returns the actor, such as `ada@host, by the command line`. The user name comes from the environment and can be forged. The audit log
/// therefore also records the database role.
fn current_actor() -> String {
    let setting = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
    let user = ["SUDO_USER", "USER", "LOGNAME", "USERNAME"].into_iter().find_map(setting).or_else(user_id);
    let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    // Only `user@host` is truncated, so that the suffix is kept.
    let who: String = format!("{}@{host}", user.unwrap_or_else(|| "unknown".to_owned())).chars().take(MAX_NAME).collect();
    format!("{who}, by the command line")
}

/// Maximum length of `user@host` in characters. With the suffix, an actor has at most 100 characters.
const MAX_NAME: usize = 70;

/// Returns the user id, for environments without a user name, such as containers.
#[cfg(unix)]
fn user_id() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").ok().map(|process| format!("uid {}", process.uid()))
}

#[cfg(not(unix))]
fn user_id() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_has_a_user_and_a_host_and_fits() {
        let actor = audit_note("cancelled", "job 1").actor;
        let (user, rest) = actor.split_once('@').unwrap();
        assert!(!user.is_empty() && rest.ends_with(", by the command line") && actor.chars().count() <= 100, "{actor}");
        assert!(user_id().is_none_or(|number| number.starts_with("uid ")));
    }
}

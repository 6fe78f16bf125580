//! What is done from the command line is noted in the transaction that does it, as what is done on the dashboard is: `queue.audit`.

use std::ops::{Deref, DerefMut};

use queue_core::{
    Store,
    operate::{self, Note},
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::problem::Problem;

/// At the isolation at which nothing fails because another does something at the same time, whatever the login's is.
const BEGIN: &str = "begin isolation level read committed";

/// A transaction that does something, and notes it when it is committed. Dropped, it has done nothing.
pub(super) struct Noted {
    transaction: Transaction<'static, Postgres>,
    store: Store,
}

impl Noted {
    pub(super) async fn begin(pool: &PgPool, store: Store) -> Result<Self, Problem> {
        Ok(Self { transaction: pool.begin_with(BEGIN).await?, store })
    }

    /// Makes it last, and noted: what was done, to what, and to how many jobs.
    pub(super) async fn commit(mut self, act: &str, what: impl Into<String>, jobs: u64) -> Result<(), Problem> {
        operate::note_act(&mut *self.transaction, self.store, &note(act, what), jobs).await?;
        Ok(self.transaction.commit().await?)
    }
}

impl Deref for Noted {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for Noted {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

/// What is noted of an act of whoever has called the command.
pub(super) fn note(act: &str, what: impl Into<String>) -> Note {
    Note { actor: actor(), act: act.to_owned(), what: what.into() }
}

/// `ada@host, by the command line`: as the operating system's environment has it. The database's role is noted beside it, and is true.
fn actor() -> String {
    let said = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
    let user = ["SUDO_USER", "USER", "LOGNAME", "USERNAME"].into_iter().find_map(said).or_else(number);
    let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    // The end says how it was done, so a long name does not push it out.
    let who: String = format!("{}@{host}", user.unwrap_or_else(|| "somebody".to_owned())).chars().take(MOST).collect();
    format!("{who}, by the command line")
}

/// A note has 100 characters for this.
const MOST: usize = 70;

/// The user's number, where no variable has a name: in a container, above all.
#[cfg(unix)]
fn number() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").ok().map(|process| format!("uid {}", process.uid()))
}

#[cfg(not(unix))]
fn number() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_is_somebody_on_a_machine_and_fits() {
        let actor = note("cancelled", "job 1").actor;
        let (user, rest) = actor.split_once('@').unwrap();
        assert!(!user.is_empty() && rest.ends_with(", by the command line") && actor.chars().count() <= 100, "{actor}");
        assert!(number().is_none_or(|number| number.starts_with("uid ")));
    }
}

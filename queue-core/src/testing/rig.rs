//! What stands in for the worker and the store while one attempt runs in a test: it keeps what the attempt says, and lends it the test's
//! transaction.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{Postgres, Transaction};
use tokio::{sync::OwnedMutexGuard, time::timeout};

use crate::{
    begin::{Ruling, Said},
    context::Lent,
    error::Error,
    progress::Progress,
    record::JobId,
    report::Entry,
};

/// So long a handler waits for a transaction that another part of it holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the handler wrote since goes when its attempt fails.
pub(super) const SAVE: &str = "savepoint queue_attempt";
const UNDO: &str = "rollback to savepoint queue_attempt";
pub(super) const DROP: &str = "rollback to savepoint queue_attempt; release savepoint queue_attempt";

/// What the handler wrote is to stay. Constraints that it deferred are checked, as its commit would.
pub(super) const KEEP: &str = "set constraints all immediate; release savepoint queue_attempt";

#[derive(Debug, Default)]
pub(crate) struct Rig {
    lent: Option<Lent>,
    notes: Mutex<Notes>,
}

/// What one attempt has said.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) progress: Progress,
    pub(super) checkpoint: Option<String>,
    pub(super) said: Option<Said>,
    /// Whether there is anything to be written.
    pub(super) changed: bool,
}

impl Rig {
    pub(super) fn new(attempt: u32, checkpoint: Option<String>, lent: Option<Lent>) -> Self {
        let progress = Progress { attempt: i16::try_from(attempt).unwrap_or(i16::MAX), ..Progress::default() };
        Self { lent, notes: Mutex::new(Notes { progress, checkpoint, ..Notes::default() }) }
    }

    pub(crate) fn checkpoint(&self) -> Option<String> {
        self.notes().checkpoint.clone()
    }

    /// Keeps what would be written in the store.
    pub(super) fn note(&self, entry: &Entry) {
        let mut notes = self.notes();
        notes.progress.fraction = entry.fraction;
        notes.progress.stage.clone_from(&entry.stage);
        // Written by us, from such a map.
        notes.progress.counts = serde_json::from_str(&entry.counts).unwrap_or_default();
        if entry.checkpoint.is_some() {
            notes.checkpoint.clone_from(&entry.checkpoint);
        }
        notes.changed = true;
    }

    pub(super) fn take(&self) -> Notes {
        std::mem::take(&mut *self.notes())
    }

    /// The test's transaction, without what a transaction that was begun before has left there.
    pub(crate) async fn lend(&self, job: JobId) -> Result<OwnedMutexGuard<Transaction<'static, Postgres>>, Error> {
        let lent = self.lent.as_ref().ok_or(Error::NoTransaction { job })?;
        let mut tx = timeout(PATIENCE, Arc::clone(lent).lock_owned()).await.map_err(|_| Error::NoTransaction { job })?;
        sqlx::raw_sql(UNDO).execute(&mut **tx).await?;
        Ok(tx)
    }

    /// Keeps what a handler's own transaction wrote, and what it said with it, as its commit would.
    pub(crate) async fn keep(&self, tx: &mut Transaction<'static, Postgres>, said: Said) -> Ruling {
        match sqlx::raw_sql(KEEP).execute(&mut **tx).await {
            Ok(_) => {
                self.notes().said = Some(said);
                Ruling::Written
            }
            Err(error) => Ruling::Undone(Error::Database(error).into()),
        }
    }

    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

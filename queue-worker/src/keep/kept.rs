//! Logs which transactions keep jobs waiting: those that have locked a row or a table that hints depend on.

use std::time::{Duration, Instant};

use queue_core::{JobId, Store};

use crate::{
    error::{complain, is_locked},
    live::{Link, LockHolder, bounded, lock_holders},
};

/// A transaction is logged once two looks in a row have found it.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOG_EVERY: Duration = Duration::from_mins(1);

const LOCKED: &str = "an open transaction has locked a row or a table of jobs that wait for others: these go on once it ends, all others go on now; \
    if it is stuck, end it with `select pg_terminate_backend(PID)`, or with `rollback prepared 'NAME'` if it is a prepared one";

/// A lock on a table or on one of its rows, and a job that waits for it. Job and transaction are unknown if the table is locked against readers.
#[derive(sqlx::FromRow)]
struct Lock {
    #[sqlx(flatten)]
    by: LockHolder,
    prepared: Option<String>,
    transaction: Option<String>,
    job: Option<JobId>,
    #[sqlx(skip)]
    logged: Option<Instant>,
}

impl Lock {
    fn is_still(&self, before: &Self) -> bool {
        (&self.by.relation, self.by.pid, &self.transaction) == (&before.by.relation, before.by.pid, &before.transaction)
    }

    fn log(&self) {
        let (by, job) = (&self.by, self.job.map(|job| job.to_string()));
        tracing::warn!(
            table = by.relation,
            pid = by.pid,
            role = by.role,
            application = by.application,
            prepared = self.prepared,
            job,
            "{LOCKED}"
        );
    }
}

/// What the last look has found.
#[derive(Default)]
pub(super) struct Kept {
    found: Vec<Lock>,
    looked: Option<Instant>,
}

impl Kept {
    /// Looks every five seconds, and logs what has stayed. Call it as long as there are hints.
    pub(super) async fn look(&mut self, link: &mut Link, store: Store) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let mut found = match locks(link, store).await {
            Ok(found) => found,
            Err(error) => return complain(&error, "cannot see what keeps jobs waiting; trying again"),
        };
        for lock in &mut found {
            let Some(before) = self.found.iter().find(|before| lock.is_still(before)) else { continue };
            lock.logged = before.logged;
            if lock.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                lock.logged = Some(Instant::now());
                lock.log();
            }
        }
        self.found = found;
    }
}

async fn locks(link: &mut Link, store: Store) -> sqlx::Result<Vec<Lock>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/kept_hints.sql")));
    let found = bounded(statement.fetch_all(link.get().await?)).await;
    match link.note(found) {
        Err(error) if is_locked(&error) => {
            let of_table = |by| Lock { by, prepared: None, transaction: None, job: None, logged: None };
            Ok(lock_holders(link, store).await?.into_iter().map(of_table).collect())
        }
        found => found,
    }
}

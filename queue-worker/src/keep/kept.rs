//! Hints that stay because somebody has locked what their jobs wait for: whoever that is, the log names.

use std::time::{Duration, Instant};

use queue_core::{JobId, Store};

use crate::{
    error::{complain, is_locked},
    live::{Link, LockHolder, bounded, lock_holders},
};

/// Whoever keeps the same job waiting at two looks in a row is named.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOG_EVERY: Duration = Duration::from_mins(1);

const LOCKED: &str = "an open transaction has locked a row or a table of jobs that wait for others: these go on once it ends, all others go on now; \
    if it is stuck, end it with `select pg_terminate_backend(PID)`";

/// What is locked, by whom, and a job that waits for it. The job is unknown where the table is locked against readers.
#[derive(PartialEq, sqlx::FromRow)]
struct Lock {
    #[sqlx(flatten)]
    by: LockHolder,
    job: Option<JobId>,
}

/// What is known of such locks.
#[derive(Default)]
pub(super) struct Kept {
    /// What the last look has found.
    found: Vec<Lock>,
    looked: Option<Instant>,
    logged: Option<Instant>,
}

impl Kept {
    /// Looks now and then. To be called as long as there are hints.
    pub(super) async fn look(&mut self, link: &mut Link, store: Store) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let found = match locks(link, store).await {
            Ok(found) => found,
            Err(error) => return complain(&error, "cannot see what keeps jobs waiting; trying again"),
        };
        let stays = found.iter().find(|lock| self.found.contains(lock));
        if let Some(Lock { by, job }) = stays
            && self.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY)
        {
            self.logged = Some(Instant::now());
            let job = job.map(|job| job.to_string());
            tracing::warn!(table = by.relation, pid = by.pid, role = by.role, application = by.application, job, "{LOCKED}");
        }
        self.found = found;
    }
}

async fn locks(link: &mut Link, store: Store) -> sqlx::Result<Vec<Lock>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/kept_hints.sql")));
    let found = bounded(statement.fetch_all(link.get().await?)).await;
    match link.note(found) {
        Err(error) if is_locked(&error) => Ok(lock_holders(link, store).await?.into_iter().map(|by| Lock { by, job: None }).collect()),
        found => found,
    }
}

//! Logs open transactions whose locks on rows or tables prevent waiting jobs from becoming ready.

use std::time::{Duration, Instant};

use queue_core::{JobId, Store};

use crate::{
    error::{is_locked, warn_throttled},
    live::{LockHolder, StoreConnection, bounded, lock_holders},
};

/// Interval between probes for locks. A lock is logged if two consecutive probes find it.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const LOG_INTERVAL: Duration = Duration::from_mins(1);

const LOCKED_MESSAGE: &str = "an open transaction has locked a row or a table of waiting jobs: these jobs wait until it ends, all others continue; \
    if it is stuck, end it with `select pg_terminate_backend(PID)`, or with `rollback prepared 'NAME'` if it is a prepared one";

/// Lock on a table or on one of its rows, with one job that is waiting for the lock. If the table is locked against readers, the job and
/// the id of the locking transaction are unknown.
#[derive(sqlx::FromRow)]
struct HintLock {
    #[sqlx(flatten)]
    holder: LockHolder,
    prepared: Option<String>,
    transaction: Option<String>,
    job: Option<JobId>,
    #[sqlx(skip)]
    logged: Option<Instant>,
}

impl HintLock {
    fn is_same(&self, before: &Self) -> bool {
        (&self.holder.relation, self.holder.pid, &self.transaction) == (&before.holder.relation, before.holder.pid, &before.transaction)
    }

    fn log(&self) {
        let (holder, job) = (&self.holder, self.job.map(|job| job.to_string()));
        tracing::warn!(
            table = holder.relation,
            pid = holder.pid,
            role = holder.role,
            application = holder.application,
            prepared = self.prepared,
            job,
            "{LOCKED_MESSAGE}"
        );
    }
}

/// Watcher for locks that block waiting jobs. Contains the locks found by the last probe, and the time of the probe.
#[derive(Default)]
pub(super) struct LockWatcher {
    found: Vec<HintLock>,
    probed_at: Option<Instant>,
}

impl LockWatcher {
    /// Probes for locks at most every five seconds. Logs locks that the previous probe also found.
    pub(super) async fn probe(&mut self, link: &mut StoreConnection, store: Store) {
        if self.probed_at.is_some_and(|at| at.elapsed() < PROBE_INTERVAL) {
            return;
        }
        self.probed_at = Some(Instant::now());
        let mut found = match query_locks(link, store).await {
            Ok(found) => found,
            Err(error) => return warn_throttled(&error, "cannot find the transactions that keep jobs waiting; retrying"),
        };
        for lock in &mut found {
            let Some(before) = self.found.iter().find(|before| lock.is_same(before)) else { continue };
            lock.logged = before.logged;
            if lock.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                lock.logged = Some(Instant::now());
                lock.log();
            }
        }
        self.found = found;
    }
}

async fn query_locks(link: &mut StoreConnection, store: Store) -> sqlx::Result<Vec<HintLock>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/kept_hints.sql")));
    let found = bounded(statement.fetch_all(link.get().await?)).await;
    match link.note(found) {
        Err(error) if is_locked(&error) => {
            let of_table = |holder| HintLock { holder, prepared: None, transaction: None, job: None, logged: None };
            Ok(lock_holders(link, store).await?.into_iter().map(of_table).collect())
        }
        found => found,
    }
}

//! Verdicts that wait for locks held by other sessions. These verdicts are deferred until the locks are released. Other verdicts are
//! written in the meantime.
//!
//! A settle waits for a lock for at most a quarter of a second. After that timeout, this module queries the locks and the sessions that
//! hold them. The lock is either on the rows of single verdicts, or on a table that the settle statement writes to.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use tokio::time::sleep_until;
use uuid::Uuid;

use super::{
    pending::SettleBatch,
    send::{SettleStatement, WholeLease},
    settlement::Settlement,
};
use crate::live::{LockHolder, StoreConnection, bounded, lock_holders};

/// Interval at which the settle loop checks whether locks have been released.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Minimum interval between log lines about a lock.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Retry delay for a verdict whose lock could not be identified.
const UNIDENTIFIED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Number of deferred verdicts at which the settle loop stops accepting new verdicts.
const MAX_DEFERRED: usize = 20_000;

/// Maximum number of deferred verdicts that are written in one batch once their locks are released.
const MAX_UNLOCKED: usize = 1000;

const LOCKED: &str = "an open transaction has locked rows or tables that verdicts of this worker are written to; these verdicts wait until \
    it ends, others are written; if it is stuck, end it with `select pg_terminate_backend(PID)`";

/// Locked row, and the session that holds the lock.
#[derive(sqlx::FromRow)]
struct LockedRow {
    token: Option<Uuid>,
    job: Option<JobId>,
    #[sqlx(flatten)]
    holder: LockHolder,
}

/// Loads the locked rows of the leases `tokens`, and the locked rows of `jobs` in all tables that verdicts are written to.
async fn load_locked_rows(connection: &mut StoreConnection, store: Store, tokens: &[Uuid], jobs: &[JobId]) -> sqlx::Result<Vec<LockedRow>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/locked_rows.sql"))).bind(tokens).bind(jobs);
    let locked = bounded(statement.fetch_all(connection.get().await?)).await;
    connection.note(locked)
}

/// Returns the locked leases among `tokens`, each with the lock holder's process id as text, or `?` if the process is unknown.
pub(super) async fn load_lock_holder_pids(
    connection: &mut StoreConnection,
    store: Store,
    tokens: HashSet<Uuid>,
) -> sqlx::Result<HashMap<Uuid, String>> {
    let locked = load_locked_rows(connection, store, &tokens.into_iter().collect::<Vec<_>>(), &[]).await?;
    let pid = |row: &LockedRow| row.holder.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    Ok(locked.iter().filter_map(|row| Some((row.token?, pid(row)))).collect())
}

/// Verdicts that are deferred because of locks.
#[derive(Default)]
pub(super) struct LockedVerdicts {
    verdicts: Vec<Settlement>,
    /// Deferred leases whose jobs have all ended.
    leases: Vec<WholeLease>,
    /// Statements that write to a locked table. All verdicts of these statements are deferred.
    blocked: HashSet<SettleStatement>,
    /// Verdicts whose lock could not be identified.
    unidentified: Vec<Settlement>,
    /// Time at which `unidentified` is retried next.
    unidentified_retry: Option<Instant>,
    /// Time at which the locks are checked next.
    next_check: Option<Instant>,
    last_log: Option<Instant>,
}

impl LockedVerdicts {
    /// Returns the time of the next lock check or retry of unidentified verdicts, whichever is earlier.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.next_check.into_iter().chain(self.unidentified_retry).min()
    }

    pub(super) fn is_full(&self) -> bool {
        let in_leases: usize = self.leases.iter().map(|(_, jobs)| jobs.len()).sum();
        self.verdicts.len() + self.unidentified.len() + in_leases >= MAX_DEFERRED
    }

    pub(super) async fn wait_for_check(&self) {
        if let Some(due) = self.next_check() {
            sleep_until(due.into()).await;
        }
    }

    /// Returns whether verdicts of `statement` are waiting for a locked table.
    pub(super) fn is_blocked(&self, statement: SettleStatement) -> bool {
        self.blocked.contains(&statement)
    }

    /// Defers verdicts whose statement is blocked or whose rows are locked.
    pub(super) fn defer(&mut self, verdicts: Vec<Settlement>) {
        self.verdicts.extend(verdicts);
    }

    /// Defers a verdict that waits for a lock with an unknown holder.
    pub(super) fn defer_unidentified(&mut self, settlement: Settlement) {
        let (job, verdict) = (settlement.id, settlement.ending.verdict_name());
        tracing::warn!(%job, verdict, "verdict waits for a lock whose holder is unknown; retrying in {UNIDENTIFIED_RETRY_DELAY:?}, \
            other verdicts are written; query pg_locks for the holder");
        self.unidentified.push(settlement);
        self.unidentified_retry = Some(Instant::now() + UNIDENTIFIED_RETRY_DELAY);
    }

    /// Defers the verdicts that must wait, and removes them from `verdicts`. If the settle statement writes to a locked table, all verdicts
    /// must wait. Otherwise, only verdicts with a locked row must wait. Returns whether a verdict was deferred.
    pub(super) async fn defer_locked(&mut self, connection: &mut StoreConnection, store: Store, verdicts: &mut Vec<Settlement>) -> bool {
        let first = verdicts.first().map(|settlement| (settlement.id, SettleStatement::of(settlement)));
        let Some((id, statement)) = first else { return false };
        let holders = load_table_lock_holders(connection, store, statement).await.unwrap_or_default();
        if !holders.is_empty() {
            self.next_check = Some(Instant::now() + CHECK_INTERVAL);
            self.blocked.insert(statement);
            self.log_holder(holders.iter(), Some(id), verdicts.len());
            self.defer(std::mem::take(verdicts));
            return true;
        }
        let Ok(locked) = LockProbe::of(verdicts.iter(), &[]).load(connection, store).await else { return false };
        let waiting: Vec<_> = verdicts.extract_if(.., |settlement| locked.contains(settlement)).collect();
        if waiting.is_empty() {
            return false;
        }
        self.next_check = Some(Instant::now() + CHECK_INTERVAL);
        self.log_holder(locked.holders.iter(), waiting.first().map(|settlement| settlement.id), waiting.len());
        self.defer(waiting);
        true
    }

    /// Defers the leases with locked rows, and removes them from `leases`. Returns whether a lease was deferred.
    pub(super) async fn defer_locked_leases(
        &mut self,
        connection: &mut StoreConnection,
        store: Store,
        leases: &mut Vec<WholeLease>,
    ) -> bool {
        let Ok(locked) = LockProbe::of([].iter(), leases).load(connection, store).await else { return false };
        let waiting: Vec<_> = leases.extract_if(.., |(token, _)| locked.tokens.contains(token)).collect();
        let Some((_, jobs)) = waiting.first() else { return false };
        self.next_check = Some(Instant::now() + CHECK_INTERVAL);
        self.log_holder(locked.holders.iter(), jobs.first().map(|settlement| settlement.id), waiting.len());
        self.leases.extend(waiting);
        true
    }

    /// Takes the verdicts and leases whose locks have been released. Also takes the verdicts with an unidentified lock once their retry
    /// is due.
    pub(super) async fn take_unlocked(&mut self, connection: &mut StoreConnection, store: Store) -> SettleBatch {
        let now = Instant::now();
        let mut unlocked = SettleBatch::default();
        if self.unidentified_retry.is_some_and(|at| at <= now) {
            self.unidentified_retry = None;
            unlocked.verdicts.append(&mut self.unidentified);
        }
        if self.next_check.is_none_or(|next| next > now) {
            return unlocked;
        }
        self.next_check = Some(now + CHECK_INTERVAL);
        let mut holders = Vec::new();
        for statement in self.blocked.clone() {
            match load_table_lock_holders(connection, store, statement).await {
                Ok(of_statement) if of_statement.is_empty() => drop(self.blocked.remove(&statement)),
                Ok(of_statement) => holders.extend(of_statement),
                Err(_) => {}
            }
        }
        let is_open = |settlement: &&Settlement| !self.blocked.contains(&SettleStatement::of(settlement));
        let probe = LockProbe::of(self.verdicts.iter().filter(is_open), &self.leases);
        let Ok(locked) = probe.load(connection, store).await else { return unlocked };
        let blocked = &self.blocked;
        let is_unlocked = |settlement: &mut Settlement| !blocked.contains(&SettleStatement::of(settlement)) && !locked.contains(settlement);
        unlocked.verdicts.extend(self.verdicts.extract_if(.., is_unlocked).take(MAX_UNLOCKED));
        if unlocked.verdicts.len() >= MAX_UNLOCKED {
            self.next_check = Some(now);
        }
        unlocked.leases.extend(self.leases.extract_if(.., |(token, _)| !locked.tokens.contains(token)));
        holders.extend(locked.holders);
        if self.verdicts.is_empty() && self.leases.is_empty() {
            (self.next_check, self.last_log) = (None, None);
        } else {
            let first = self.verdicts.first().or_else(|| self.leases.first()?.1.first()).map(|settlement| settlement.id);
            self.log_holder(holders.iter(), first, self.verdicts.len() + self.leases.len());
        }
        unlocked
    }

    /// Logs the first lock holder at most once per [`LOG_INTERVAL`], with the first waiting job and the number of waiting verdicts. A whole
    /// lease counts as one verdict.
    fn log_holder<'a>(&mut self, mut holders: impl Iterator<Item = &'a LockHolder>, job: Option<JobId>, waiting: usize) {
        if let Some(holder) = holders.next()
            && self.last_log.is_none_or(|last| last.elapsed() >= LOG_INTERVAL)
        {
            self.last_log = Some(Instant::now());
            let job = job.map(|job| job.to_string());
            let LockHolder { relation, pid, role, application } = holder;
            tracing::warn!(table = relation, pid, role, application, job, waiting, "{LOCKED}");
        }
    }
}

/// Loads the sessions that hold or await locks on tables that `statement` writes to.
async fn load_table_lock_holders(
    connection: &mut StoreConnection,
    store: Store,
    statement: SettleStatement,
) -> sqlx::Result<Vec<LockHolder>> {
    let holders = lock_holders(connection, store).await?;
    Ok(holders.into_iter().filter(|holder| statement.writes_to(&holder.relation)).collect())
}

/// Leases and jobs to check for locked rows.
struct LockProbe {
    tokens: HashSet<Uuid>,
    jobs: HashSet<JobId>,
}

impl LockProbe {
    /// Creates a probe for `leases` and for the leases of all verdicts. The probe also covers jobs whose verdicts may wait for locks on
    /// the jobs' rows.
    fn of<'a>(verdicts: impl Iterator<Item = &'a Settlement> + Clone, leases: &[WholeLease]) -> Self {
        let tokens = verdicts.clone().map(|settlement| settlement.token).chain(leases.iter().map(|(token, _)| *token)).collect();
        let jobs = verdicts.filter(|settlement| SettleStatement::locks_job(settlement)).map(|settlement| settlement.id).collect();
        Self { tokens, jobs }
    }

    /// Loads the rows that other sessions have locked.
    async fn load(self, connection: &mut StoreConnection, store: Store) -> sqlx::Result<LockedRows> {
        let (tokens, jobs): (Vec<Uuid>, Vec<JobId>) = (self.tokens.into_iter().collect(), self.jobs.into_iter().collect());
        let rows = load_locked_rows(connection, store, &tokens, &jobs).await?;
        let (tokens, jobs) = (rows.iter().filter_map(|row| row.token).collect(), rows.iter().filter_map(|row| row.job).collect());
        Ok(LockedRows { tokens, jobs, holders: rows.into_iter().map(|row| row.holder).collect() })
    }
}

/// Locked leases and jobs, with the lock holders.
struct LockedRows {
    tokens: HashSet<Uuid>,
    jobs: HashSet<JobId>,
    holders: Vec<LockHolder>,
}

impl LockedRows {
    fn contains(&self, settlement: &Settlement) -> bool {
        self.tokens.contains(&settlement.token) || self.jobs.contains(&settlement.id)
    }
}

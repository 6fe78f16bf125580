//! Verdicts that wait for what another session has locked: they stand apart until that ends, and all others are written meanwhile.
//!
//! A settle waits for a lock for a quarter of a second, which costs one that need not wait nothing. Then this file asks what is locked, and by whom: a
//! row of some of them, or a table that their statement writes to.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use tokio::time::sleep_until;
use uuid::Uuid;

use super::{
    send::{Statement, Whole},
    settlement::Settlement,
    unsettled::Flush,
};
use crate::live::{Link, LockHolder, bounded, lock_holders};

/// Between two looks whether they are free.
const PAUSE: Duration = Duration::from_millis(500);

/// Interval of the log line while it lasts.
const TOLD: Duration = Duration::from_mins(1);

/// Before those are tried again of which it is not known what they wait for.
const PUT_OFF: Duration = Duration::from_secs(10);

/// With more verdicts than these no further ones are taken in.
const MOST: usize = 20_000;

/// The most of those that are free in one statement.
const AT_ONCE: usize = 1000;

const LINE: &str = "an open transaction has locked what verdicts of this worker are written to: these wait until it ends, others go on; if it is \
    stuck, end it with `select pg_terminate_backend(PID)`";

/// A row that is locked, and by whom.
#[derive(sqlx::FromRow)]
struct LockedRow {
    token: Option<Uuid>,
    job: Option<JobId>,
    #[sqlx(flatten)]
    by: LockHolder,
}

/// Rows that others have locked, of these leases, of these jobs, and of the keys of these.
async fn locked_rows(link: &mut Link, store: Store, tokens: &[Uuid], jobs: &[JobId]) -> sqlx::Result<Vec<LockedRow>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/locked_rows.sql"))).bind(tokens).bind(jobs);
    let locked = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(locked)
}

/// Who has locked which of these leases: pids as text.
pub(super) async fn pids(link: &mut Link, store: Store, tokens: HashSet<Uuid>) -> sqlx::Result<HashMap<Uuid, String>> {
    let locked = locked_rows(link, store, &tokens.into_iter().collect::<Vec<_>>(), &[]).await?;
    let pid = |lock: &LockedRow| lock.by.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    Ok(locked.iter().filter_map(|lock| Some((lock.token?, pid(lock)))).collect())
}

/// The verdicts that wait.
#[derive(Default)]
pub(super) struct Locked {
    verdicts: Vec<Settlement>,
    /// Of leases that completed as a whole.
    whole: Vec<Whole>,
    /// Statements that write to a table that is locked: all their verdicts wait.
    shut: HashSet<Statement>,
    /// Those of which it is not known what they wait for, and when they are tried again.
    unknown: Vec<Settlement>,
    unknown_at: Option<Instant>,
    next: Option<Instant>,
    told: Option<Instant>,
}

impl Locked {
    /// When to look again whether they are free.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.into_iter().chain(self.unknown_at).min()
    }

    pub(super) fn is_full(&self) -> bool {
        self.verdicts.len() + self.unknown.len() + self.whole.iter().map(|(_, jobs)| jobs.len()).sum::<usize>() >= MOST
    }

    /// Until the next look.
    pub(super) async fn wait(&self) {
        if let Some(due) = self.due() {
            sleep_until(due.into()).await;
        }
    }

    /// Whether verdicts of this statement wait for a table.
    pub(super) fn is_shut(&self, statement: Statement) -> bool {
        self.shut.contains(&statement)
    }

    /// Keeps verdicts of a statement that is shut.
    pub(super) fn put(&mut self, verdicts: Vec<Settlement>) {
        self.verdicts.extend(verdicts);
    }

    /// Keeps one that waits for something that is none of what is asked for here, for a while.
    pub(super) fn put_off(&mut self, one: Settlement) {
        tracing::warn!(job = %one.id, verdict = one.ending.word(), "this verdict waits for a lock whose holder is not known (look into pg_locks); \
            others go on, and it is retried");
        self.unknown.push(one);
        self.unknown_at = Some(Instant::now() + PUT_OFF);
    }

    /// Takes those out of these verdicts that have to wait: all if a table is locked that they are written to, else those of which a row is. Returns
    /// whether there were any.
    pub(super) async fn take(&mut self, link: &mut Link, store: Store, verdicts: &mut Vec<Settlement>) -> bool {
        let Some((id, statement)) = verdicts.first().map(|one| (one.id, Statement::of(one))) else { return false };
        let tables = tables(link, store, statement).await.unwrap_or_default();
        if !tables.is_empty() {
            self.next = Some(Instant::now() + PAUSE);
            self.shut.insert(statement);
            self.tell(tables.iter(), Some(id), verdicts.len());
            self.put(std::mem::take(verdicts));
            return true;
        }
        let Ok(locks) = Rows::of(verdicts.iter(), &[]).locked(link, store).await else { return false };
        let waiting: Vec<_> = verdicts.extract_if(.., |one| locks.have(one)).collect();
        if waiting.is_empty() {
            return false;
        }
        self.next = Some(Instant::now() + PAUSE);
        self.tell(locks.by.iter(), waiting.first().map(|one| one.id), waiting.len());
        self.put(waiting);
        true
    }

    /// Takes those out of these whole leases whose rows are locked; returns whether there were any.
    pub(super) async fn take_whole(&mut self, link: &mut Link, store: Store, whole: &mut Vec<Whole>) -> bool {
        let Ok(locks) = Rows::of([].iter(), whole).locked(link, store).await else { return false };
        let waiting: Vec<_> = whole.extract_if(.., |(token, _)| locks.tokens.contains(token)).collect();
        let Some((_, jobs)) = waiting.first() else { return false };
        self.next = Some(Instant::now() + PAUSE);
        self.tell(locks.by.iter(), jobs.first().map(|one| one.id), waiting.len());
        self.whole.extend(waiting);
        true
    }

    /// Those that need not wait any more.
    pub(super) async fn free(&mut self, link: &mut Link, store: Store) -> Flush {
        let now = Instant::now();
        let mut free = Flush::default();
        if self.unknown_at.is_some_and(|at| at <= now) {
            self.unknown_at = None;
            free.verdicts.append(&mut self.unknown);
        }
        if self.next.is_none_or(|next| next > now) {
            return free;
        }
        self.next = Some(now + PAUSE);
        let mut holders = Vec::new();
        for statement in self.shut.clone() {
            match tables(link, store, statement).await {
                Ok(tables) if tables.is_empty() => drop(self.shut.remove(&statement)),
                Ok(tables) => holders.extend(tables),
                Err(_) => {}
            }
        }
        let is_open = |one: &&Settlement| !self.shut.contains(&Statement::of(one));
        let Ok(locks) = Rows::of(self.verdicts.iter().filter(is_open), &self.whole).locked(link, store).await else { return free };
        let shut = &self.shut;
        let is_free = |one: &mut Settlement| !shut.contains(&Statement::of(one)) && !locks.have(one);
        free.verdicts.extend(self.verdicts.extract_if(.., is_free).take(AT_ONCE));
        if free.verdicts.len() >= AT_ONCE {
            self.next = Some(now);
        }
        free.whole.extend(self.whole.extract_if(.., |(token, _)| !locks.tokens.contains(token)));
        holders.extend(locks.by);
        if self.verdicts.is_empty() && self.whole.is_empty() {
            (self.next, self.told) = (None, None);
        } else {
            let first = self.verdicts.first().or_else(|| self.whole.first()?.1.first()).map(|one| one.id);
            self.tell(holders.iter(), first, self.verdicts.len() + self.whole.len());
        }
        free
    }

    /// Says now and then what is locked, by whom, and how many verdicts wait for it, this job's the first of them.
    fn tell<'a>(&mut self, mut holders: impl Iterator<Item = &'a LockHolder>, job: Option<JobId>, waiting: usize) {
        if let Some(by) = holders.next()
            && self.told.is_none_or(|told| told.elapsed() >= TOLD)
        {
            self.told = Some(Instant::now());
            let job = job.map(|job| job.to_string());
            tracing::warn!(table = by.relation, pid = by.pid, role = by.role, application = by.application, job, waiting, "{LINE}");
        }
    }
}

/// Tables that this statement writes to and that others have locked.
async fn tables(link: &mut Link, store: Store, statement: Statement) -> sqlx::Result<Vec<LockHolder>> {
    let holders = lock_holders(link, store).await?;
    Ok(holders.into_iter().filter(|holder| statement.writes_to(&holder.relation)).collect())
}

/// The rows that verdicts wait for.
struct Rows {
    tokens: HashSet<Uuid>,
    jobs: HashSet<JobId>,
}

impl Rows {
    /// Of leases, and of jobs whose verdicts write to more than their lease.
    fn of<'a>(verdicts: impl Iterator<Item = &'a Settlement> + Clone, whole: &[Whole]) -> Self {
        let tokens = verdicts.clone().map(|one| one.token).chain(whole.iter().map(|(token, _)| *token)).collect();
        Self { tokens, jobs: verdicts.filter(|one| Statement::touches_job(one)).map(|one| one.id).collect() }
    }

    /// Those that others have locked.
    async fn locked(self, link: &mut Link, store: Store) -> sqlx::Result<Locks> {
        let (tokens, jobs): (Vec<Uuid>, Vec<JobId>) = (self.tokens.into_iter().collect(), self.jobs.into_iter().collect());
        let rows = locked_rows(link, store, &tokens, &jobs).await?;
        let (tokens, jobs) = (rows.iter().filter_map(|row| row.token).collect(), rows.iter().filter_map(|row| row.job).collect());
        Ok(Locks { tokens, jobs, by: rows.into_iter().map(|row| row.by).collect() })
    }
}

/// What of them is locked, and by whom.
struct Locks {
    tokens: HashSet<Uuid>,
    jobs: HashSet<JobId>,
    by: Vec<LockHolder>,
}

impl Locks {
    fn have(&self, one: &Settlement) -> bool {
        self.tokens.contains(&one.token) || self.jobs.contains(&one.id)
    }
}

//! Verdicts on leases that somebody's open transaction has locked: they wait apart until that ends, and all others are written meanwhile.
//!
//! A settle waits for a lease for two seconds, which costs one that need not wait nothing. Then this file asks which leases are locked, and by whom.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use queue_core::Store;
use tokio::time::sleep_until;
use uuid::Uuid;

use super::{settlement::Settlement, unsettled::Flush};
use crate::live::{Link, bounded};

/// Between two looks whether they are free.
const PAUSE: Duration = Duration::from_millis(500);

/// A line of the log says so this often while it lasts.
const TOLD: Duration = Duration::from_mins(1);

/// With more verdicts than these no further ones are taken in.
const MOST: usize = 20_000;

const LINE: &str = "somebody's open transaction has locked leases of this worker: the verdicts on their jobs are written once it ends, others go \
    on; if it is stuck, end it with `select pg_terminate_backend(PID)`";

/// A lease that is locked, and the session that has, if it is known: its pid, role and application.
pub(super) type LockedLease = (Uuid, Option<i32>, Option<String>, Option<String>);

/// Which of these leases others have locked.
pub(super) async fn locked_leases(link: &mut Link, store: Store, tokens: &[Uuid]) -> sqlx::Result<Vec<LockedLease>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/locked_leases.sql"))).bind(tokens);
    let locked = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(locked)
}

/// Who has locked which of these leases: pids as text.
pub(super) async fn pids(link: &mut Link, store: Store, tokens: HashSet<Uuid>) -> sqlx::Result<HashMap<Uuid, String>> {
    let locked = locked_leases(link, store, &tokens.into_iter().collect::<Vec<_>>()).await?;
    Ok(locked.into_iter().map(|(token, pid, ..)| (token, pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()))).collect())
}

/// Whether a lock was not to be had in time.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03")
}

/// The verdicts that wait.
#[derive(Default)]
pub(super) struct Locked {
    verdicts: HashMap<Uuid, Vec<Settlement>>,
    /// Of leases that completed as a whole.
    whole: HashMap<Uuid, Vec<Settlement>>,
    next: Option<Instant>,
    told: Option<Instant>,
}

impl Locked {
    /// When to look again whether they are free.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn is_full(&self) -> bool {
        self.verdicts.values().chain(self.whole.values()).map(Vec::len).sum::<usize>() >= MOST
    }

    /// Until the next look.
    pub(super) async fn wait(&self) {
        if let Some(due) = self.due() {
            sleep_until(due.into()).await;
        }
    }

    /// Takes those on locked leases out of these; returns whether there were any.
    pub(super) async fn take(&mut self, link: &mut Link, store: Store, verdicts: &mut Vec<Settlement>) -> bool {
        let tokens: HashSet<Uuid> = verdicts.iter().map(|one| one.token).collect();
        let locked = self.look(link, store, tokens.into_iter().collect()).await;
        let before = verdicts.len();
        for one in verdicts.extract_if(.., |one| locked.contains(&one.token)) {
            self.verdicts.entry(one.token).or_default().push(one);
        }
        verdicts.len() < before
    }

    /// The same of whole leases.
    pub(super) async fn take_whole(&mut self, link: &mut Link, store: Store, whole: &mut Vec<(Uuid, Vec<Settlement>)>) -> bool {
        let locked = self.look(link, store, whole.iter().map(|(token, _)| *token).collect()).await;
        let before = whole.len();
        self.whole.extend(whole.extract_if(.., |(token, _)| locked.contains(token)));
        whole.len() < before
    }

    /// Those whose leases are free again, or gone.
    pub(super) async fn free(&mut self, link: &mut Link, store: Store) -> Flush {
        let tokens: HashSet<Uuid> = self.verdicts.keys().chain(self.whole.keys()).copied().collect();
        let locked = self.look(link, store, tokens.into_iter().collect()).await;
        let verdicts = self.verdicts.extract_if(|token, _| !locked.contains(token)).flat_map(|(_, verdicts)| verdicts).collect();
        let flush = Flush { verdicts, whole: self.whole.extract_if(|token, _| !locked.contains(token)).collect() };
        if self.verdicts.is_empty() && self.whole.is_empty() {
            (self.next, self.told) = (None, None);
        }
        flush
    }

    /// Which of these are locked; all that wait already while that is not known. Says so now and then.
    async fn look(&mut self, link: &mut Link, store: Store, tokens: Vec<Uuid>) -> HashSet<Uuid> {
        self.next = Some(Instant::now() + PAUSE);
        let Ok(locked) = locked_leases(link, store, &tokens).await else {
            return self.verdicts.keys().chain(self.whole.keys()).copied().collect();
        };
        if let Some((lease, pid, role, application)) = locked.iter().max_by_key(|(_, pid, ..)| *pid)
            && self.told.is_none_or(|told| told.elapsed() >= TOLD)
        {
            self.told = Some(Instant::now());
            tracing::warn!(leases = locked.len(), %lease, pid, role, application, "{LINE}");
        }
        locked.into_iter().map(|(token, ..)| token).collect()
    }
}

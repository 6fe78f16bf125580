//! Verdicts that the server refuses to store: tried by themselves a few times, then parked. Nobody waits for them.
//!
//! A parked job leaves its lease: for a dead letter that says why, or for nothing if history has it already. `verdicts` decides what is refused.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::Counted};
use tokio::time::sleep_until;

use super::{
    send::{News, is_of_class, is_refusal, send},
    settlement::Settlement,
};
use crate::{
    error::complain,
    live::{Bell, Link, Vitals, bounded},
    tally::Tallies,
};

/// So many tries after the first, which is about seven seconds: what stood in the way may be mended meanwhile.
const TRIES: u32 = 3;

/// Before the first of them; each further one waits twice as long, up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// With more of them no further verdicts are taken in: then it is not these jobs that something is wrong with.
const MOST: usize = 1000;

/// The statement, not a value: a permission, a table that is gone, a faulty trigger. While no verdict at all can be written, no job is to blame.
const STATEMENT: [&str; 1] = ["42"];

/// Verdicts that were refused, in the order in which they were.
pub(super) struct Aside {
    refused: VecDeque<RefusedVerdict>,
    /// How many statements of others have been accepted.
    written: u64,
    /// Where what is written is counted.
    tallies: Tallies,
    vitals: Vitals,
    lease_ttl: Duration,
}

struct RefusedVerdict {
    one: Settlement,
    reason: String,
    tries: u32,
    next: Instant,
    /// Only once others were accepted after this many is it the verdict that is refused.
    since: Option<u64>,
}

/// What became of a job that was parked.
#[derive(Clone, Copy)]
enum Parked {
    Dead,
    Dropped,
    /// Others have the job.
    Lost,
}

impl Aside {
    pub(super) fn new(tallies: Tallies, vitals: Vitals, lease_ttl: Duration) -> Self {
        Self { refused: VecDeque::new(), written: 0, tallies, vitals, lease_ttl }
    }

    /// Others were accepted: these verdicts, but for those of which it is said that others have the jobs.
    pub(super) fn note_written<'a>(&mut self, verdicts: impl Iterator<Item = &'a Settlement>, is_lost: impl Fn(&Settlement) -> bool) {
        self.written += 1;
        self.tallies.note(verdicts.filter_map(|one| one.counted(is_lost(one))));
    }

    /// Where it is said how writing goes on.
    pub(super) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// For so long a lease is safe from others without a heartbeat.
    pub(super) fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    /// Where what is written is counted.
    pub(super) fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// Keeps a verdict that was refused.
    pub(super) fn put(&mut self, one: Settlement, error: &sqlx::Error) {
        let reason = queue_core::message(error);
        tracing::warn!(job = %one.id, verdict = one.ending.word(), error = reason, "the server refuses this verdict; others go on, and it is tried again");
        let since = is_of_class(error, &STATEMENT).then_some(self.written);
        self.refused.push_back(RefusedVerdict { one, reason, tries: 0, next: Instant::now() + PAUSE, since });
    }

    /// When the next is to be tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.refused.iter().map(|refused| refused.next).min()
    }

    pub(super) fn is_full(&self) -> bool {
        self.refused.len() >= MOST
    }

    /// Until the next is to be tried again.
    pub(super) async fn wait(&self) {
        if let Some(due) = self.due() {
            sleep_until(due.into()).await;
        }
    }

    /// Tries those again whose time has come, and parks those that were refused often enough.
    pub(super) async fn try_again(&mut self, link: &mut Link, store: Store, bell: &Bell) {
        let now = Instant::now();
        for _ in 0..self.refused.len() {
            let Some(refused) = self.refused.pop_front() else { break };
            if refused.next > now {
                self.refused.push_back(refused);
            } else if let Some(again) = self.try_one(link, store, bell, refused, TRIES).await {
                self.refused.push_back(again);
            }
        }
    }

    /// A last try of each; what is refused then is parked at once.
    pub(super) async fn finish(&mut self, link: &mut Link, store: Store, bell: &Bell) {
        while let Some(refused) = self.refused.pop_front() {
            self.try_one(link, store, bell, refused, 0).await;
        }
    }

    /// Returns it if it is to be tried again.
    async fn try_one(
        &mut self,
        link: &mut Link,
        store: Store,
        bell: &Bell,
        mut refused: RefusedVerdict,
        most: u32,
    ) -> Option<RefusedVerdict> {
        match send(link, store, &self.tallies, std::slice::from_ref(&refused.one)).await {
            Ok(lost) => {
                self.note_written(std::iter::once(&refused.one), |_| !lost.is_empty());
                News::of(std::slice::from_ref(&refused.one), &[]).tell(link, store, bell).await;
                return None;
            }
            Err(error) if is_refusal(&error) => {
                refused.tries += 1;
                refused.reason = queue_core::message(&error);
                let is_to_blame = refused.since.is_none_or(|since| self.written > since);
                if refused.tries >= most && is_to_blame {
                    return self.park(link, store, bell, refused).await;
                }
            }
            Err(error) => complain(&error, "cannot settle; trying again"),
        }
        refused.put_off();
        Some(refused)
    }

    /// Returns it if the database is away.
    async fn park(&mut self, link: &mut Link, store: Store, bell: &Bell, mut refused: RefusedVerdict) -> Option<RefusedVerdict> {
        let (id, word, reason) = (refused.one.id, refused.one.ending.word(), refused.reason.as_str());
        match write(link, store, &refused).await {
            Ok(Parked::Dead) => {
                self.tallies.note(refused.one.counted(false).into_iter().map(|(attempt, _, ran)| (attempt, Counted::Dead, ran)));
                tracing::error!(job = %id, verdict = word, error = reason, "parked as a dead letter, for its verdict cannot be stored; \
                    mend what refuses it, then requeue or discard the job");
            }
            Ok(Parked::Dropped) => {
                tracing::error!(job = %id, verdict = word, error = reason, "this verdict was dropped: the job stands elsewhere in the store already");
            }
            Ok(Parked::Lost) => return None,
            Err(error) if is_refusal(&error) => {
                let parking = queue_core::message(&error);
                tracing::error!(job = %id, verdict = word, error = reason, parking, "neither this verdict nor a dead letter can be stored; the job \
                    stays in its lease until this worker ends: mend what refuses it, then restart the worker");
                if let Some(holding) = &refused.one.holding {
                    holding.give_up();
                }
                return None;
            }
            Err(error) => {
                complain(&error, "cannot settle; trying again");
                refused.put_off();
                return Some(refused);
            }
        }
        bell.tell_keys();
        bell.note_over();
        None
    }
}

impl RefusedVerdict {
    fn put_off(&mut self) {
        self.next = Instant::now() + PAUSE.saturating_mul(1 << self.tries.min(10)).min(LONGEST);
    }
}

async fn write(link: &mut Link, store: Store, refused: &RefusedVerdict) -> sqlx::Result<Parked> {
    let RefusedVerdict { one, reason, .. } = refused;
    let error = match one.ending.error() {
        Some(failure) => format!("its verdict `{}` cannot be stored: {reason}; the attempt failed: {failure}", one.ending.word()),
        None => format!("its verdict `{}` cannot be stored: {reason}", one.ending.word()),
    };
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/park.sql")))
        .bind(one.token)
        .bind(one.id)
        .bind(one.lane)
        .bind(one.ending.attempt())
        .bind(one.crashes)
        .bind(error);
    let parked = bounded(statement.fetch_optional(link.get().await?)).await;
    Ok(match link.note(parked)? {
        Some(true) => Parked::Dead,
        Some(false) => Parked::Dropped,
        None => Parked::Lost,
    })
}

//! Model of pauses and of a limit: which workers have acknowledged them, and what may be claimed then.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{
    expect::{JobPlace, Model},
    op::{LANES, LIMITED, SCOPES},
    rules::{Bound, LimitedClaim, covers},
};

impl Model {
    /// Numbers only increase, so a worker that has seen one has seen all earlier ones.
    fn number(&mut self, number: i64) -> Result<(), String> {
        let before = std::mem::replace(&mut self.rules.newest, number);
        if number > before { Ok(()) } else { Err(format!("number {number} after {before}")) }
    }

    pub(super) fn pause(&mut self, scope: usize, number: i64) -> Result<(), String> {
        self.rules.paused.insert(scope, number);
        self.number(number)
    }

    pub(super) fn resume(&mut self, scope: usize) -> bool {
        self.rules.paused.remove(&scope).is_some()
    }

    /// A limit that existed before keeps its number, because its lanes are the same.
    pub(super) fn set_limit(&mut self, most: usize, number: i64) -> Result<(), String> {
        match &mut self.rules.limit {
            Some(limit) if limit.number == number => limit.most = most,
            Some(limit) => return Err(format!("limit {} is now {number}", limit.number)),
            None => {
                self.rules.limit = Some(Bound { most, number, adopted: false, permits: BTreeMap::new() });
                self.number(number)?;
            }
        }
        Ok(())
    }

    pub(super) fn unset_limit(&mut self) -> bool {
        self.rules.limit.take().is_some()
    }

    /// Returns what a worker must read: numbers, queues, types, and whether the row is the limit.
    pub(super) fn rules(&self) -> BTreeSet<(i64, String, String, bool)> {
        let paused =
            self.rules.paused.iter().map(|(scope, number)| (*number, SCOPES[*scope].0.to_owned(), SCOPES[*scope].1.to_owned(), false));
        let limit = self.rules.limit.iter().map(|limit| (limit.number, LANES[LIMITED].0.to_owned(), "*".to_owned(), true));
        paused.chain(limit).collect()
    }

    /// Records that a worker acknowledges all rules up to this number. Returns whether that is new.
    pub(super) fn vouch(&mut self, worker: Uuid, number: i64) -> bool {
        let seen = self.rules.seen.entry(worker).or_insert(0);
        number > std::mem::replace(seen, number.max(*seen))
    }

    fn knows(&self, worker: Uuid, number: i64) -> bool {
        self.rules.seen.get(&worker).is_some_and(|seen| *seen >= number)
    }

    /// Returns the live workers that have not acknowledged the pause of this scope.
    pub(super) fn awaited(&self, scope: usize) -> BTreeSet<Uuid> {
        let Some(number) = self.rules.paused.get(&scope) else { return BTreeSet::new() };
        self.living().filter(|worker| !self.knows(*worker, *number)).collect()
    }

    /// Whether no job of this lane may start: it is paused, and all workers have acknowledged the pause.
    pub(super) fn is_paused(&self, lane: usize) -> bool {
        self.rules.paused.keys().any(|scope| covers(*scope, lane) && self.awaited(*scope).is_empty())
    }

    /// Whether the lane may not be claimed without permits: it is paused, or its limit counts running jobs.
    pub(super) fn is_closed(&self, lane: usize) -> bool {
        self.is_paused(lane) || (lane == LIMITED && self.rules.limit.as_ref().is_some_and(|limit| limit.adopted))
    }

    fn limited(&self, token: Uuid) -> usize {
        self.jobs.values().filter(|job| job.lane == LIMITED && job.place == JobPlace::Running(token)).count()
    }

    /// Refreshes the permits. A counted lease never grows, and has at most the jobs that it lists.
    fn read_permits(&mut self, tokens: Option<&[Uuid]>) {
        let Some(mut limit) = self.rules.limit.take() else { return };
        for (token, count) in &mut limit.permits {
            if tokens.is_none_or(|tokens| tokens.contains(token)) {
                *count = self.held(*token).len().min(*count);
            }
        }
        limit.permits.retain(|_, count| *count > 0);
        self.rules.limit = Some(limit);
    }

    /// Returns how many jobs of the limited lane a worker may claim when `waiting` are ready. Records the permits that the claim reports as
    /// freed.
    pub(super) fn room(&mut self, worker: Uuid, waiting: usize, claim: &LimitedClaim<'_>) -> usize {
        let wanted = waiting.min(claim.most);
        let Some(limit) = self.rules.limit.clone().filter(|_| wanted + claim.freed.len() > 0) else { return 0 };
        if !limit.adopted {
            if self.living().any(|worker| !self.knows(worker, limit.number)) {
                return 0;
            }
            let permits = self.tokens().into_iter().map(|token| (token, self.limited(token))).filter(|(_, count)| *count > 0).collect();
            self.rules.limit = Some(Bound { adopted: true, permits, ..limit });
        }
        self.read_permits(Some(claim.freed));
        // More may run than the limit allows if the limit is new or was lowered.
        let wanted = wanted.cast_signed();
        if self.vacant() < wanted && claim.belt {
            self.read_permits(None);
        }
        if self.lives(worker) { self.vacant().clamp(0, wanted).cast_unsigned() } else { 0 }
    }

    fn vacant(&self) -> isize {
        let limit = self.rules.limit.as_ref();
        limit.map_or(0, |limit| limit.most.cast_signed() - limit.permits.values().sum::<usize>().cast_signed())
    }

    /// Records the number of jobs claimed in this lease under the limit.
    pub(super) fn note_permits(&mut self, token: Uuid, count: usize) -> Result<(), String> {
        let running = self.jobs.values().filter(|job| job.lane == LIMITED && matches!(job.place, JobPlace::Running(_))).count();
        let Some(limit) = self.rules.limit.as_mut().filter(|_| count > 0) else { return Ok(()) };
        limit.permits.insert(token, count);
        if running > limit.most { Err(format!("{running} run under a limit of {}", limit.most)) } else { Ok(()) }
    }

    /// Returns the number of jobs that the limit counts per lease, once it is in force.
    pub(super) fn permits(&self) -> Option<BTreeMap<Uuid, usize>> {
        self.rules.limit.as_ref().filter(|limit| limit.adopted).map(|limit| limit.permits.clone())
    }
}

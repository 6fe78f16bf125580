//! Model of the rules, which are pauses and a limit. Tracks which workers have acknowledged the rules, and which jobs may be claimed.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{
    expect::{JobPlace, Model},
    op::{LANES, LIMITED, SCOPES},
    rules::{Bound, LimitedClaim, covers},
};

impl Model {
    /// Records the number of the newest rule (a pause or the limit), which must be higher than all earlier numbers. A worker that has
    /// seen a number has therefore seen all earlier rules.
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

    /// Sets the limit. An existing limit keeps its number, because it still covers the same lanes.
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

    /// Returns the rules (pauses and the limit) that a worker must read. Each rule has a number, a queue, a type, and a flag that is set
    /// for the limit.
    pub(super) fn rules(&self) -> BTreeSet<(i64, String, String, bool)> {
        let paused =
            self.rules.paused.iter().map(|(scope, number)| (*number, SCOPES[*scope].0.to_owned(), SCOPES[*scope].1.to_owned(), false));
        let limit = self.rules.limit.iter().map(|limit| (limit.number, LANES[LIMITED].0.to_owned(), "*".to_owned(), true));
        paused.chain(limit).collect()
    }

    /// Records that a worker acknowledges all rules up to `number`. Returns whether this acknowledgement is new.
    pub(super) fn vouch(&mut self, worker: Uuid, number: i64) -> bool {
        let seen = self.rules.seen.entry(worker).or_insert(0);
        number > std::mem::replace(seen, number.max(*seen))
    }

    fn knows(&self, worker: Uuid, number: i64) -> bool {
        self.rules.seen.get(&worker).is_some_and(|seen| *seen >= number)
    }

    /// Returns the live workers that have not acknowledged the pause of a scope.
    pub(super) fn awaited(&self, scope: usize) -> BTreeSet<Uuid> {
        let Some(number) = self.rules.paused.get(&scope) else { return BTreeSet::new() };
        self.living().filter(|worker| !self.knows(*worker, *number)).collect()
    }

    /// Returns whether no job of the lane may start, because the lane is paused and all live workers have acknowledged the pause.
    pub(super) fn is_paused(&self, lane: usize) -> bool {
        self.rules.paused.keys().any(|scope| covers(*scope, lane) && self.awaited(*scope).is_empty())
    }

    /// Returns whether claims without permits are forbidden, because the lane is paused or its limit is in force.
    pub(super) fn is_closed(&self, lane: usize) -> bool {
        self.is_paused(lane) || (lane == LIMITED && self.rules.limit.as_ref().is_some_and(|limit| limit.adopted))
    }

    fn limited(&self, token: Uuid) -> usize {
        self.jobs.values().filter(|job| job.lane == LIMITED && job.place == JobPlace::Running(token)).count()
    }

    /// Lowers the permit count of each lease in `tokens` to the number of jobs that the lease still has. `None` stands for all leases. A
    /// permit count never grows.
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

    /// Returns the number of jobs of the limited lane that a worker may claim if `waiting` jobs are ready. First lowers the permit counts
    /// of the leases that the claim reports as freed.
    pub(super) fn room(&mut self, worker: Uuid, waiting: usize, claim: &LimitedClaim<'_>) -> usize {
        let needed = waiting.min(claim.most);
        let Some(limit) = self.rules.limit.clone().filter(|_| needed + claim.freed.len() > 0) else { return 0 };
        if !limit.adopted {
            if self.living().any(|worker| !self.knows(worker, limit.number)) {
                return 0;
            }
            let permits = self.tokens().into_iter().map(|token| (token, self.limited(token))).filter(|(_, count)| *count > 0).collect();
            self.rules.limit = Some(Bound { adopted: true, permits, ..limit });
        }
        self.read_permits(Some(claim.freed));
        // If the limit is new or was lowered, more jobs may be running than the limit allows. The number of vacant permits is then
        // negative.
        let needed = needed.cast_signed();
        if self.vacant() < needed && claim.belt {
            self.read_permits(None);
        }
        if self.lives(worker) { self.vacant().clamp(0, needed).cast_unsigned() } else { 0 }
    }

    fn vacant(&self) -> isize {
        let limit = self.rules.limit.as_ref();
        limit.map_or(0, |limit| limit.most.cast_signed() - limit.permits.values().sum::<usize>().cast_signed())
    }

    /// Records the permits of `count` jobs that were claimed under the lease `token`. Returns an error if more jobs run than the limit
    /// allows.
    pub(super) fn note_permits(&mut self, token: Uuid, count: usize) -> Result<(), String> {
        let running = self.jobs.values().filter(|job| job.lane == LIMITED && matches!(job.place, JobPlace::Running(_))).count();
        let Some(limit) = self.rules.limit.as_mut().filter(|_| count > 0) else { return Ok(()) };
        limit.permits.insert(token, count);
        if running > limit.most { Err(format!("{running} run under a limit of {}", limit.most)) } else { Ok(()) }
    }

    /// Returns the number of permits that each lease holds, or `None` if no limit is in force.
    pub(super) fn permits(&self) -> Option<BTreeMap<Uuid, usize>> {
        self.rules.limit.as_ref().filter(|limit| limit.adopted).map(|limit| limit.permits.clone())
    }
}

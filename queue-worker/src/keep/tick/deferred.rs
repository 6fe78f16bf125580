//! Deferred schedules. A schedule is deferred if it is locked, if this release cannot read it, or if its job could not be enqueued. This
//! module performs no I/O.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::request::LoadedSchedule;

/// Deferred schedules by name.
#[derive(Default)]
pub(super) struct DeferredSchedules(HashMap<String, DeferredSchedule>);

struct DeferredSchedule {
    definition: i64,
    tick: Option<DateTime<Utc>>,
    until: Instant,
    /// Time at which the schedule's lock was first found or last logged.
    since: Instant,
    /// Delay of the current deferral.
    wait: Duration,
    /// Number of consecutive failures, including failures at earlier ticks.
    failures: u32,
}

/// Initial delay before a locked schedule is retried. The delay doubles with each retry, up to [`MAX_LOCK_RETRY`].
const LOCK_RETRY: Duration = Duration::from_millis(20);
const MAX_LOCK_RETRY: Duration = Duration::from_secs(1);

/// Minimum age at which a lock on a schedule is logged.
const LONG_LOCK: Duration = Duration::from_mins(1);

/// Initial delay before a failed schedule is retried separately. The delay doubles with each retry, up to the shorter of the schedule's
/// grace period and [`MAX_FAILURE_RETRY`].
const FAILURE_RETRY: Duration = Duration::from_secs(1);
const MAX_FAILURE_RETRY: Duration = Duration::from_mins(1);

/// Duration for which an entry is kept after its delay has ended.
const ENTRY_TTL: Duration = Duration::from_mins(5);

impl DeferredSchedules {
    /// Returns the remaining delay of the schedule's next tick, or `None` if the tick can be fired now.
    pub(super) fn remaining_delay(&self, plan: &LoadedSchedule) -> Option<Duration> {
        let entry = self.0.get(&plan.name).filter(|entry| entry.is_for(plan))?;
        Some(entry.until.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Returns whether any worker has failed to fire the schedule. A failed schedule is retried after all other schedules.
    pub(super) fn has_failed(&self, plan: &LoadedSchedule) -> bool {
        plan.tried_at.is_some() || self.0.get(&plan.name).is_some_and(|entry| entry.definition == plan.definition && entry.failures > 0)
    }

    /// Returns the lock timeout in milliseconds for a failed schedule that is retried separately. The timeout is shorter after repeated
    /// failures, because the wait for the lock may delay other due schedules.
    pub(super) fn lock_timeout_ms(&self, plan: &LoadedSchedule) -> i32 {
        if self.0.get(&plan.name).is_some_and(|entry| entry.failures > 1) { 5 } else { 50 }
    }

    /// Defers a schedule that is locked or was fired by another worker. Returns whether to log the lock. A lock is logged once per minute
    /// while it persists.
    pub(super) fn defer_locked(&mut self, plan: &LoadedSchedule) -> bool {
        let entry = self.0.get(&plan.name).filter(|entry| entry.is_for(plan));
        let (before, since) = entry.map_or((Duration::ZERO, Instant::now()), |entry| (entry.wait, entry.since));
        let is_long = since.elapsed() >= LONG_LOCK;
        self.insert(plan, (before * 2).clamp(LOCK_RETRY, MAX_LOCK_RETRY), 0);
        if let Some(entry) = self.0.get_mut(&plan.name) {
            entry.since = if is_long { Instant::now() } else { since };
        }
        is_long
    }

    /// Defers a schedule that this release cannot read.
    pub(super) fn defer_unreadable(&mut self, plan: &LoadedSchedule) {
        self.insert(plan, MAX_FAILURE_RETRY, 0);
    }

    /// Defers a failed schedule and returns the delay. The delay is zero if the schedule failed in a statement with other schedules,
    /// because the schedule is then retried separately.
    pub(super) fn defer_failed(&mut self, plan: &LoadedSchedule, was_alone: bool) -> Duration {
        let before = self.0.get(&plan.name).filter(|entry| entry.is_for(plan)).map_or(Duration::ZERO, |entry| entry.wait);
        let longest = plan.grace().clamp(FAILURE_RETRY, MAX_FAILURE_RETRY);
        // Limits the delay so that the schedule is retried just after the grace period. The failure is then recorded as the tick's
        // outcome. The grace period starts with the first failed attempt.
        let left = Some(plan.grace_left()).filter(|left| !left.is_zero()).map_or(longest, |left| left + LOCK_RETRY);
        let wait = if was_alone { (before * 2).clamp(FAILURE_RETRY, longest).min(left) } else { Duration::ZERO };
        self.insert(plan, wait, 1);
        wait
    }

    /// Removes the entry of a schedule whose ticks were fired. If a tick failed, the entry stays, and the next tick is fired after all
    /// other schedules.
    pub(super) fn remove(&mut self, plan: &LoadedSchedule, failed: bool) {
        if !failed {
            self.0.remove(&plan.name);
        }
    }

    fn insert(&mut self, plan: &LoadedSchedule, wait: Duration, failures: u32) {
        let now = Instant::now();
        if !self.0.contains_key(&plan.name) {
            self.0.retain(|_, entry| entry.until + ENTRY_TTL > now);
        }
        let before = self.0.get(&plan.name).filter(|entry| entry.definition == plan.definition).map_or(0, |entry| entry.failures);
        let entry = DeferredSchedule {
            definition: plan.definition,
            tick: plan.next_at,
            until: now + wait,
            since: now,
            wait,
            failures: before.saturating_add(failures),
        };
        self.0.insert(plan.name.clone(), entry);
    }
}

impl DeferredSchedule {
    fn is_for(&self, plan: &LoadedSchedule) -> bool {
        self.definition == plan.definition && self.tick == plan.next_at
    }
}

//! Due schedules that are deferred, because they are locked or their jobs cannot be enqueued now. Pure: no database access.

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
    /// Time since which the schedule has been locked.
    since: Instant,
    /// Delay of the current deferral.
    wait: Duration,
    /// Number of consecutive failures, including failures at earlier ticks.
    failures: u32,
}

/// Initial and maximum delay before a locked schedule is retried. The delay doubles with each retry.
const LOCK_RETRY: Duration = Duration::from_millis(20);
const MAX_LOCK_RETRY: Duration = Duration::from_secs(1);

/// Duration after which a lock is logged.
const LONG_LOCK: Duration = Duration::from_mins(1);

/// Initial and maximum delay before a failed schedule is retried alone. The delay doubles with each retry, up to the schedule's grace
/// period or the maximum.
const FAILURE_RETRY: Duration = Duration::from_secs(1);
const MAX_FAILURE_RETRY: Duration = Duration::from_mins(1);

/// Time after which an expired entry is removed.
const ENTRY_TTL: Duration = Duration::from_mins(5);

impl DeferredSchedules {
    /// Returns the remaining delay of the schedule's tick, or `None` if the tick may be tried.
    pub(super) fn remaining_delay(&self, plan: &LoadedSchedule) -> Option<Duration> {
        let entry = self.0.get(&plan.name).filter(|entry| entry.is_for(plan))?;
        Some(entry.until.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Returns whether the schedule failed before, in any worker. Such a schedule is tried after all others.
    pub(super) fn has_failed(&self, plan: &LoadedSchedule) -> bool {
        plan.tried_at.is_some() || self.0.get(&plan.name).is_some_and(|entry| entry.definition == plan.definition && entry.failures > 0)
    }

    /// Returns the lock timeout in milliseconds for a failed schedule that is tried alone. Other due schedules wait during this time.
    pub(super) fn lock_timeout_ms(&self, plan: &LoadedSchedule) -> i32 {
        if self.0.get(&plan.name).is_some_and(|entry| entry.failures > 1) { 5 } else { 50 }
    }

    /// Defers a schedule that is locked or was fired by another worker. Returns whether to log a lock, which is the case once per minute in
    /// which the tick was locked.
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

    /// Defers a schedule that only workers of another release can read.
    pub(super) fn defer_unreadable(&mut self, plan: &LoadedSchedule) {
        self.insert(plan, MAX_FAILURE_RETRY, 0);
    }

    /// Defers a failed schedule and returns the delay. A schedule that failed together with other schedules is tried alone immediately.
    pub(super) fn defer_failed(&mut self, plan: &LoadedSchedule, was_alone: bool) -> Duration {
        let before = self.0.get(&plan.name).filter(|entry| entry.is_for(plan)).map_or(Duration::ZERO, |entry| entry.wait);
        let longest = plan.grace().clamp(FAILURE_RETRY, MAX_FAILURE_RETRY);
        // After the grace period, which starts with the first try, the failure is recorded as the outcome of the tick.
        let left = Some(plan.grace_left()).filter(|left| !left.is_zero()).map_or(longest, |left| left + LOCK_RETRY);
        let wait = if was_alone { (before * 2).clamp(FAILURE_RETRY, longest).min(left) } else { Duration::ZERO };
        self.insert(plan, wait, 1);
        wait
    }

    /// Removes a schedule that was fired. If the tick failed, the entry stays, so that the next tick is also tried last.
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

//! Schedules that are due and put aside for a while: others have them locked, or their jobs cannot be enqueued now. Does not touch the database.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::plan::Planned;

/// By name.
#[derive(Default)]
pub(super) struct Aside(HashMap<String, Put>);

struct Put {
    definition: i64,
    tick: Option<DateTime<Utc>>,
    until: Instant,
    /// Since others have it locked.
    since: Instant,
    /// How long it was put aside for.
    wait: Duration,
    /// How often it failed, this tick and those before.
    failures: u32,
}

/// Before somebody's lock on a schedule is looked at again: twice as long each time, up to the longest.
const NAP: Duration = Duration::from_millis(20);
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Whoever has a schedule locked for so long is told of.
const LONG: Duration = Duration::from_mins(1);

/// Before what failed by itself is tried again: twice as long each time, up to the grace, and no longer than the longest.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_mins(1);

/// So long after its time what is put aside is forgotten.
const KEPT: Duration = Duration::from_mins(5);

impl Aside {
    /// How long this tick is to be left alone still; none if it is not.
    pub(super) fn rest(&self, plan: &Planned) -> Option<Duration> {
        let put = self.0.get(&plan.name).filter(|put| put.is_of(plan))?;
        Some(put.until.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Whether it failed before, here or elsewhere, so that others come first.
    pub(super) fn is_suspect(&self, plan: &Planned) -> bool {
        plan.tried_at.is_some() || self.0.get(&plan.name).is_some_and(|put| put.definition == plan.definition && put.failures > 0)
    }

    /// How long one that failed may wait for a lock when it is tried by itself: while it waits, so does whatever comes due.
    pub(super) fn patience_ms(&self, plan: &Planned) -> i32 {
        if self.0.get(&plan.name).is_some_and(|put| put.failures > 1) { 5 } else { 50 }
    }

    /// Others have it locked, or were first. Returns whether that is to be told: this tick was locked for a minute, and another each time.
    pub(super) fn hold(&mut self, plan: &Planned) -> bool {
        let put = self.0.get(&plan.name).filter(|put| put.is_of(plan));
        let (before, since) = put.map_or((Duration::ZERO, Instant::now()), |put| (put.wait, put.since));
        let is_long = since.elapsed() >= LONG;
        self.put(plan, (before * 2).clamp(NAP, LONGEST_NAP), 0);
        if let Some(put) = self.0.get_mut(&plan.name) {
            put.since = if is_long { Instant::now() } else { since };
        }
        is_long
    }

    /// Only others can read it.
    pub(super) fn leave(&mut self, plan: &Planned) {
        self.put(plan, LONGEST_REST, 0);
    }

    /// It failed; returns for how long it is put aside. One that was not alone is tried by itself at once.
    pub(super) fn suspect(&mut self, plan: &Planned, was_alone: bool) -> Duration {
        let before = self.0.get(&plan.name).filter(|put| put.is_of(plan)).map_or(Duration::ZERO, |put| put.wait);
        let longest = plan.grace().clamp(REST, LONGEST_REST);
        // A grace after its first try, what is wrong is what came of it.
        let left = Some(plan.grace_left()).filter(|left| !left.is_zero()).map_or(longest, |left| left + NAP);
        let wait = if was_alone { (before * 2).clamp(REST, longest).min(left) } else { Duration::ZERO };
        self.put(plan, wait, 1);
        wait
    }

    /// It is done; of one that failed the next tick comes last, too.
    pub(super) fn forget(&mut self, plan: &Planned, failed: bool) {
        if !failed {
            self.0.remove(&plan.name);
        }
    }

    fn put(&mut self, plan: &Planned, wait: Duration, failures: u32) {
        let now = Instant::now();
        if !self.0.contains_key(&plan.name) {
            self.0.retain(|_, put| put.until + KEPT > now);
        }
        let before = self.0.get(&plan.name).filter(|put| put.definition == plan.definition).map_or(0, |put| put.failures);
        let put = Put {
            definition: plan.definition,
            tick: plan.next_at,
            until: now + wait,
            since: now,
            wait,
            failures: before.saturating_add(failures),
        };
        self.0.insert(plan.name.clone(), put);
    }
}

impl Put {
    fn is_of(&self, plan: &Planned) -> bool {
        self.definition == plan.definition && self.tick == plan.next_at
    }
}

//! Whether a worker lives, and whether it works, by its marks. Asks nobody.

use std::time::Duration;

use serde::Serialize;

use crate::live::{Config, Life, Vitals};

/// What is judged.
pub(crate) struct Health {
    vitals: Vitals,
    life: Life,
    lease_ttl: Duration,
    /// How long the thread of the loops may be held up.
    held_up: Duration,
    /// How long a round of the scout may take.
    round: Duration,
    /// For how long the panic of a loop is told.
    panicked: Duration,
}

/// Why a worker is not well.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    /// One word, for programs.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) text: String,
}

/// It may be held up for so long: by a machine that stands still, above all.
const HELD_UP: Duration = Duration::from_secs(30);

/// A round of the scout asks the database several times, and waits up to fifteen seconds for each answer.
const ROUND: Duration = Duration::from_mins(2);

/// A loop that panics again and again does so within its pauses.
const PANICKED: Duration = Duration::from_secs(90);

/// One round that fails is a connection that was cut.
const FAILING: Duration = Duration::from_secs(2);

/// A settle takes some milliseconds. Beside a table that somebody has locked it waits.
const STALLED: Duration = Duration::from_secs(10);

impl Health {
    pub(crate) fn new(vitals: &Vitals, life: &Life, config: &Config) -> Self {
        let (held_up, round) = (HELD_UP / config.pace, ROUND / config.pace);
        let round = round.saturating_add(config.poll_interval.saturating_mul(2));
        Self { vitals: vitals.clone(), life: life.clone(), lease_ttl: config.lease_ttl, held_up, round, panicked: PANICKED / config.pace }
    }

    /// Why it is to be started anew; nothing if it lives. No database is asked, nor does it matter whether there is one.
    pub(super) fn dead(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if let Some(name) = self.vitals.ended() {
            reasons.push(Reason { reason: "loop_ended", text: format!("the loop `{name}` has ended; the log says why") });
        }
        if let Some(age) = self.vitals.engine.age().filter(|age| *age > self.held_up) {
            reasons.push(Reason { reason: "engine_held_up", text: format!("the thread of the worker's loops stands still for {age:.0?}") });
        }
        // It may wait for the settle loop, which waits for the database.
        let waits = self.vitals.is_stopping() || self.stalled().is_some();
        if let Some(age) = self.vitals.claims.age().filter(|age| *age > self.round && !waits) {
            reasons.push(Reason {
                reason: "claims_held_up",
                text: format!("the scout, which finds out where jobs are, stands still for {age:.0?}"),
            });
        }
        reasons
    }

    /// Why nothing is to be expected of it now; nothing if it works.
    pub(super) fn unready(&self) -> Vec<Reason> {
        let mut reasons = self.dead();
        if self.vitals.is_stopping() {
            reasons.push(Reason { reason: "stopping", text: "it was asked to end: it claims nothing more".to_owned() });
        }
        // A heartbeat is relied on for four fifths of a lease.
        match self.life.left() {
            None => reasons.push(Reason { reason: "not_announced", text: "it is not announced to the store, or not any more".to_owned() }),
            Some(left) if left < self.lease_ttl / 10 * 3 => {
                reasons
                    .push(Reason { reason: "no_heartbeat", text: "no heartbeat has reached the database for half of a lease".to_owned() });
            }
            Some(_) => {}
        }
        if let Some(age) = self.vitals.failing.age().filter(|age| *age >= FAILING) {
            reasons.push(Reason {
                reason: "claims_fail",
                text: format!("claims fail for {age:.0?}: the database is away, or the log says why"),
            });
        }
        if let Some(age) = self.vitals.no_access.age() {
            let text = format!("for {age:.0?} the login may not see rows of the store or has lost its rights; the log has the fix");
            reasons.push(Reason { reason: "no_access", text });
        }
        if let Some((name, age)) = self.vitals.panicked().filter(|(_, age)| *age < self.panicked) {
            let text = format!("the loop `{name}` panicked {age:.0?} ago and was started again; the log says why");
            reasons.push(Reason { reason: "loop_panicked", text });
        }
        if let Some(age) = self.stalled() {
            reasons.push(Reason { reason: "settles_stall", text: format!("the oldest verdict is not written for {age:.0?}") });
        }
        reasons
    }

    /// For how long the oldest verdict is not written, if that is too long.
    fn stalled(&self) -> Option<Duration> {
        self.vitals.settling.age().filter(|age| *age >= STALLED)
    }
}

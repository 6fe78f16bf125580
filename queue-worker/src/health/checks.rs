//! Determines from recorded timestamps whether a worker is alive and ready. Performs no I/O.

use std::time::Duration;

use serde::Serialize;

use crate::live::{Config, LeaseDeadline, LoopHealth};

/// Inputs and thresholds of the health checks.
pub(crate) struct Health {
    loops: LoopHealth,
    lease_deadline: LeaseDeadline,
    lease_ttl: Duration,
    /// Maximum time for which the thread that runs the worker's loops may be blocked.
    max_blocked: Duration,
    /// Maximum duration of one iteration of the poller, which finds lanes with jobs.
    max_round: Duration,
    /// Duration for which a panic of a worker loop is reported.
    panic_window: Duration,
}

/// Reason for a failed health check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct FailedCheck {
    /// Machine-readable identifier of the failed check.
    pub(super) reason: &'static str,
    /// Explanation for operators.
    pub(super) text: String,
}

/// Time for which the thread that runs the worker's loops may be blocked before the liveness check fails. Allows for a suspended or
/// overloaded machine.
const MAX_BLOCKED: Duration = Duration::from_secs(30);

/// Duration of one poller iteration above which the liveness check fails. An iteration runs several queries, each with a timeout of up to
/// fifteen seconds.
const MAX_ROUND: Duration = Duration::from_mins(2);

/// Duration for which a panic of a worker loop is reported. Exceeds the longest restart delay, so a loop that panics at each restart is
/// always reported.
const PANIC_WINDOW: Duration = Duration::from_secs(90);

/// Minimum duration of a series of failed claims before the series is reported. A shorter series may be a single failure caused by a
/// closed connection.
const MIN_FAILING: Duration = Duration::from_secs(2);

/// Age from which an unwritten verdict is reported. Settling takes milliseconds unless a table is locked.
const MAX_UNSETTLED: Duration = Duration::from_secs(10);

impl Health {
    pub(crate) fn new(loops: &LoopHealth, lease_deadline: &LeaseDeadline, config: &Config) -> Self {
        let (max_blocked, max_round) = (MAX_BLOCKED / config.pace, MAX_ROUND / config.pace);
        let max_round = max_round.saturating_add(config.poll_interval.saturating_mul(2));
        Self {
            loops: loops.clone(),
            lease_deadline: lease_deadline.clone(),
            lease_ttl: config.lease_ttl,
            max_blocked,
            max_round,
            panic_window: PANIC_WINDOW / config.pace,
        }
    }

    /// Returns the reasons to restart the process, or an empty list if the worker is alive. The result does not depend on whether the
    /// database is reachable.
    pub(super) fn liveness_failures(&self) -> Vec<FailedCheck> {
        let mut reasons = Vec::new();
        if let Some(name) = self.loops.ended() {
            reasons.push(FailedCheck { reason: "loop_ended", text: format!("the loop `{name}` has ended; the log has the cause") });
        }
        if let Some(age) = self.loops.engine.age().filter(|age| *age > self.max_blocked) {
            reasons.push(FailedCheck {
                reason: "engine_held_up",
                text: format!("the thread of the worker's loops has been blocked for {age:.0?}"),
            });
        }
        // A blocked poller is not reported during a shutdown or while verdicts stay unwritten. The poller may then be waiting for the
        // settle loop, which may be waiting for the database.
        let waits = self.loops.is_stopping() || self.stalled().is_some();
        if let Some(age) = self.loops.claims.age().filter(|age| *age > self.max_round && !waits) {
            reasons.push(FailedCheck {
                reason: "claims_held_up",
                text: format!("the poller, which finds lanes with jobs, has been blocked for {age:.0?}"),
            });
        }
        reasons
    }

    /// Returns the reasons why the worker is not ready, or an empty list if it is ready.
    pub(super) fn readiness_failures(&self) -> Vec<FailedCheck> {
        let mut reasons = self.liveness_failures();
        if self.loops.is_stopping() {
            reasons.push(FailedCheck { reason: "stopping", text: "the worker is shutting down and claims no more jobs".to_owned() });
        }
        // A heartbeat moves the local deadline to four fifths of the lease TTL in the future. If less than three tenths of the TTL remain,
        // no heartbeat has succeeded for half the TTL.
        match self.lease_deadline.remaining() {
            None => reasons.push(FailedCheck { reason: "not_announced", text: "the worker is not registered in the store".to_owned() }),
            Some(left) if left < self.lease_ttl / 10 * 3 => {
                reasons.push(FailedCheck {
                    reason: "no_heartbeat",
                    text: "no heartbeat has reached the database for half of a lease".to_owned(),
                });
            }
            Some(_) => {}
        }
        if let Some(age) = self.loops.failing.age().filter(|age| *age >= MIN_FAILING) {
            reasons.push(FailedCheck {
                reason: "claims_fail",
                text: format!("claims have failed for {age:.0?}: the database is unreachable, or the log has the cause"),
            });
        }
        if let Some(age) = self.loops.no_access.age() {
            let text = format!("for {age:.0?} the login has lacked access to parts of the store; the log has the fix");
            reasons.push(FailedCheck { reason: "no_access", text });
        }
        if let Some((name, age)) = self.loops.panicked().filter(|(_, age)| *age < self.panic_window) {
            let text = format!("the loop `{name}` panicked {age:.0?} ago and was restarted; the log has the panic");
            reasons.push(FailedCheck { reason: "loop_panicked", text });
        }
        if let Some(age) = self.stalled() {
            reasons.push(FailedCheck { reason: "settles_stall", text: format!("the oldest verdict has been unwritten for {age:.0?}") });
        }
        reasons
    }

    /// Returns the age of the oldest unwritten verdict if it is at least [`MAX_UNSETTLED`].
    fn stalled(&self) -> Option<Duration> {
        self.loops.settling.age().filter(|age| *age >= MAX_UNSETTLED)
    }
}

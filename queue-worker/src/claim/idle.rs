//! Probes lanes for jobs, and puts an idle worker to sleep. A sleeping worker polls less often, because producers notify it of new jobs.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{
    claimers::{notify_all, notify_holding},
    poller::{PROMOTE_AGAIN, Poller, Promotion},
};
use crate::{
    lanes::{Probe, ProbeMode, ProbeResult},
    live::{SleepState, after_ms},
};

/// First poll interval of a worker that is falling asleep. The interval doubles while an open transaction may not have seen the worker's
/// request for notifications.
const MIN_IDLE_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum poll interval of a worker that is falling asleep.
const MAX_IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum time between two probes of all lanes by an idle worker. Limits the delay after a lost notification.
const FULL_PROBE_INTERVAL: Duration = Duration::from_secs(10);

impl Poller {
    /// Probes lanes and notifies the claimers of lanes with jobs. Returns whether there are new lanes. With `hurry`, also probes lanes in
    /// which no key with waiting jobs has a permit, because jobs with other keys may have arrived.
    pub(super) async fn probe_lanes(&mut self, hurry: bool) -> sqlx::Result<bool> {
        let when = if self.lanes.groups.any_awaits_notice() { ProbeMode::Now } else { ProbeMode::Never };
        let (seen, _) = self.probe(when, hurry).await?;
        Ok(seen.born)
    }

    /// Probes lanes once. Returns the result, and whether a resting claimer was notified.
    async fn probe(&mut self, when: ProbeMode, hurry: bool) -> sqlx::Result<(ProbeResult, bool)> {
        let began = Instant::now();
        self.probed_at = Some(began);
        let takes_long = self.late_scan.is_slow() && !self.late_scan.allows_full_scan(began);
        let from_zero = when != ProbeMode::Never && self.late_scan.is_allowed(began) && !takes_long;
        self.context.notifier.forget_due();
        let request = Probe { when, from_zero, with_closed_keys: hurry };
        let seen = self.lanes.probe(self.link.get().await?, self.context.store, request).await;
        let seen = self.link.note(seen)?;
        if let Some(wait) = seen.next_run {
            // If the last promotion skipped a job that is due, another session has locked the job, and the next promotion is delayed.
            let is_locked = wait <= after_ms(0.0) && self.promotion == Promotion::NothingDue && self.promoted_at.elapsed() < PROMOTE_AGAIN;
            self.context.notifier.record_due(if is_locked { PROMOTE_AGAIN } else { wait });
        }
        if seen.born {
            self.refresh().await?;
        }
        let mut any = notify_holding(&self.lanes, &seen.holding);
        if seen.is_probed && from_zero {
            self.late_scan.begin();
            self.late_scan.record_full(began.elapsed(), seen.holding.len());
        } else if seen.is_probed && takes_long && self.late_scan.is_allowed(began) {
            // A full scan would take too long, so each claimer scans below its floors, block by block.
            self.late_scan.begin();
            any |= notify_all(&self.lanes);
        } else if seen.is_probed {
            self.late_scan.is_requested = true;
        }
        self.has_notified |= any;
        Ok((seen, any))
    }

    /// Returns whether the poller may sleep. It must not sleep while normal claims are paused for quarantined jobs. It also does not sleep
    /// while some claimer is active and no claimer awaits a notice, because such claimers find new jobs without a probe.
    pub(super) fn may_sleep(&self) -> bool {
        !self.quarantine.is_quiet() && (self.lanes.groups.any_awaits_notice() || !self.lanes.groups.any_is_active())
    }

    /// Polls once if a poll of an idle worker is due. Returns the time of the next poll, or `None` if there may be jobs to claim.
    pub(super) async fn poll_while_idle(&mut self) -> sqlx::Result<Option<Instant>> {
        let is_tried = self.quarantine.due().is_some_and(|at| Instant::now() >= at);
        if self.sleep == SleepState::Awake || self.fair_queues.more || self.lanes.has_more_holding() || is_tried || !self.may_sleep() {
            return Ok(None);
        }
        let planned = self.context.notifier.due().map_or(self.next_probe_at, |due| due.min(self.next_probe_at));
        if Instant::now() < planned {
            return Ok(Some(planned));
        }
        if self.lanes.is_refresh_overdue() && self.refresh().await? {
            self.has_wakeup = true;
            return Ok(None);
        }
        // Every lane is probed while the worker falls asleep, because an already open transaction may not have seen the worker's row in
        // `idle` and may send no notification.
        let before = self.sleep;
        let closely = before != SleepState::Asleep || self.late_scan.is_pending() || Instant::now() >= self.full_probe_at;
        if closely {
            self.full_probe_at = Instant::now() + FULL_PROBE_INTERVAL;
        }
        let (seen, any) = self.probe(if closely { ProbeMode::Now } else { ProbeMode::IfPlacesTaken }, false).await?;
        self.sleep = before.at_horizon(seen.horizon);
        let is_solo = |lane: &i64| self.lanes.track.get(*lane).is_some_and(|lane| lane.solo);
        // New lanes must be probed. All lanes are also probed once more after the last step of falling asleep.
        self.has_wakeup = seen.born || self.sleep != before;
        if self.has_wakeup || any || seen.holding.iter().any(is_solo) {
            return Ok(None);
        }
        let pause = if before == SleepState::Asleep { self.poll } else { self.next_idle_interval() };
        Ok(Some(self.sleep_until(pause)))
    }

    /// Returns the next poll interval of a worker that is falling asleep. The interval doubles with each call up to a maximum, because the
    /// worker may have to wait for hours for an open transaction.
    fn next_idle_interval(&mut self) -> Duration {
        self.idle_interval = (2 * self.idle_interval).clamp(MIN_IDLE_INTERVAL, MAX_IDLE_INTERVAL).min(self.poll);
        self.idle_interval
    }

    /// Sets and returns the time of the next poll. The poll is due after `pause`, or earlier if a late scan or a query for quarantined jobs
    /// is due.
    fn sleep_until(&mut self, pause: Duration) -> Instant {
        let owed = self.late_scan.pending_at().into_iter().chain(self.quarantine.due());
        self.next_probe_at = owed.fold(self.until(pause), Instant::min);
        self.next_probe_at
    }

    /// Advances the [`SleepState`] by one step. From the first step on, producers notify this worker of new jobs. After the last step,
    /// the worker probes all lanes once more. Returns the time of the next poll, or `None` to continue immediately.
    pub(super) async fn fall_asleep(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        if self.sleep == SleepState::Asleep {
            return Ok(Some(self.sleep_until(self.poll)));
        }
        if self.sleep == SleepState::Awake {
            let queues = self.context.queues.named().unwrap_or_else(|| vec!["*".to_owned()]);
            let announced = SleepState::announce(self.link.get().await?, self.context.store, worker, &queues).await;
            (self.sleep, self.idle_interval) = (self.link.note(announced)?, Duration::ZERO);
        }
        let confirmed = self.sleep.confirm(self.link.get().await?).await;
        let before = std::mem::replace(&mut self.sleep, self.link.note(confirmed)?);
        if self.sleep != before {
            self.idle_interval = Duration::ZERO;
            return Ok(None);
        }
        let pause = self.next_idle_interval();
        Ok(Some(self.sleep_until(pause)))
    }
}

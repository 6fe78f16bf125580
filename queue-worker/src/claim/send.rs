//! Sends a claimer's claims and evaluates the results.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    task::JoinError,
};
use uuid::Uuid;

use super::{
    claimer::{Claimer, FAR_FUTURE},
    context::lock,
    in_flight::{InFlightClaim, SlotReservations},
};
use crate::{
    error::warn_throttled,
    lanes::{ClaimReport, ClaimRequest, ClaimSource, LaneGroup, LaneQuota, LimitOutcome, LimitRequest},
    live::{jittered, pause_after},
    run::SlotReservation,
};

/// Maximum duration for which slots stay reserved for a claim under limits. Without lock contention, a claim finishes much sooner.
const SLOT_HOLD: Duration = Duration::from_millis(50);

impl Claimer {
    /// Sends a claim. For a claim under limits, also waits for the first round trip. A claim without lanes only reports released permits.
    pub(super) async fn claim(
        &mut self,
        worker: Uuid,
        (group, shares, reserved): (&Arc<LaneGroup>, Vec<LaneQuota>, SlotReservations),
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let has_lanes = !shares.is_empty();
        let requested = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let slots = reserved.values().map(|promised| promised.count).sum::<usize>();
        let most = group.most(self.context.batch).min(slots).min(requested);
        let from_zero = has_lanes && self.scans_from_zero(group);
        if from_zero {
            self.late_scan.begin();
        }
        if has_lanes {
            self.timer.sent();
        }
        tracing::debug!(limits = ?group.under.limit_ids, kind = ?group.kind, most, from_zero, freed = self.freed.leases.len(), "claiming");
        (self.freed.is_unreported, self.freed.sent_at) = (false, Instant::now());
        let from = match (group.is_limited(), group.kind.is_fair) {
            (true, _) => ClaimSource::Limited { from_zero },
            (false, true) => ClaimSource::FairQueues,
            (false, false) => ClaimSource::Lanes { from_zero },
        };
        let request = ClaimRequest::new(worker, shares, most, from, &mut self.track, &self.context.held);
        if !group.is_limited() {
            self.send(request, (group, Arc::new(reserved)), permit, None, false);
            return;
        }
        let ((report, reported), reserved, request) =
            (oneshot::channel(), Arc::new(reserved), request.with_limits(self.limit_request(group)));
        self.send(request, (group, Arc::clone(&reserved)), permit, Some(report), false);
        let (mut holds_slots, slot_hold) = (true, tokio::time::sleep(SLOT_HOLD));
        tokio::pin!(reported, slot_hold);
        let taken = loop {
            tokio::select! {
                biased;
                taken = &mut reported => break taken,
                Some(flight) = self.in_flight.join_next(), if !self.in_flight.is_empty() => self.land(flight).await,
                () = &mut slot_hold, if holds_slots => {
                    holds_slots = false;
                    self.waiter.leave_all();
                }
            }
        };
        match taken {
            Ok(taken) => self.record_report(group, taken, (&reserved, self.freed.sent_at), has_lanes),
            // The claim failed before its first round trip ended. No further claim is sent until the claim's task ends, which is imminent.
            // `land` then handles the error.
            Err(_) => self.timer.back_off_until(Instant::now() + FAR_FUTURE),
        }
    }

    /// Returns whether the next claim ignores the floors, and therefore also finds late jobs. With many lanes, every claim ignores the
    /// floors and starts at the lowest queue position of each lane.
    fn scans_from_zero(&self, group: &LaneGroup) -> bool {
        if group.kind.is_fair || self.scans_separately(group) {
            return false;
        }
        group.are_many() || self.late_scan.is_overdue() || (self.late_scan.is_requested && self.late_scan.is_allowed(Instant::now()))
    }

    /// Builds the part of a claim request that concerns limits.
    fn limit_request(&mut self, group: &LaneGroup) -> LimitRequest {
        let (limit_ids, keyed, freed) = (Arc::clone(&group.under.limit_ids), group.under.keyed, self.freed.leases.drain().collect());
        let (notifier, slack, floors) = (Arc::clone(&self.context.notifier), self.timer.start_slack(), self.permit_floors.clone());
        LimitRequest { limit_ids, keyed, freed, notifier, slack, floors }
    }

    /// Sends a claim as a task. `report` receives the result of the first round trip. With `is_late_scan`, the claim is a scan for late
    /// jobs that runs in addition to other claims.
    pub(super) fn send(
        &mut self,
        request: ClaimRequest,
        (group, reserved): (&Arc<LaneGroup>, Arc<SlotReservations>),
        permit: Option<OwnedSemaphorePermit>,
        report: Option<oneshot::Sender<ClaimReport>>,
        is_late_scan: bool,
    ) {
        let links = if group.is_limited() { &self.context.permits } else { &self.context.claims };
        let (mut link, store, memory) = (lock(links).take(), self.context.store, self.context.reserve_memory(&self.track, &request));
        let (group, sent) = (Arc::clone(group), Instant::now());
        self.late_scan_in_flight |= is_late_scan;
        if !group.is_limited() {
            link.call(if is_late_scan { "late" } else { "claim" });
        }
        self.in_flight.spawn(async move {
            let answer = match report {
                Some(report) => {
                    // Sending the report fails only if the claimer has stopped.
                    let claim = request.send_with_report(&mut link, store, |taken| drop(report.send(taken)));
                    tokio::pin!(claim);
                    if let Ok(answer) = tokio::time::timeout(SLOT_HOLD, &mut claim).await {
                        answer
                    } else {
                        reserved.values().for_each(SlotReservation::release);
                        claim.await
                    }
                }
                None => request.send(&mut link, store).await,
            };
            drop(permit);
            InFlightClaim { link, answer, reserved, group, sent, is_late_scan, memory }
        });
    }

    /// Records the result of a claim's first round trip.
    fn record_report(&mut self, group: &LaneGroup, report: ClaimReport, (reserved, sent): (&SlotReservations, Instant), has_lanes: bool) {
        let ClaimReport { outcome, count, most, served, lanes, from_zero, freed, took, progress } = report;
        progress.apply(&mut self.track);
        self.context.record_served(&mut self.track, &lanes, count < most && outcome == LimitOutcome::Open, served.iter().copied());
        self.context.taken.fetch_add(count, Relaxed);
        self.turn = self.turn.wrapping_add(usize::from(count > 0));
        if matches!(outcome, LimitOutcome::Locked | LimitOutcome::Unknown) {
            // The claim has not released the permits, so the next claim reports the leases again.
            self.freed.leases.extend(freed);
        }
        if has_lanes {
            let is_full = count >= most || !matches!(outcome, LimitOutcome::Open | LimitOutcome::Keys(_));
            self.waiter.record_claim(&self.track, (reserved, sent), &lanes, &served.iter().copied(), is_full);
            let is_part = reserved.values().any(|promised| promised.count == 0 || promised.withholds);
            if from_zero && matches!(outcome, LimitOutcome::Locked | LimitOutcome::Unknown) {
                self.late_scan.is_requested = true;
            } else if from_zero {
                self.late_scan.record_full(took, count);
                self.late_scan.is_requested |= is_part && !group.are_many();
            } else if count < most && !group.kind.is_fair {
                self.late_scan.is_requested = true;
            }
        }
        if has_lanes || !matches!(outcome, LimitOutcome::Open | LimitOutcome::Keys(_)) {
            self.timer.record_claim(outcome, (count, most), took);
        }
        if outcome == LimitOutcome::Open && self.waiter.is_waiting() {
            self.timer.resume();
        }
        match outcome {
            LimitOutcome::Locked => tracing::warn!(
                limits = ?group.under.limit_ids,
                "another session has locked this limit's row in `limiter`, so its jobs wait; find the session in pg_locks and end it"
            ),
            LimitOutcome::Gone => self.context.notifier.notify_control(),
            _ => {}
        }
    }

    /// Passes the jobs of a finished claim to slots. If the claim failed, only the lanes of its group are delayed.
    pub(super) async fn land(&mut self, claim: Result<InFlightClaim, JoinError>) {
        self.late_scan_in_flight &= claim.as_ref().is_ok_and(|claim| !claim.is_late_scan);
        let group = claim.as_ref().ok().map(|claim| Arc::clone(&claim.group));
        let landed = self.land_jobs(claim).await;
        if let Some(group) = group.filter(|group| !group.is_limited()) {
            group.inbox.fails.store(landed.is_err(), SeqCst);
        }
        if let Err(error) = landed {
            warn_throttled(&error, "a claim failed; retrying its lanes within a second, other lanes are not affected");
            self.timer.back_off_until(Instant::now() + jittered(pause_after(&error)));
            self.permit_floors = None;
            // After a failover, the next connection may reach another server, to which the floors do not apply.
            self.track.forget_floors();
        }
    }

    async fn land_jobs(&mut self, claim: Result<InFlightClaim, JoinError>) -> sqlx::Result<()> {
        let InFlightClaim { link, answer, reserved, group, sent, is_late_scan, memory: _memory } =
            claim.map_err(|_| sqlx::Error::WorkerCrashed)?;
        lock(if group.is_limited() { &self.context.permits } else { &self.context.claims }).push(link);
        self.context.notifier.loop_health().note_claim(answer.took);
        let scans_from_zero = matches!(
            answer.request.from,
            ClaimSource::Limited { from_zero: true } | ClaimSource::Lanes { from_zero: true } | ClaimSource::Late(_)
        );
        let (worker, freed) = (answer.request.worker, answer.request.freed().to_vec());
        let (shares, mut report) = (answer.request.shares.clone(), ClaimReport::of(&answer.request, answer.took));
        let mut claimed_batch = match answer.read(&mut self.track) {
            Ok(claimed_batch) => claimed_batch,
            Err(error) => {
                self.late_scan.is_requested |= scans_from_zero;
                self.freed.leases.extend(freed);
                return Err(error);
            }
        };
        if !group.is_limited() {
            report.served = claimed_batch.jobs.iter().chain(&claimed_batch.unread).map(|job| job.job.lane).collect();
            report.count = report.served.len();
            if is_late_scan {
                self.record_late_scan(report, &shares, claimed_batch.block_scan);
            } else {
                self.record_report(&group, report, (&reserved, sent), true);
            }
        }
        if let Some(start) = claimed_batch.start {
            self.timer.record_start_latency(start.spent);
        }
        if let Some(floors) = claimed_batch.floors.clone() {
            self.permit_floors = Some((floors, sent));
        }
        if self.context.slow_downs.holds(&group.under.limit_ids).is_some() {
            // A handler requested a slow-down after the claim was sent, so the claimed jobs are released.
            claimed_batch.unread.append(&mut claimed_batch.jobs);
        }
        self.late_scan.is_requested |= !claimed_batch.unread.is_empty() && !group.kind.is_fair;
        self.context.hand_over(worker, &reserved, claimed_batch).await;
        if !is_late_scan && self.scans_separately(&group) {
            self.late_scan.start_blocks_soon();
        }
        Ok(())
    }
}

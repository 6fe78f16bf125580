//! Landing claims under limits: what one has taken decides when the next is sent; once that is on the disk its jobs go to the slots.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot::error::TryRecvError;
use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Flight},
    gates::{Limits, MOST, Next, PAUSE, SHUT, State},
};
use crate::{
    error::complain,
    lanes::{From, Room, Said},
};

/// How many claims of a group wait for the disk at most, of so many groups: where the order of jobs is to be seen, one after the other.
pub(super) fn ahead(keeps_order: bool, groups: usize) -> usize {
    match (keeps_order, groups) {
        (true, _) => 1,
        (false, 1) => 4,
        (false, _) => 2,
    }
}

impl State {
    /// Whether a claim has not landed yet.
    pub(super) fn in_air(&self) -> bool {
        self.flight.is_some() || !self.landing.is_empty()
    }

    /// Whether another may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.flight.is_none() && self.landing.len() < self.ahead
    }

    /// The next claim that is on the disk: where the order of jobs is to be seen, in that in which they were sent.
    fn next_over(&mut self, waits: bool, keeps_order: bool) -> Option<Flight> {
        let some = if keeps_order { 1 } else { self.landing.len() };
        let nth = self.landing.iter().take(some).position(|flight| waits || flight.is_over())?;
        self.landing.remove(nth)
    }
}

impl Limits {
    /// No more than a quarter of the time goes into asking lanes that were empty: who asks those of many groups may never come to an end.
    fn rest(&mut self, gates: &Arc<[i64]>) {
        let resting = self.groups.values().filter(|state| matches!(state.next, Next::Look(_)));
        // Who waited for a lock shows nothing of the others.
        let round = resting.map(|state| state.took.min(PAUSE)).sum::<Duration>() / u32::try_from(MOST).unwrap_or(1);
        let state = self.state(gates);
        if let Next::Look(at) = &mut state.next {
            *at += (3 * round).min(SHUT);
        }
    }
}

impl Feed {
    /// Takes note of what claims have taken, and lands what has come back; returns whether it brought jobs.
    pub(super) async fn land_limited(&mut self) -> bool {
        self.limits.hear(&self.bell);
        self.slow_down().await;
        let mut any = false;
        for gates in self.limits.groups.keys().cloned().collect::<Vec<_>>() {
            any |= self.land_group(&gates, false).await;
        }
        let known: HashSet<Arc<[i64]>> = self.lanes.groups.iter().map(|group| Arc::clone(&group.under.gates)).collect();
        self.limits.free.retain(|lane| self.lanes.get(lane).is_some(), |gates| known.contains(gates));
        self.limits.groups.retain(|gates, state| known.contains(gates) || state.in_air());
        for (_, state) in self.limits.groups.iter_mut().filter(|(gates, _)| !known.contains(*gates)) {
            // Nobody claims for these any more: they wait for what is in the air, and for nothing else.
            (state.next, state.since) = (Next::Now, None);
        }
        any
    }

    /// Lands all that is in the air.
    pub(super) async fn land_all_limited(&mut self) {
        for gates in self.limits.groups.keys().cloned().collect::<Vec<_>>() {
            self.land_group(&gates, true).await;
        }
        // Each is said once more; what fails is told.
        self.limits.slow.hurry();
        loop {
            self.slow_down().await;
            let Some(link) = self.limits.slow.end().await else { break };
            self.permits.push(link);
        }
    }

    /// Waits for all of them, or lands what is over; returns whether it brought jobs.
    async fn land_group(&mut self, gates: &Arc<[i64]>, waits: bool) -> bool {
        let (keeps_order, mut any) = (self.queues.keep_order(), false);
        let mut next = self.hear_taken(gates, waits).await;
        loop {
            next = next.or_else(|| self.limits.state(gates).next_over(waits, keeps_order));
            let Some(flight) = next.take() else { return any };
            any |= self.land_claim(gates, flight).await;
        }
    }

    /// Hears what the claim on its way has taken: from then on it waits for the disk only, and the next one may be sent. Returns one that has nothing to
    /// wait for: it took nothing, or failed.
    async fn hear_taken(&mut self, gates: &Arc<[i64]>, waits: bool) -> Option<Flight> {
        let state = self.limits.state(gates);
        let mut flight = state.flight.take()?;
        let said = match flight.said.take() {
            None => None,
            Some(said) if waits => said.await.ok(),
            Some(mut said) => match said.try_recv() {
                Err(TryRecvError::Empty) => {
                    flight.said = Some(said);
                    state.flight = Some(flight);
                    return None;
                }
                said => said.ok(),
            },
        };
        let Some(said) = said else {
            // Until it is known why.
            state.next = Next::Broken(Instant::now() + SHUT);
            return Some(flight);
        };
        let (is_part, is_empty) = (flight.is_part, said.count == 0);
        let state = self.limits.state(gates);
        let empty = if is_empty {
            Some(flight)
        } else {
            state.landing.push_back(flight);
            None
        };
        self.note_taken(gates, said, is_part);
        empty
    }

    fn note_taken(&mut self, gates: &Arc<[i64]>, said: Said, is_part: bool) {
        let Said { room, count, most, served, lanes, from_zero, asked, took, reach } = said;
        reach.note(&mut self.lanes);
        self.note_served(&lanes, count < most && room == Room::Open, served.iter().copied());
        self.note_limited(gates, &lanes, (&served, room), count >= most);
        let state = self.limits.state(gates);
        let before = state.next;
        state.took = took;
        state.note(room, count, most);
        self.limits.rest(gates);
        let state = self.limits.state(gates);
        if most == 0 && matches!(room, Room::Open | Room::Keys(_)) && matches!(before, Next::Now) {
            // It only said what had ended.
            state.next = before;
        }
        // Both kinds are asked before it rests.
        let came_short = match room {
            Room::Open | Room::Keys(_) => count < most,
            Room::More(_) => count == 0,
            _ => false,
        };
        state.others = state.has_both && came_short && !state.others;
        if state.others {
            state.next = Next::Now;
        }
        if from_zero {
            state.rescan.done(took, count);
            state.rescan.owed |= is_part;
        } else if count < most {
            state.rescan.owed = true;
        }
        self.note_room(gates, room, asked);
    }

    /// A claim has said what stands in the way of more under these limits. It was to say what ended here.
    pub(super) fn note_room(&mut self, gates: &Arc<[i64]>, room: Room, asked: Vec<Uuid>) {
        let state = self.limits.state(gates);
        if matches!(room, Room::Locked | Room::Unknown) {
            // Nothing was read: the next claim says it.
            state.freed.extend(asked);
        }
        self.lanes.groups.shut(gates, state.is_shut());
        self.lanes.groups.shut_by_key(gates, state.is_shut_by_key());
        match room {
            Room::Locked => tracing::warn!(
                limits = ?gates,
                "jobs wait for a limit whose row in `gate` somebody else has locked; see pg_locks, and end that session"
            ),
            Room::Gone => self.vigil.due = Instant::now(),
            _ => {}
        }
    }

    /// Its jobs are on the disk; returns whether there are any. One that failed stops nothing else: its limits are tried again in a second.
    async fn land_claim(&mut self, gates: &Arc<[i64]>, flight: Flight) -> bool {
        let count = self.land_jobs(gates, flight).await.unwrap_or_else(|error| {
            complain(&error, "a claim under limits failed; what they cover waits for a second, and nothing else does");
            self.lanes.groups.shut(gates, true);
            0
        });
        if count > 0 {
            self.traffic.note(ClaimResult::Jobs(count));
        }
        count > 0
    }

    async fn land_jobs(&mut self, gates: &Arc<[i64]>, flight: Flight) -> sqlx::Result<usize> {
        let Flight { reserved, paused: _kept, sent, landing, air: _brought, .. } = flight;
        let state = self.limits.state(gates);
        let (link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed).inspect_err(|_| state.fail([], false))?;
        self.permits.push(link);
        let (worker, from_zero) = (answer.request.worker, answer.request.from == (From::Limited { from_zero: true }));
        let asked = answer.request.freed().to_vec();
        let mut brought = answer.read(&mut self.lanes).inspect_err(|_| state.fail(asked, from_zero))?;
        let count = brought.jobs.len() + brought.unread.len();
        if let Some(start) = brought.start {
            state.note_spent(start.spent);
        }
        if let Some(floors) = brought.floors.clone() {
            state.floors = Some((floors, sent));
        }
        if self.are_slow(gates) {
            // It was sent before a handler was told so.
            brought.unread.append(&mut brought.jobs);
        }
        self.hand_over(worker, &reserved, brought).await;
        Ok(count)
    }

    /// Whether handlers were told that one of these limits is to wait, and it was not told yet itself.
    fn are_slow(&mut self, gates: &[i64]) -> bool {
        self.limits.slow.hear(&self.bell);
        let Some(paused) = self.queues.pauses().now() else { return false };
        let slow = self.limits.slow.all();
        let mut lanes = slow.into_iter().filter_map(|(lane, _)| self.lanes.get(lane));
        lanes.any(|lane| paused.slowed(&lane.queue, lane.job_type).iter().any(|gate| gates.contains(gate)))
    }
}

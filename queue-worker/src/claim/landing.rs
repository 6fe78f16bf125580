//! Landing claims under limits: what one has taken decides when the next is sent; once that is on the disk its jobs go to the slots.

use std::{collections::HashSet, sync::Arc, time::Instant};

use tokio::sync::oneshot::error::TryRecvError;
use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Flight},
    gates::{Next, SHUT, State},
};
use crate::{
    error::complain,
    lanes::{From, Room, Said},
};

/// So many claims of a group wait for the disk while the next one is sent.
const AHEAD: usize = 2;

impl State {
    /// Whether a claim has not landed yet.
    pub(super) fn in_air(&self) -> bool {
        self.flight.is_some() || !self.landing.is_empty()
    }

    /// The first of those that wait for the disk, if there are so many that no claim is sent before it has landed.
    pub(super) fn awaits_disk(&self) -> Option<&Flight> {
        self.landing.front().filter(|_| self.landing.len() >= AHEAD)
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

    /// In the order in which they were sent; waits for all of them, or lands what is over. Returns whether it brought jobs. One that failed stops
    /// nothing else: its limits are tried again in a second.
    async fn land_group(&mut self, gates: &Arc<[i64]>, waits: bool) -> bool {
        self.hear_taken(gates, waits).await;
        let mut any = false;
        while let Some(flight) = self.limits.state(gates).landing.pop_front_if(|flight| waits || flight.is_empty || flight.is_over()) {
            any |= self.land_claim(gates, flight).await.unwrap_or_else(|error| {
                complain(&error, "a claim under limits failed; what they cover waits for a second, and nothing else does");
                self.lanes.groups.shut(gates, true);
                false
            });
        }
        any
    }

    /// Hears what the claim on its way has taken: from then on it waits for the disk only, and the next one may be sent.
    async fn hear_taken(&mut self, gates: &Arc<[i64]>, waits: bool) {
        let state = self.limits.state(gates);
        let Some(mut flight) = state.flight.take() else { return };
        let said = match flight.said.take() {
            Some(said) if waits => said.await.ok(),
            Some(mut said) => match said.try_recv() {
                Err(TryRecvError::Empty) => {
                    flight.said = Some(said);
                    state.flight = Some(flight);
                    return;
                }
                said => said.ok(),
            },
            None => None,
        };
        // Until it is known why it failed.
        let before = std::mem::replace(&mut state.next, Next::Broken(Instant::now() + SHUT));
        let is_part = flight.is_part;
        flight.is_empty = said.as_ref().is_some_and(|said| said.count == 0);
        state.landing.push_back(flight);
        if let Some(said) = said {
            self.note_taken(gates, said, before, is_part);
        }
    }

    fn note_taken(&mut self, gates: &Arc<[i64]>, said: Said, before: Next, is_part: bool) {
        let Said { room, count, most, served, lanes, from_zero, asked, took, reach } = said;
        reach.note(&mut self.lanes);
        self.note_served(&lanes, count < most && room == Room::Open, served.iter().copied());
        self.note_limited(gates, &lanes, (&served, room), count >= most);
        let state = self.limits.state(gates);
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

    /// Its jobs are on the disk; returns whether there are any.
    async fn land_claim(&mut self, gates: &Arc<[i64]>, flight: Flight) -> sqlx::Result<bool> {
        let Flight { reserved, paused: _kept, is_outdated, landing, .. } = flight;
        let state = self.limits.state(gates);
        let (link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed).inspect_err(|_| state.fail([], false))?;
        self.permits.push(link);
        let (worker, from_zero) = (answer.request.worker, answer.request.from == (From::Limited { from_zero: true }));
        let asked = answer.request.freed().to_vec();
        let brought = answer.read(&mut self.lanes).inspect_err(|_| state.fail(asked, from_zero))?;
        let count = brought.jobs.len() + brought.unread.len();
        if let Some(start) = brought.start {
            state.note_spent(start.spent);
        }
        if let Some(floors) = brought.floors.clone().filter(|_| !is_outdated) {
            state.floors = Some(floors);
        }
        self.hand_over(worker, &reserved, brought).await;
        if count > 0 {
            self.traffic.note(ClaimResult::Jobs(count));
        }
        Ok(count > 0)
    }
}

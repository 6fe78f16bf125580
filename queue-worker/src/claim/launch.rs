//! How a claimer's claims are sent, and how they land: what is asked for, and what they have shown.

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
    claimer::{Claimer, LONG},
    context::open,
    flight::{Flight, Reserved},
};
use crate::{
    error::complain,
    lanes::{Asked, From, Group, Request, Room, Said, Share},
    live::{jittered, pause_after},
    run::Promised,
};

/// Under limits, slots are kept for a claim on its way for this long: one that meets no lock is over by far sooner.
const YOUNG: Duration = Duration::from_millis(50);

impl Claimer {
    /// Sends a claim; under limits it waits for what that takes. Without any lanes it only says what has ended here.
    pub(super) async fn claim(
        &mut self,
        worker: Uuid,
        (group, shares, reserved): (&Arc<Group>, Vec<Share>, Reserved),
        leave: Option<OwnedSemaphorePermit>,
    ) {
        let asks = !shares.is_empty();
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let slots = reserved.values().map(|promised| promised.count).sum::<usize>();
        let most = group.most(self.context.batch).min(slots).min(asked);
        let from_zero = asks && self.is_from_zero(group);
        if from_zero {
            self.rescan.begin();
        }
        if asks {
            self.pacing.sent();
        }
        tracing::debug!(limits = ?group.under.gates, kind = ?group.kind, most, from_zero, freed = self.news.freed.len(), "claiming");
        (self.news.any, self.news.sent_at) = (false, Instant::now());
        let from = match (group.is_limited(), group.kind.in_lines) {
            (true, _) => From::Limited { from_zero },
            (false, true) => From::Lines,
            (false, false) => From::Lanes { from_zero },
        };
        let request = Request::new(worker, shares, most, from, &mut self.track, &self.context.held);
        if !group.is_limited() {
            self.send(request, (group, Arc::new(reserved)), leave, None, false);
            return;
        }
        let ((say, said), reserved, request) = (oneshot::channel(), Arc::new(reserved), request.under(self.limits(group)));
        self.send(request, (group, Arc::clone(&reserved)), leave, Some(say), false);
        let (mut is_young, old) = (true, tokio::time::sleep(YOUNG));
        tokio::pin!(said, old);
        let taken = loop {
            tokio::select! {
                biased;
                taken = &mut said => break taken,
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
                () = &mut old, if is_young => {
                    is_young = false;
                    self.waiter.leave_all();
                }
            }
        };
        match taken {
            Ok(taken) => self.note_taken(group, taken, (&reserved, self.news.sent_at), asks),
            // Until it is known why.
            Err(_) => self.pacing.break_until(Instant::now() + LONG),
        }
    }

    /// Whether its next claim takes from anywhere: of many lanes each does, for it takes whatever lies lowest.
    fn is_from_zero(&self, group: &Group) -> bool {
        if group.kind.in_lines || self.looks_aside(group) {
            return false;
        }
        group.are_many() || self.rescan.is_due() || (self.rescan.owed && self.rescan.may(Instant::now()))
    }

    /// What a claim under the limits of this group says besides.
    fn limits(&mut self, group: &Group) -> Asked {
        let (gates, keyed, freed) = (Arc::clone(&group.under.gates), group.under.keyed, self.news.freed.drain().collect());
        let (told, slack, floors) = (Arc::clone(&self.context.bell), self.pacing.slack(), self.permit_floors.clone());
        Asked { gates, keyed, freed, told, slack, floors }
    }

    /// Sends a claim on its way: one that says what it has taken, if that is asked for, or one that looks below the floors beside the others.
    pub(super) fn send(
        &mut self,
        request: Request,
        (group, reserved): (&Arc<Group>, Arc<Reserved>),
        leave: Option<OwnedSemaphorePermit>,
        say: Option<oneshot::Sender<Said>>,
        is_late: bool,
    ) {
        let links = if group.is_limited() { &self.context.permits } else { &self.context.claims };
        let (mut link, store, air) = (open(links).take(), self.context.store, self.context.weigh(&self.track, &request));
        let (group, sent) = (Arc::clone(group), Instant::now());
        self.looks_late |= is_late;
        if !group.is_limited() {
            link.call(if is_late { "late" } else { "claim" });
        }
        self.landing.spawn(async move {
            let answer = match say {
                Some(say) => {
                    // Fails only if its claimer is gone.
                    let claim = request.send_and_say(&mut link, store, |taken| drop(say.send(taken)));
                    tokio::pin!(claim);
                    if let Ok(answer) = tokio::time::timeout(YOUNG, &mut claim).await {
                        answer
                    } else {
                        reserved.values().for_each(Promised::release);
                        claim.await
                    }
                }
                None => request.send(&mut link, store).await,
            };
            drop(leave);
            Flight { link, answer, reserved, group, sent, is_late, air }
        });
    }

    /// A claim has said what it took, and what stands in the way of more.
    fn note_taken(&mut self, group: &Group, said: Said, (reserved, sent): (&Reserved, Instant), asked_for_jobs: bool) {
        let Said { room, count, most, served, lanes, from_zero, asked, took, reach } = said;
        reach.note(&mut self.track);
        self.context.note_served(&mut self.track, &lanes, count < most && room == Room::Open, served.iter().copied());
        self.context.taken.fetch_add(count, Relaxed);
        self.turn = self.turn.wrapping_add(usize::from(count > 0));
        if matches!(room, Room::Locked | Room::Unknown) {
            // Nothing was read: the next claim says it.
            self.news.freed.extend(asked);
        }
        if asked_for_jobs {
            let is_full = count >= most || !matches!(room, Room::Open | Room::Keys(_));
            self.waiter.note(&self.track, (reserved, sent), &lanes, &served.iter().copied(), is_full);
            let is_part = reserved.values().any(|promised| promised.count == 0 || promised.withholds);
            if from_zero && matches!(room, Room::Locked | Room::Unknown) {
                self.rescan.owed = true;
            } else if from_zero {
                self.rescan.done(took, count);
                self.rescan.owed |= is_part && !group.are_many();
            } else if count < most && !group.kind.in_lines {
                self.rescan.owed = true;
            }
        }
        if asked_for_jobs || !matches!(room, Room::Open | Room::Keys(_)) {
            self.pacing.note(room, (count, most), took);
        }
        if room == Room::Open && self.waiter.waits() {
            self.pacing.go_on();
        }
        match room {
            Room::Locked => tracing::warn!(
                limits = ?group.under.gates,
                "jobs wait for a limit whose row in `gate` another session has locked; see pg_locks, and end that session"
            ),
            Room::Gone => self.context.bell.note_control(),
            _ => {}
        }
    }

    /// What a claim took is on the disk, and its jobs are handed over. One that failed stops nothing else: its lanes are tried again soon.
    pub(super) async fn land(&mut self, flight: Result<Flight, JoinError>) {
        self.looks_late &= flight.as_ref().is_ok_and(|flight| !flight.is_late);
        let group = flight.as_ref().ok().map(|flight| Arc::clone(&flight.group));
        let landed = self.land_jobs(flight).await;
        if let Some(group) = group.filter(|group| !group.is_limited()) {
            group.hint.fails.store(landed.is_err(), SeqCst);
        }
        if let Err(error) = landed {
            complain(&error, "a claim failed; its lanes are tried again within a second, and others do not wait for that");
            self.pacing.break_until(Instant::now() + jittered(pause_after(&error)));
            self.permit_floors = None;
            // The next connection may be to another server, which took over.
            self.track.forget_floors();
        }
    }

    async fn land_jobs(&mut self, flight: Result<Flight, JoinError>) -> sqlx::Result<()> {
        let Flight { link, answer, reserved, group, sent, is_late, air: _brought } = flight.map_err(|_| sqlx::Error::WorkerCrashed)?;
        open(if group.is_limited() { &self.context.permits } else { &self.context.claims }).push(link);
        self.context.bell.vitals().note_claim(answer.took);
        let is_from_zero =
            matches!(answer.request.from, From::Limited { from_zero: true } | From::Lanes { from_zero: true } | From::Late(_));
        let (worker, asked) = (answer.request.worker, answer.request.freed().to_vec());
        let (shares, mut said) = (answer.request.shares.clone(), Said::of(&answer.request, answer.took));
        let mut brought = match answer.read(&mut self.track) {
            Ok(brought) => brought,
            Err(error) => {
                self.rescan.owed |= is_from_zero;
                self.news.freed.extend(asked);
                return Err(error);
            }
        };
        if !group.is_limited() {
            said.served = brought.jobs.iter().chain(&brought.unread).map(|job| job.job.lane).collect();
            said.count = said.served.len();
            if is_late {
                self.note_late(said, &shares, brought.swept);
            } else {
                self.note_taken(&group, said, (&reserved, sent), true);
            }
        }
        if let Some(start) = brought.start {
            self.pacing.note_spent(start.spent);
        }
        if let Some(floors) = brought.floors.clone() {
            self.permit_floors = Some((floors, sent));
        }
        if self.context.slowed.holds(&group.under.gates).is_some() {
            // It was sent before a handler was told so.
            brought.unread.append(&mut brought.jobs);
        }
        self.rescan.owed |= !brought.unread.is_empty() && !group.kind.in_lines;
        self.context.hand_over(worker, &reserved, brought).await;
        if !is_late && self.looks_aside(&group) {
            self.rescan.hurry();
        }
        Ok(())
    }
}

//! A claimer of the lanes under the same limits: it waits until there may be jobs and permits, reserves slots, claims, and hands over.
//!
//! Claims under limits take two round trips: the first takes permits with the jobs, the second waits until that is on the disk. The next claim is
//! sent after the first.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{oneshot, watch},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::ClaimContext,
    flight::Reserved,
    pacing::Pacing,
    waiter::{FIRST, Kind, SlotWaiter},
};
use crate::{
    error::complain,
    lanes::{Answer, Asked, From, Group, InHand, Lane, Request, Rescan, Room, Said, Share, Track, order},
    live::{ClaimerState, Link},
    run::{Promised, Slots},
};

/// A claimer of the lanes under the same limits.
pub(super) struct Claimer {
    context: Arc<ClaimContext>,
    group: watch::Receiver<Arc<Group>>,
    waiter: SlotWaiter,
    track: Track,
    pacing: Pacing,
    rescan: Rescan,
    /// Leases of which jobs ended here, which no claim has said yet.
    freed: HashSet<Uuid>,
    /// A claim is to say so though no job may be claimed; and when one was sent last.
    has_news: bool,
    sent_at: Instant,
    /// From where on to read the permits of each limit, and when the claim that said so was sent.
    permit_floors: Option<(Vec<i64>, Instant)>,
    /// Which of its lanes goes first; another one after each claim that brought jobs.
    turn: usize,
    /// Claims that wait until what they took is on the disk.
    landing: JoinSet<Flight>,
}

/// A claim that has come back.
struct Flight {
    link: Link,
    answer: Answer,
    reserved: Arc<Reserved>,
    /// By whose pauses its lanes were chosen.
    group: Arc<Group>,
    sent: Instant,
    /// What it will bring, as far as that is known.
    _air: Option<InHand>,
}

/// What has ended here is said soon, even if there is no slot to claim for: this long after the last claim.
const SAY: Duration = Duration::from_millis(20);

/// Slots are kept for a claim on its way for this long: one that meets no lock is over by far sooner.
const YOUNG: Duration = Duration::from_millis(50);

/// A claimer that waits for slots looks again after this, for those that other stores have left.
const LOOK: Duration = Duration::from_millis(250);

/// It is woken by what it waits for.
const LONG: Duration = Duration::from_hours(1);

impl Claimer {
    /// Of this group, with the floors that all claimers have in common.
    pub(super) fn new(context: &Arc<ClaimContext>, group: watch::Receiver<Arc<Group>>, track: Track) -> Self {
        let waiter = SlotWaiter::new(group.borrow().hint.notify());
        Self {
            context: Arc::clone(context),
            group,
            waiter,
            track,
            pacing: Pacing::new(),
            rescan: Rescan::default(),
            freed: HashSet::new(),
            has_news: false,
            sent_at: Instant::now(),
            permit_floors: None,
            turn: 0,
            landing: JoinSet::new(),
        }
    }

    /// Until `stop` fires, or the group is gone. Waits are broken off by that, statements never.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut group = self.join();
        while !stop.is_cancelled() {
            match self.group.has_changed() {
                Ok(true) => group = self.join(),
                Ok(false) => {}
                Err(_) => break,
            }
            self.hear(&group);
            let Some(until) = self.step(&group).await else { continue };
            // Kept, it would say that something here still goes by its pauses.
            let hint = Arc::clone(&group.hint);
            drop(group);
            tokio::select! {
                () = hint.notify().notified() => {}
                _ = self.group.changed() => self.group.mark_changed(),
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
            group = Arc::clone(&self.group.borrow());
        }
        self.waiter.leave_all();
        while let Some(flight) = self.landing.join_next().await {
            self.land(flight).await;
        }
    }

    /// From now on it goes by what the claim loop knows of the group now.
    fn join(&mut self) -> Arc<Group> {
        let group = Arc::clone(&self.group.borrow_and_update());
        self.track.set(group.lanes.iter());
        self.waiter.look_anew();
        self.pacing.reopen();
        group
    }

    fn hear(&mut self, group: &Group) {
        let told = group.hint.take();
        if told.jobs && self.pacing.rests() {
            // Nothing has kept them waiting until now.
            self.track.served(group.lanes.iter().map(|lane| lane.id));
        }
        self.pacing.hear(&told);
        if told.jobs {
            // What it was told of may lie below a floor.
            self.rescan.owed = true;
            self.waiter.look_anew();
        }
        self.has_news |= !told.freed.is_empty();
        self.freed.extend(told.freed);
    }

    /// Claims, if it is time; returns until when to wait, or `None` to go on at once.
    async fn step(&mut self, group: &Arc<Group>) -> Option<Instant> {
        let now = Instant::now();
        let due = self.pacing.due(now, &self.rescan);
        let say_at = (self.has_news && !self.pacing.is_broken()).then(|| self.sent_at + SAY);
        let (is_due, says) = (due.is_some_and(|at| now >= at), say_at.is_some_and(|at| now >= at));
        if !is_due {
            self.waiter.leave_all();
        }
        self.show(group);
        if !is_due && !says {
            return Some(due.into_iter().chain(say_at).min().unwrap_or(now + LONG));
        }
        let is_quiet = self.context.is_quiet.load(std::sync::atomic::Ordering::SeqCst);
        let is_heeded = self.context.queues.pauses().now().is_some_and(|paused| Arc::ptr_eq(&paused, &group.paused));
        let Some(worker) = self.context.worker().filter(|_| !is_quiet && is_heeded) else {
            // The claim loop wakes it once that is otherwise.
            self.waiter.leave_all();
            return Some(now + LONG);
        };
        if let Some(until) = self.context.slowed.holds(&group.under.gates) {
            self.pacing.break_until(until);
            return None;
        }
        while self.landing.len() >= self.ahead() {
            if let Some(flight) = self.landing.join_next().await {
                self.land(flight).await;
            }
        }
        let leave = if let Ok(leave) = Arc::clone(&self.context.flights).try_acquire_owned() {
            leave
        } else {
            // Others may have the slots meanwhile.
            self.waiter.leave_all();
            self.landing_until(Arc::clone(&self.context.flights).acquire_owned()).await.ok()?
        };
        if !self.waiter.waits() || self.waiter.has_waited(LOOK) || (self.rescan.owed && self.rescan.may(now)) {
            self.waiter.look_anew();
        }
        let (mut shares, reserved) = if is_due { self.reserve(group) } else { Default::default() };
        if is_due && reserved.is_empty() {
            self.pacing.rest();
            if group.lanes.is_empty() {
                self.rescan.end();
            }
        }
        self.context.fit(&self.track, &mut shares);
        if shares.is_empty() && !says {
            if reserved.values().any(|promised| promised.count > 0) {
                // What it has slots for is too large for now.
                self.waiter.leave_all();
            }
            let wait = self.context.aging.map_or(LOOK, |aging| aging.min(LOOK));
            return Some(now + if reserved.is_empty() { SAY } else { wait });
        }
        self.context.let_age(&mut self.track, &mut shares);
        self.claim(worker, (group, shares, reserved), leave).await;
        None
    }

    /// How many claims may wait for the disk: where the order of jobs is to be seen, one after the other.
    fn ahead(&self) -> usize {
        if self.context.queues.keep_order() { 1 } else { 4 }
    }

    fn show(&self, group: &Group) {
        let (before, now) = (group.hint.state(), self.pacing.state(Instant::now(), &self.rescan));
        let is_over = now != ClaimerState::Resting || (self.landing.is_empty() && group.hint.rest());
        if before != now && is_over {
            group.hint.show(now);
            self.context.bell.nudge();
        }
    }

    /// Slots for jobs of its lanes, in each queue: it is not known where the jobs are.
    fn reserve(&mut self, group: &Group) -> (Vec<Share>, Reserved) {
        let mut lanes: Vec<(i32, &Lane)> = Vec::with_capacity(group.lanes.len());
        for lane in order(group.lanes.iter(), self.turn) {
            let is_aged = self.context.aging.is_some_and(|aging| self.track.is_passed_over(lane.id, aging));
            if is_aged || self.waiter.may_hold(lane) {
                lanes.push((if is_aged { FIRST } else { lane.priority.into() }, lane));
            }
        }
        lanes.sort_by_key(|(priority, _)| *priority != FIRST);
        let most = group.under.most.max(1).min(self.context.batch);
        let most = |slots: &Slots| if group.under.timed { most.min(slots.concurrency()) } else { most };
        let kind = Kind { takes_batches: group.takes_batches, in_turn: false };
        let (shares, reserved) = self.waiter.reserve_for(&self.context.queues, &lanes, most, kind);
        self.waiter.keep(|queue| reserved.contains_key(queue));
        (shares, reserved)
    }

    /// Sends a claim, and waits for what it takes; without any lanes, only to say what has ended here.
    async fn claim(
        &mut self,
        worker: Uuid,
        (group, shares, reserved): (&Arc<Group>, Vec<Share>, Reserved),
        leave: tokio::sync::OwnedSemaphorePermit,
    ) {
        let (under, asks) = (&group.under, !shares.is_empty());
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let slots = reserved.values().map(|promised| promised.count).sum::<usize>();
        let most = slots.min(asked).min(self.context.batch).min(under.most.max(1));
        let from_zero = asks && (self.rescan.is_due() || (self.rescan.owed && self.rescan.may(Instant::now())));
        if from_zero {
            self.rescan.begin();
        }
        if asks {
            self.pacing.sent();
        }
        let freed: Vec<Uuid> = self.freed.drain().collect();
        tracing::debug!(limits = ?under.gates, most, freed = freed.len(), "claiming under limits");
        let (slack, told) = (self.pacing.slack(), Arc::clone(&self.context.bell));
        (self.has_news, self.sent_at) = (false, Instant::now());
        let limits = Asked { gates: Arc::clone(&under.gates), keyed: under.keyed, freed, told, slack, floors: self.permit_floors.clone() };
        let request = Request::new(worker, shares, most, From::Limited { from_zero }, &mut self.track, &self.context.held).under(limits);
        let (mut link, store, air) = (self.context.links().take(), self.context.store, self.context.weigh(&self.track, &request));
        let ((say, said), sent, reserved) = (oneshot::channel(), Instant::now(), Arc::new(reserved));
        let (kept, kept_group) = (Arc::clone(&reserved), Arc::clone(group));
        self.landing.spawn(async move {
            // Fails only if its claimer is gone.
            let say = |taken: Said| drop(say.send(taken));
            let answer = request.send_and_say(&mut link, store, say).await;
            drop(leave);
            Flight { link, answer, reserved: kept, group: kept_group, sent, _air: air }
        });
        let (mut is_young, old) = (true, tokio::time::sleep(YOUNG));
        tokio::pin!(said, old);
        let taken = loop {
            tokio::select! {
                biased;
                taken = &mut said => break taken,
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
                () = &mut old, if is_young => {
                    is_young = false;
                    reserved.values().for_each(Promised::release);
                    self.waiter.leave_all();
                }
            }
        };
        match taken {
            Ok(taken) => self.note_taken(group, taken, &reserved, asks),
            // Until it is known why.
            Err(_) => self.pacing.break_until(Instant::now() + LONG),
        }
    }

    /// Waits for this, and hands over what lands meanwhile.
    async fn landing_until<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
            }
        }
    }

    /// A claim has said what it took, and what stands in the way of more.
    fn note_taken(&mut self, group: &Group, said: Said, reserved: &Reserved, asked_for_jobs: bool) {
        let Said { room, count, most, served, lanes, from_zero, asked, took, reach } = said;
        reach.note(&mut self.track);
        self.context.note_served(&mut self.track, &lanes, count < most && room == Room::Open, served.iter().copied());
        self.context.taken.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        self.turn = self.turn.wrapping_add(usize::from(count > 0));
        if matches!(room, Room::Locked | Room::Unknown) {
            // Nothing was read: the next claim says it.
            self.freed.extend(asked);
        }
        if asked_for_jobs {
            self.waiter.note(
                &self.track,
                reserved,
                &lanes,
                &served.iter().copied(),
                count >= most || !matches!(room, Room::Open | Room::Keys(_)),
            );
            let is_part = reserved.values().any(|promised| promised.count == 0 || promised.withholds);
            if from_zero && matches!(room, Room::Locked | Room::Unknown) {
                self.rescan.owed = true;
            } else if from_zero {
                self.rescan.done(took, count);
                self.rescan.owed |= is_part;
            } else if count < most {
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
                "jobs wait for a limit whose row in `gate` somebody else has locked; see pg_locks, and end that session"
            ),
            Room::Gone => self.context.bell.note_control(),
            _ => {}
        }
    }

    /// What a claim took is on the disk, and its jobs are handed over. One that failed stops nothing else: its limits are tried again in a second.
    async fn land(&mut self, flight: Result<Flight, JoinError>) {
        if let Err(error) = self.land_jobs(flight).await {
            complain(&error, "a claim under limits failed; what they cover waits for a second, and nothing else does");
            self.pacing.break_until(Instant::now() + LONG);
            self.permit_floors = None;
            if error.as_database_error().is_none() {
                // The next connection may be to another server, which took over.
                self.track.forget_floors();
            }
        }
    }

    async fn land_jobs(&mut self, flight: Result<Flight, JoinError>) -> sqlx::Result<()> {
        let Flight { link, answer, reserved, group, sent, .. } = flight.map_err(|_| sqlx::Error::WorkerCrashed)?;
        self.context.links().push(link);
        let (worker, from_zero) = (answer.request.worker, answer.request.from == (From::Limited { from_zero: true }));
        let asked = answer.request.freed().to_vec();
        let mut brought = match answer.read(&mut self.track) {
            Ok(brought) => brought,
            Err(error) => {
                self.rescan.owed |= from_zero;
                self.freed.extend(asked);
                return Err(error);
            }
        };
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
        self.rescan.owed |= !brought.unread.is_empty();
        self.context.hand_over(worker, &reserved, brought).await;
        Ok(())
    }
}

//! The claim loop: keeps the slots fed, promotes what is due, and sleeps when there is nothing to do.
//!
//! One pass asks the database what is needed now; between passes the loop waits for the bell or a time. It decides when to claim; `claim`
//! knows how.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use queue_core::Options;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::{ClaimContext, FLIGHTS},
    flight::{ClaimResult, Flight, Links},
    lineup::Lineup,
    traffic::Traffic,
    trial::{TICK, Trial},
    under::Claimers,
    vigil::Vigil,
    waiter::SlotWaiter,
};
use crate::{
    error::complain,
    keep::{promote, wake_others},
    lanes::{KnownLeases, Lanes, Rescan},
    live::{Bell, Config, Identity, Link, OwnLimits, Sleep, Woken, jittered, pause_after},
    run::Queues,
};

/// The claim loop's state.
pub(crate) struct Feed {
    pub(super) context: Arc<ClaimContext>,
    pub(super) poll: Duration,
    pub(super) lanes: Lanes,
    pub(super) links: Links,
    /// The claim in the air between two passes, while there is more than one can take.
    pub(super) flight: Option<Flight>,
    /// A slow look below the floors, which nobody waits for.
    pub(super) late: Option<Flight>,
    /// What the last claim found.
    pub(super) found: ClaimResult,
    /// Waits for slots for single jobs, and for batches.
    pub(super) singles: SlotWaiter,
    pub(super) batches: SlotWaiter,
    pub(super) rescan: Rescan,
    /// What is to be brought into lines.
    pub(super) lineup: Lineup,
    /// The same of the lanes of handlers that take batches.
    pub(super) rescan_batches: Rescan,
    /// Whether they were asked before the others last time.
    pub(super) batches_first: bool,
    /// As whom it claimed last.
    us: Identity,
    pub(super) sleep: Sleep,
    /// The last pause on the way to sleep.
    pub(super) nap: Duration,
    pub(super) traffic: Traffic,
    pub(super) turn: usize,
    pub(super) turn_batches: usize,
    pub(super) promoted: Instant,
    /// The last look for due jobs has left some.
    pub(super) more_due: bool,
    pub(super) refreshed: Instant,
    pub(super) trial: Trial,
    pub(super) vigil: Vigil,
    /// When an idle worker asks its lanes next.
    pub(super) belt: Instant,
    /// Those of lanes under limits.
    pub(super) claimers: Claimers,
    pub(super) own_limits: OwnLimits,
    /// What its code says of limits is written.
    pub(super) declared: bool,
    pub(super) declare_at: Instant,
    /// Until when an idle worker has nothing to look for.
    pub(super) planned: Instant,
}

/// While busy, due jobs and new lanes are looked for this often; an idle worker knows when to look.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// How soon a worker looks again while jobs keep coming.
const BREATH: Duration = Duration::from_millis(2);

/// So long a pass makes due jobs ready before it claims.
const PROMOTE: Duration = Duration::from_millis(50);

impl Feed {
    pub(crate) fn new(
        (config, own_limits): (&Config, OwnLimits),
        known: &[(&'static str, Options)],
        queues: Arc<Queues>,
        held: KnownLeases,
        link: Link,
        bell: Arc<Bell>,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        let now = Instant::now();
        let types: Vec<(&'static str, u16)> = known.iter().map(|(name, options)| (*name, options.version)).collect();
        let named = |is: fn(&Options) -> bool| -> HashSet<&'static str> {
            known.iter().filter(move |(_, options)| is(options)).map(|(name, _)| *name).collect()
        };
        let lanes = Lanes::new(&types, named(|options| options.fair), queues.named());
        let lanes = lanes.leasing_each(named(|options| options.transactional)).batching(named(|options| options.batch.is_some()));
        let slowed = Arc::clone(&queues.context.slowed);
        let [singles, batches] = [0, 1].map(|_| SlotWaiter::new(bell.notify()));
        let limits = Links::like(link.another_for("limits").impatient());
        let context = ClaimContext {
            store: config.store,
            batch: config.batch,
            aging: config.aging,
            queues,
            bell,
            identity,
            held,
            slowed,
            links: Mutex::new(limits),
            flights: Arc::new(Semaphore::new(FLIGHTS)),
            is_quiet: false.into(),
            taken: 0.into(),
        };
        Self {
            context: Arc::new(context),
            poll: config.poll_interval,
            lanes,
            links: Links::like(link),
            claimers: Claimers::default(),
            own_limits,
            declared: false,
            declare_at: now,
            planned: now,
            flight: None,
            late: None,
            found: ClaimResult::Jobs(0),
            singles,
            batches,
            rescan: Rescan::default(),
            lineup: Lineup::default(),
            rescan_batches: Rescan::default(),
            batches_first: true,
            us: None,
            sleep: Sleep::Awake,
            nap: Duration::ZERO,
            traffic: Traffic::default(),
            turn: 0,
            turn_batches: 0,
            promoted: now,
            more_due: false,
            refreshed: now,
            trial: Trial::new(),
            vigil: Vigil::new(),
            belt: now,
        }
    }

    /// Until `stop` fires. Waits are broken off by it, statements never.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        if self.us.is_some() {
            // After a panic all is looked for anew. What a claim brought and was not handed over is given back.
            self.forget_server();
        }
        let context = Arc::clone(&self.context);
        let (bell, mut identity) = (&context.bell, context.identity.clone());
        let mut woken = Woken::Rung;
        while !stop.is_cancelled() {
            bell.vitals().claims.set();
            let now = *identity.borrow_and_update();
            if now != self.us {
                // Seen here too, because `fence` may sleep through a loss that lasted a millisecond; nothing was claimed under the new one yet.
                context.queues.abandon();
                context.queues.pauses().forget();
                (self.us, self.sleep, self.nap) = (now, Sleep::Awake, Duration::ZERO);
            }
            let Some(worker) = now else {
                let _ = tokio::time::timeout(self.poll, identity.changed()).await;
                continue;
            };
            let until = match self.pass(worker, woken).await {
                Ok(until) => {
                    bell.vitals().failing.clear();
                    until
                }
                Err(error) => {
                    complain(&error, "cannot claim now; trying again");
                    self.forget_server();
                    // Not the bell: every handler that ends now would ring for another failure.
                    let pause = jittered(pause_after(&error));
                    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
                    None
                }
            };
            woken = match until {
                Some(until) => {
                    self.planned = until;
                    let due = self.late_due().into_iter().fold(until, Instant::min);
                    bell.wait(self.vigil.until(due)).await
                }
                None => Woken::Rung,
            };
        }
        // What it brings is released with all that is queued.
        for flight in [self.flight.take(), self.late.take()].into_iter().flatten() {
            let _ = self.land(flight).await;
        }
        self.claimers.end(&self.context).await;
        self.links.close().await;
    }

    /// Asks for all that is needed now; returns until when to wait for the bell, or `None` to go on at once.
    async fn pass(&mut self, worker: Uuid, woken: Woken) -> sqlx::Result<Option<Instant>> {
        let before = self.sleep;
        let paused = self.mind_pauses(worker).await?;
        let promoted = self.promote_due().await?;
        let taken = self.claimers.mind(&self.context, &self.lanes);
        if taken > 0 {
            self.traffic.note(ClaimResult::Jobs(taken));
        }
        let left = self.mind_late(worker).await?;
        let is_rung = woken == Woken::Rung || promoted || paused || left;
        if is_rung || woken == Woken::Due {
            self.singles.look_anew();
            self.batches.look_anew();
        }
        if !is_rung {
            let owes = self.owes() || self.lineup.more;
            let rests = self.sleep != Sleep::Awake && !owes && !self.waits_for_slots() && !self.trial.is_quiet();
            if rests && Instant::now() < self.planned {
                return Ok(Some(self.planned));
            }
            if let Some(until) = self.may_sleep().await? {
                return Ok(Some(until));
            }
        }
        if !self.try_suspects(worker).await? {
            return Ok(Some(self.until(TICK)));
        }
        self.line_up().await?;
        let found = self.claim(worker).await?;
        // On the way to sleep it is the last look at what came before.
        let hurry = (is_rung && found != ClaimResult::Full) || self.sleep != before;
        self.claimers.look(self.links.any(), &self.context, &self.lanes, hurry).await?;
        self.traffic.note(found);
        if self.traffic.is_dense() && self.sleep != Sleep::Awake {
            let link = self.links.any();
            let woken = Sleep::end(link.get().await?, self.context.store, worker).await;
            (self.sleep, self.nap) = (link.note(woken)?, Duration::ZERO);
        }
        let is_busy = found == ClaimResult::Full || self.traffic.is_dense();
        if (!is_busy || self.refreshed.elapsed() > LOOK) && self.refresh().await? {
            return Ok(None);
        }
        match found {
            _ if self.more_due => Ok(None),
            ClaimResult::Full => Ok(None),
            _ if self.lineup.more => Ok(Some(self.until(BREATH))),
            ClaimResult::Saturated => Ok(Some(self.until(LOOK))),
            ClaimResult::Jobs(_) if self.traffic.is_dense() => Ok(Some(self.until(BREATH))),
            ClaimResult::Jobs(_) => self.come_to_rest(worker).await,
        }
    }

    /// No lane brought anything: a step on the way to sleep.
    async fn come_to_rest(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        // What is owed by now, and was not done, found no slot or no lane: not again at once.
        let now = Instant::now();
        let later = |at: Instant| if at <= now { now + LOOK } else { at };
        let owed = self.rescan.owed_at().filter(|_| self.owes()).into_iter().chain(self.rescan_batches.owed_at());
        let owed = owed.chain(self.claimers.owed_at()).map(later).chain(self.trial.due()).min();
        let until = self.fall_asleep(worker).await?;
        Ok(until.map(|until| owed.map_or(until, |owed| owed.min(until))))
    }

    /// Whether it waits for slots that others have.
    pub(super) fn waits_for_slots(&self) -> bool {
        self.singles.waits() || self.batches.waits()
    }

    /// The next connection may be to another one, which took over.
    fn forget_server(&mut self) {
        self.context.bell.vitals().failing.set_first();
        (self.sleep, self.nap) = (Sleep::Awake, Duration::ZERO);
        self.lanes.forget_server();
        // All is looked for from zero, at once.
        (self.rescan, self.rescan_batches, self.lineup) = Default::default();
        // The other connections are as old, and would fail one after the other.
        self.links.idle.clear();
        self.context.links().idle.clear();
        self.singles.leave_all();
        self.batches.leave_all();
    }

    pub(super) fn until(&self, pause: Duration) -> Instant {
        let look = Instant::now() + pause;
        self.context.bell.due().map_or(look, |due| due.min(look))
    }

    /// Makes ready what is due, if anything may be; returns whether anything was.
    async fn promote_due(&mut self) -> sqlx::Result<bool> {
        // Whoever dozes or sleeps asks for the time with each look, unless it has no slot for what it would find.
        let dozes = self.sleep == Sleep::Asleep || self.nap > Duration::ZERO;
        let knows = dozes && !self.trial.is_quiet() && !self.waits_for_slots();
        let (now, mut any) = (Instant::now(), false);
        if !self.more_due && self.context.bell.due().is_none_or(|due| now < due) && (knows || now.duration_since(self.promoted) < LOOK) {
            return Ok(false);
        }
        self.context.bell.forget_due();
        let link = self.links.any();
        loop {
            let promoted = promote(link.get().await?, self.context.store).await;
            let (queues, more) = link.note(promoted)?;
            if !queues.is_empty() {
                any = true;
                let woken = wake_others(link.get().await?, self.context.store, &queues).await;
                link.note(woken)?;
            }
            self.more_due = more;
            // Millions that are due at once hold up neither claims nor an end: the next pass goes on with them.
            if !more || now.elapsed() > PROMOTE {
                break;
            }
        }
        self.promoted = Instant::now();
        Ok(any)
    }

    /// Learns of new lanes; returns whether there were any.
    pub(super) async fn refresh(&mut self) -> sqlx::Result<bool> {
        let may_forget = self.flight.is_none() && self.late.is_none();
        let link = self.links.any();
        let found = self.lanes.refresh(link.get().await?, self.context.store, may_forget).await;
        let found = link.note(found)?;
        self.refreshed = Instant::now();
        self.claimers.tell(&self.context, &self.lanes);
        Ok(found)
    }
}

//! The scout of a worker: finds out when anything is to be done, tells the claimers whose lanes hold jobs, promotes what is due, and sleeps when
//! there is nothing to do. It claims nothing itself, but for suspects.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use queue_core::Options;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    claimers::{Claimers, is_single, tell_unasked},
    context::{ClaimContext, FLIGHTS, open},
    flight::Links,
    lineup::Lineup,
    traffic::Traffic,
    trial::{TICK, Trial},
    vigil::Vigil,
};
use crate::{
    error::complain,
    keep::{promote, wake_others},
    lanes::{KnownLeases, Lanes, Rescan},
    live::{Bell, Config, Identity, Link, OwnLimits, Sleep, Woken, jittered, pause_after},
    run::Queues,
};

/// What the scout of a worker knows.
pub(crate) struct Scout {
    pub(super) context: Arc<ClaimContext>,
    pub(super) poll: Duration,
    pub(super) lanes: Lanes,
    pub(super) link: Link,
    pub(super) claimers: Claimers,
    /// There may be new jobs, and it has not looked yet.
    pub(super) is_rung: bool,
    /// When it looked last, and when to look below the floors.
    pub(super) looked: Option<Instant>,
    pub(super) rescan: Rescan,
    /// What is to be brought into lines.
    pub(super) lineup: Lineup,
    /// The worker's identity at the last pass.
    us: Identity,
    pub(super) sleep: Sleep,
    /// The last pause on the way to sleep.
    pub(super) nap: Duration,
    /// When an idle worker asks its lanes next, and until when it has nothing to look for.
    pub(super) belt: Instant,
    pub(super) planned: Instant,
    traffic: Traffic,
    /// Claimers were told of jobs since they have brought any: those that go on by themselves are no reason to look more often.
    pub(super) has_told: bool,
    /// When it last told claimers without a look.
    told: Instant,
    promoted: Instant,
    /// The last look for due jobs has left some.
    more_due: bool,
    refreshed: Instant,
    pub(super) trial: Trial,
    pub(super) vigil: Vigil,
    pub(super) own_limits: OwnLimits,
    /// When to write what its code says of limits, if that is not written yet.
    pub(super) declare_at: Option<Instant>,
}

/// While busy, due jobs and new lanes are looked for this often; an idle worker knows when to look.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// While jobs keep coming and claimers are at work, the lanes of those that wait are looked at this often.
const OFTEN: Duration = Duration::from_millis(10);

/// How soon a worker looks again while jobs keep coming.
const BREATH: Duration = Duration::from_millis(2);

/// The longest that one pass spends on making due jobs ready.
const PROMOTE: Duration = Duration::from_millis(50);

impl Scout {
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
        let context = ClaimContext {
            store: config.store,
            batch: config.batch,
            aging: config.aging,
            queues,
            bell,
            identity,
            held,
            slowed,
            claims: Mutex::new(Links::like(link.another())),
            permits: Mutex::new(Links::like(link.another_for("limits").impatient())),
            flights: Arc::new(Semaphore::new(FLIGHTS)),
            is_quiet: false.into(),
            taken: 0.into(),
        };
        Self {
            context: Arc::new(context),
            poll: config.poll_interval,
            lanes,
            link,
            claimers: Claimers::default(),
            is_rung: false,
            looked: None,
            rescan: Rescan::default(),
            lineup: Lineup::default(),
            us: None,
            sleep: Sleep::Awake,
            nap: Duration::ZERO,
            belt: now,
            planned: now,
            traffic: Traffic::default(),
            has_told: false,
            told: now,
            promoted: now,
            more_due: false,
            refreshed: now,
            trial: Trial::new(),
            vigil: Vigil::new(),
            own_limits,
            declare_at: Some(now),
        }
    }

    /// Until `stop` fires. Waits are broken off by it, statements never.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        if self.us.is_some() {
            // After a panic all is looked for anew. What a claim brought and was not handed over is given back.
            self.forget_server();
        }
        self.claimers.stop = stop.clone();
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
                    if self.lanes.groups.any_fails() {
                        bell.vitals().failing.set_first();
                    } else {
                        bell.vitals().failing.clear();
                    }
                    until
                }
                Err(error) => {
                    complain(&error, "cannot look for jobs now; trying again");
                    self.forget_server();
                    // Not the bell: every handler that ends now would ring for another failure.
                    let pause = jittered(pause_after(&error));
                    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
                    None
                }
            };
            woken = match until {
                Some(until) => bell.wait(self.vigil.until(until)).await,
                None => Woken::Rung,
            };
        }
        self.claimers.end(&self.context).await;
        let another = self.link.another();
        std::mem::replace(&mut self.link, another).close().await;
    }

    /// Asks for all that is needed now; returns until when to wait for the bell, or `None` to go on at once.
    async fn pass(&mut self, worker: Uuid, woken: Woken) -> sqlx::Result<Option<Instant>> {
        let paused = self.mind_pauses(worker).await?;
        let promoted = self.promote_due().await?;
        let (now, was_quiet) = (Instant::now(), self.trial.is_quiet());
        // For an earlier ring that still waits for its look, these claimers were told already.
        let was_rung = self.is_rung && woken != Woken::Rung;
        self.is_rung |= woken == Woken::Rung || promoted || paused;
        self.heed_traffic(woken, now);
        let is_dense = self.traffic.is_dense(now, self.lanes.groups.any_is_active());
        if !self.is_rung
            && !is_dense
            && let Some(until) = self.go_on_resting().await?
        {
            return Ok(Some(until));
        }
        if !self.try_suspects(worker).await? {
            return Ok(Some(self.until(TICK)));
        }
        self.is_rung |= was_quiet;
        if (self.is_rung && !was_rung) || (is_dense && now >= self.told + BREATH) {
            self.has_told |= tell_unasked(&self.lanes);
            self.told = now;
        }
        self.line_up(is_dense || self.lanes.groups.any_is_active()).await?;
        if self.must_look(is_dense) {
            let hurry = std::mem::take(&mut self.is_rung);
            if self.look_for_jobs(hurry).await? {
                return Ok(None);
            }
        }
        if is_dense && self.sleep != Sleep::Awake {
            let woken = Sleep::end(self.link.get().await?, self.context.store, worker).await;
            (self.sleep, self.nap) = (self.link.note(woken)?, Duration::ZERO);
        }
        if self.refreshed.elapsed() > LOOK && (is_dense || self.lanes.groups.any_is_active()) {
            self.is_rung |= self.refresh().await?;
        }
        let (any_waits, is_active) = (self.lanes.groups.any_waits(), self.lanes.groups.any_is_active());
        match is_active {
            _ if self.more_due => Ok(None),
            _ if self.lineup.more => Ok(Some(self.until(BREATH))),
            _ if self.is_rung => Ok(Some(self.until(OFTEN))),
            false if any_waits && self.lanes.more_wait() => Ok(None),
            _ if is_dense => {
                Ok(Some(self.until(if is_active { OFTEN } else { BREATH.saturating_sub(self.told.elapsed()).max(BREATH / 4) })))
            }
            true if !any_waits => Ok(Some(self.until(LOOK))),
            _ => self.come_to_rest(worker).await,
        }
    }

    /// Whether to look which lanes hold jobs. Not often while claimers are at work, nor while none waits for jobs.
    fn must_look(&self, is_dense: bool) -> bool {
        let groups = &self.lanes.groups;
        let at_once = !groups.any_is_active() && (groups.any_waits() || self.lanes.are_none());
        let is_time = |pause| self.looked.is_none_or(|at| at.elapsed() >= pause);
        match () {
            () if self.is_rung => at_once || is_time(OFTEN),
            // A single claimer is told without a look: this one is for new lanes.
            () if is_dense => groups.any_waits() && is_time(if at_once && !is_single(&self.lanes) { BREATH } else { OFTEN }),
            () => self.lanes.more_wait() && (at_once || is_time(LOOK)),
        }
    }

    /// Notes whether jobs keep coming: claims have brought some since claimers were told of any, or it is rung while claimers are at work.
    fn heed_traffic(&mut self, woken: Woken, now: Instant) {
        let taken = self.context.taken.swap(0, Relaxed) > 0;
        let hits = (taken && std::mem::take(&mut self.has_told)) || (woken == Woken::Rung && self.lanes.groups.any_is_active());
        if hits {
            self.traffic.hit(now);
        }
    }

    /// The next connection may be to another one, which took over.
    fn forget_server(&mut self) {
        self.context.bell.vitals().failing.set_first();
        (self.sleep, self.nap) = (Sleep::Awake, Duration::ZERO);
        self.lanes.forget_server();
        // All is looked for from zero, at once.
        (self.rescan, self.lineup) = Default::default();
        // The other connections are as old, and would fail one after the other.
        for links in [&self.context.claims, &self.context.permits] {
            open(links).idle.clear();
        }
    }

    pub(super) fn until(&self, pause: Duration) -> Instant {
        let look = Instant::now() + pause;
        self.context.bell.due().map_or(look, |due| due.min(look))
    }

    /// Makes ready what is due, if anything may be; returns whether anything was.
    async fn promote_due(&mut self) -> sqlx::Result<bool> {
        // On the way to sleep and asleep, each look also returns the next due time.
        let dozes = self.sleep == Sleep::Asleep || self.nap > Duration::ZERO;
        let knows = dozes && self.may_rest();
        let (now, mut any) = (Instant::now(), false);
        if !self.more_due && self.context.bell.due().is_none_or(|due| now < due) && (knows || now.duration_since(self.promoted) < LOOK) {
            return Ok(false);
        }
        self.context.bell.forget_due();
        loop {
            let promoted = promote(self.link.get().await?, self.context.store).await;
            let (queues, more) = self.link.note(promoted)?;
            if !queues.is_empty() {
                any = true;
                let woken = wake_others(self.link.get().await?, self.context.store, &queues).await;
                self.link.note(woken)?;
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
        let found = self.lanes.refresh(self.link.get().await?, self.context.store).await;
        let found = self.link.note(found)?;
        self.refreshed = Instant::now();
        self.claimers.show(&self.context, &self.lanes);
        Ok(found)
    }
}

//! Poll loop of a worker. The poller promotes due jobs, finds lanes with ready jobs and notifies claimers. The poller itself claims only
//! quarantined jobs. The poller sleeps while the worker is idle.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use queue_core::options::Options;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    claimers::{Claimers, is_single, notify_without_probe},
    context::{ClaimContext, MAX_LIMITED_CLAIMS, lock},
    in_flight::IdleConnections,
    poll_state::{CrashQuarantine, FairQueueTimer, IDLE_CHECK_INTERVAL, PauseWatcher},
    traffic::Traffic,
};
use crate::{
    error::warn_throttled,
    keep::{promote, wake_others},
    lanes::{Lanes, LateScan, LeaseRegistry},
    live::{Config, Identity, OwnLimits, SleepState, StoreConnection, WakeReason, jittered, pause_after},
    run::Queues,
};

/// Outcome of the last promotion of due jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Promotion {
    /// No job was due, or other sessions had locked all due jobs.
    NothingDue,
    /// All due jobs were promoted.
    Done,
    /// Some due jobs are left for the next promotion.
    MoreDue,
}

/// State of a worker's poll loop.
pub(crate) struct Poller {
    pub(super) context: Arc<ClaimContext>,
    pub(super) poll: Duration,
    pub(super) lanes: Lanes,
    pub(super) link: StoreConnection,
    pub(super) claimers: Claimers,
    /// Whether a wake-up has occurred since the last probe.
    pub(super) has_wakeup: bool,
    /// Time of the last probe of lanes. `None` before the first probe.
    pub(super) probed_at: Option<Instant>,
    /// Schedule for probing lanes below their floors.
    pub(super) late_scan: LateScan,
    /// Schedule for moving jobs into fair queues.
    pub(super) fair_queues: FairQueueTimer,
    /// Worker identity as of the last iteration.
    identity: Identity,
    pub(super) sleep: SleepState,
    /// Current poll interval while the worker is falling asleep.
    pub(super) idle_interval: Duration,
    /// Time at which an idle worker next probes all lanes.
    pub(super) full_probe_at: Instant,
    /// Time at which an idle worker next polls.
    pub(super) next_probe_at: Instant,
    traffic: Traffic,
    /// Whether claimers have been notified since claims last returned jobs. Jobs that were found without a notification do not shorten
    /// the poll interval.
    pub(super) has_notified: bool,
    /// Time at which claimers were last notified without a probe.
    notified_at: Instant,
    pub(super) promoted_at: Instant,
    pub(super) promotion: Promotion,
    refreshed_at: Instant,
    pub(super) quarantine: CrashQuarantine,
    pub(super) pause_watcher: PauseWatcher,
    pub(super) own_limits: OwnLimits,
    /// Time of the next attempt to declare the limits of this worker's code. `None` once the limits are declared.
    pub(super) declare_at: Option<Instant>,
}

/// Interval at which a busy worker checks for due jobs and new lanes.
pub(super) const BUSY_PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Probe interval while claimers are active.
const ACTIVE_PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Probe interval while jobs arrive in quick succession.
const DENSE_PROBE_INTERVAL: Duration = Duration::from_millis(2);

/// Time until the next promotion while the next due time is unknown, or while another session has locked the due jobs.
pub(super) const PROMOTE_AGAIN: Duration = BUSY_PROBE_INTERVAL;

/// Maximum time that one iteration spends on promoting due jobs.
const MAX_PROMOTE_TIME: Duration = Duration::from_millis(50);

impl Poller {
    pub(crate) fn new(
        (config, own_limits): (&Config, OwnLimits),
        job_types: &[(&'static str, Options)],
        queues: Arc<Queues>,
        held: LeaseRegistry,
        link: StoreConnection,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        let now = Instant::now();
        let types: Vec<(&'static str, u16)> = job_types.iter().map(|(name, options)| (*name, options.version)).collect();
        let named = |is: fn(&Options) -> bool| -> HashSet<&'static str> {
            job_types.iter().filter(move |(_, options)| is(options)).map(|(name, _)| *name).collect()
        };
        let lanes = Lanes::new(&types, named(|options| options.fair), queues.named());
        let lanes = lanes.leasing_each(named(|options| options.transactional)).batching(named(|options| options.batch.is_some()));
        let (notifier, slow_downs) = (Arc::clone(&queues.context.notifier), Arc::clone(&queues.context.slow_downs));
        let context = ClaimContext {
            store: config.store,
            batch: config.batch,
            aging: config.aging,
            queues,
            notifier,
            identity,
            held,
            slow_downs,
            claims: Mutex::new(IdleConnections::like(link.another())),
            permits: Mutex::new(IdleConnections::like(link.another_for("limits").impatient())),
            limited_claims: Arc::new(Semaphore::new(MAX_LIMITED_CLAIMS)),
            is_quiet: false.into(),
            taken: 0.into(),
        };
        Self {
            context: Arc::new(context),
            poll: config.poll_interval,
            lanes,
            link,
            claimers: Claimers::default(),
            has_wakeup: false,
            probed_at: None,
            late_scan: LateScan::default(),
            fair_queues: FairQueueTimer::default(),
            identity: None,
            sleep: SleepState::Awake,
            idle_interval: Duration::ZERO,
            full_probe_at: now,
            next_probe_at: now,
            traffic: Traffic::default(),
            has_notified: false,
            notified_at: now,
            promoted_at: now,
            promotion: Promotion::Done,
            refreshed_at: now,
            quarantine: CrashQuarantine::new(),
            pause_watcher: PauseWatcher::new(),
            own_limits,
            declare_at: Some(now),
        }
    }

    /// Runs the poll loop until `stop` is cancelled. Cancellation interrupts waits, but not statements.
    pub(crate) async fn run(&mut self, stop: CancellationToken) {
        if self.identity.is_some() {
            // The loop has been restarted after a panic, so all lanes are probed again. Jobs that were claimed but not passed to slots
            // are released by housekeeping.
            self.forget_server();
        }
        self.claimers.stop = stop.clone();
        let context = Arc::clone(&self.context);
        let (notifier, mut identity) = (&context.notifier, context.identity.clone());
        let mut woken = WakeReason::Jobs;
        while !stop.is_cancelled() {
            notifier.loop_health().claims.set();
            let now = *identity.borrow_and_update();
            if now != self.identity {
                // The jobs of the previous identity are abandoned here too, because the task that watches the identity may miss a loss
                // that lasts only a few milliseconds. No job has been claimed under the new identity yet.
                context.queues.abandon();
                context.queues.pauses().forget();
                (self.identity, self.sleep, self.idle_interval) = (now, SleepState::Awake, Duration::ZERO);
            }
            let Some(worker) = now else {
                let _ = tokio::time::timeout(self.poll, identity.changed()).await;
                continue;
            };
            let until = match self.run_once(worker, woken).await {
                Ok(until) => {
                    if self.lanes.groups.any_fails() {
                        notifier.loop_health().failing.set_first();
                    } else {
                        notifier.loop_health().failing.clear();
                    }
                    until
                }
                Err(error) => {
                    warn_throttled(&error, "polling for jobs failed; retrying");
                    self.forget_server();
                    // Wake-ups are ignored during this pause. Otherwise, each finished handler would cause another failing poll.
                    let pause = jittered(pause_after(&error));
                    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
                    None
                }
            };
            woken = match until {
                Some(until) => notifier.wait(self.pause_watcher.until(until)).await,
                None => WakeReason::Jobs,
            };
        }
        self.claimers.end(&self.context).await;
        let another = self.link.another();
        std::mem::replace(&mut self.link, another).close().await;
    }

    /// Runs one poll iteration. Returns the latest time of the next iteration, or `None` to continue immediately.
    async fn run_once(&mut self, worker: Uuid, woken: WakeReason) -> sqlx::Result<Option<Instant>> {
        let paused = self.apply_pauses(worker).await?;
        let promoted = self.promote_due().await?;
        let (now, was_quiet) = (Instant::now(), self.quarantine.is_quiet());
        // Whether claimers have already been notified of a wake-up whose probe is still pending.
        let had_wakeup = self.has_wakeup && woken != WakeReason::Jobs;
        self.has_wakeup |= woken == WakeReason::Jobs || promoted || paused;
        self.record_traffic(woken, now);
        let is_dense = self.traffic.is_dense(now, self.lanes.groups.any_is_active());
        if !self.has_wakeup
            && !is_dense
            && let Some(until) = self.poll_while_idle().await?
        {
            return Ok(Some(until));
        }
        if !self.run_quarantined(worker).await? {
            return Ok(Some(self.until(IDLE_CHECK_INTERVAL)));
        }
        self.has_wakeup |= was_quiet;
        if (self.has_wakeup && !had_wakeup) || (is_dense && now >= self.notified_at + DENSE_PROBE_INTERVAL) {
            self.has_notified |= notify_without_probe(&self.lanes);
            self.notified_at = now;
        }
        self.update_fair_queues(is_dense || self.lanes.groups.any_is_active()).await?;
        if self.must_probe(is_dense) {
            let hurry = std::mem::take(&mut self.has_wakeup);
            if self.probe_lanes(hurry).await? {
                return Ok(None);
            }
        }
        if is_dense && self.sleep != SleepState::Awake {
            let woken = SleepState::end(self.link.get().await?, self.context.store, worker).await;
            (self.sleep, self.idle_interval) = (self.link.note(woken)?, Duration::ZERO);
        }
        if self.refreshed_at.elapsed() > BUSY_PROBE_INTERVAL && (is_dense || self.lanes.groups.any_is_active()) {
            self.has_wakeup |= self.refresh().await?;
        }
        let (any_awaits_notice, is_active) = (self.lanes.groups.any_awaits_notice(), self.lanes.groups.any_is_active());
        match is_active {
            _ if self.promotion == Promotion::MoreDue => Ok(None),
            _ if self.fair_queues.more => Ok(Some(self.until(DENSE_PROBE_INTERVAL))),
            _ if self.has_wakeup => Ok(Some(self.until(ACTIVE_PROBE_INTERVAL))),
            false if any_awaits_notice && self.lanes.has_more_holding() => Ok(None),
            _ if is_dense => Ok(Some(self.until(if is_active {
                ACTIVE_PROBE_INTERVAL
            } else {
                DENSE_PROBE_INTERVAL.saturating_sub(self.notified_at.elapsed()).max(DENSE_PROBE_INTERVAL / 4)
            }))),
            true if !any_awaits_notice => Ok(Some(self.until(BUSY_PROBE_INTERVAL))),
            _ => self.fall_asleep(worker).await,
        }
    }

    /// Returns whether to probe lanes now. Probes are rare while claimers are active, and are not needed while no claimer awaits a
    /// notice.
    fn must_probe(&self, is_dense: bool) -> bool {
        let groups = &self.lanes.groups;
        let at_once = !groups.any_is_active() && (groups.any_awaits_notice() || self.lanes.are_none());
        let is_time = |pause| self.probed_at.is_none_or(|at| at.elapsed() >= pause);
        match () {
            () if self.has_wakeup => at_once || is_time(ACTIVE_PROBE_INTERVAL),
            // A single claimer with few lanes is notified without a probe, so the probe only finds new lanes.
            () if is_dense => {
                groups.any_awaits_notice()
                    && is_time(if at_once && !is_single(&self.lanes) { DENSE_PROBE_INTERVAL } else { ACTIVE_PROBE_INTERVAL })
            }
            () => self.lanes.has_more_holding() && (at_once || is_time(BUSY_PROBE_INTERVAL)),
        }
    }

    /// Records an arrival of jobs if jobs have arrived since the last call. Jobs have arrived if claims returned jobs after a
    /// notification, or if a wake-up occurred while claimers were active.
    fn record_traffic(&mut self, woken: WakeReason, now: Instant) {
        let taken = self.context.taken.swap(0, Relaxed) > 0;
        let hits = (taken && std::mem::take(&mut self.has_notified)) || (woken == WakeReason::Jobs && self.lanes.groups.any_is_active());
        if hits {
            self.traffic.hit(now);
        }
    }

    /// Discards all state learned from the database server. After a failover, the next connection may reach another server.
    fn forget_server(&mut self) {
        self.context.notifier.loop_health().failing.set_first();
        (self.sleep, self.idle_interval) = (SleepState::Awake, Duration::ZERO);
        self.lanes.forget_server();
        // Scans below the floors become due immediately.
        (self.late_scan, self.fair_queues) = Default::default();
        // If the server has failed, its idle connections would otherwise fail one by one.
        for links in [&self.context.claims, &self.context.permits] {
            lock(links).idle.clear();
        }
    }

    pub(super) fn until(&self, pause: Duration) -> Instant {
        let poll_at = Instant::now() + pause;
        self.context.notifier.due().map_or(poll_at, |due| due.min(poll_at))
    }

    /// Promotes due jobs, unless none is expected to be due yet. Returns whether any job was promoted.
    async fn promote_due(&mut self) -> sqlx::Result<bool> {
        // While the worker is asleep or falling asleep, each probe also returns the due time of the next job.
        let dozes = self.sleep == SleepState::Asleep || self.idle_interval > Duration::ZERO;
        let knows = dozes && self.may_sleep();
        let (now, mut any) = (Instant::now(), false);
        if self.promotion != Promotion::MoreDue
            && self.context.notifier.due().is_none_or(|due| now < due)
            && (knows || now.duration_since(self.promoted_at) < BUSY_PROBE_INTERVAL)
        {
            return Ok(false);
        }
        self.context.notifier.forget_due();
        loop {
            let promoted = promote(self.link.get().await?, self.context.store).await;
            let (queues, more) = self.link.note(promoted)?;
            if !queues.is_empty() {
                any = true;
                let woken = wake_others(self.link.get().await?, self.context.store, &queues).await;
                self.link.note(woken)?;
            }
            self.promotion = match more {
                true => Promotion::MoreDue,
                false if any => Promotion::Done,
                false => Promotion::NothingDue,
            };
            // Many due jobs must not delay claims or shutdown, so the next iteration continues the promotion.
            if !more || now.elapsed() > MAX_PROMOTE_TIME {
                break;
            }
        }
        self.promoted_at = Instant::now();
        // The next probe reads the exact due time of the next job. Without a probe, this provisional due time bounds the worker's sleep.
        self.context.notifier.record_due(PROMOTE_AGAIN);
        Ok(any)
    }

    /// Loads new lanes. Returns whether any new lane was found.
    pub(super) async fn refresh(&mut self) -> sqlx::Result<bool> {
        let found = self.lanes.refresh(self.link.get().await?, self.context.store).await;
        let found = self.link.note(found)?;
        self.refreshed_at = Instant::now();
        self.claimers.show(&self.context, &self.lanes);
        Ok(found)
    }
}

//! The claim loop: keeps the slots fed, promotes what is due, and sleeps when there is nothing to do.
//!
//! One pass asks the database what is needed now; between passes the loop waits for the bell or a time. It decides when to claim; `claim`
//! knows how.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    claim::{Lane, Lanes, Rescan, Source, order},
    config::Config,
    connect::{Link, bounded},
    dispatch::Slots,
    lease::Identity,
    promote::{next_run, promote, wake_others},
    wake::{Bell, Sleep},
};

/// Slots, and the queue they serve.
pub(crate) struct Subscription {
    /// `None` for any queue.
    queue: Option<String>,
    pub(crate) slots: Arc<Slots>,
    rescan: Rescan,
    /// Whether its last claim found less than it asked for.
    drained: bool,
}

impl Subscription {
    pub(crate) fn new(queue: Option<String>, slots: Arc<Slots>) -> Self {
        Self { queue, slots, rescan: Rescan::default(), drained: false }
    }

    fn serves(&self, lane: &Lane) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
    }
}

/// The claim loop's state.
pub(crate) struct Feed {
    store: Store,
    batch: usize,
    poll: Duration,
    patience: Duration,
    subscriptions: Vec<Subscription>,
    /// What to put into the idle row.
    queues: Vec<String>,
    lanes: Lanes,
    link: Link,
    bell: Arc<Bell>,
    identity: watch::Receiver<Identity>,
    sleep: Sleep,
    /// Full batches in a row.
    streak: u32,
    turn: usize,
    promoted: Instant,
    refreshed: Instant,
    suspected: Instant,
}

/// While busy, due jobs and new lanes are looked for this often; an idle worker knows when to look.
const LOOK: Duration = Duration::from_millis(250);

/// How soon a worker that is falling asleep looks again whether older transactions have ended.
const NAP: Duration = Duration::from_millis(5);

/// After so many full batches producers need not notify us. Fewer, and the idle row would be written and deleted for every small burst.
const BUSY: u32 = 3;

/// How long a suspect may have the process to itself before others run beside it again.
const ALONE: Duration = Duration::from_secs(10);

impl Feed {
    pub(crate) fn new(
        config: &Config,
        types: Vec<&'static str>,
        subscriptions: Vec<Subscription>,
        link: Link,
        bell: Arc<Bell>,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        let named: Vec<String> = subscriptions.iter().filter_map(|subscription| subscription.queue.clone()).collect();
        let (served, queues) = if named.is_empty() { (None, vec!["*".to_owned()]) } else { (Some(named.clone()), named) };
        let now = Instant::now();
        Self {
            store: config.store,
            batch: config.batch,
            poll: config.poll_interval,
            patience: config.lease_ttl,
            subscriptions,
            queues,
            lanes: Lanes::new(types, served),
            link,
            bell,
            identity,
            sleep: Sleep::Awake,
            streak: 0,
            turn: 0,
            promoted: now,
            refreshed: now,
            suspected: now,
        }
    }

    /// Until `stop` fires. Waits are broken off by it, statements never.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut us = None;
        while !stop.is_cancelled() {
            let identity = *self.identity.borrow_and_update();
            if identity != us {
                (us, self.sleep) = (identity, Sleep::Awake);
            }
            let Some(worker) = identity else {
                let _ = tokio::time::timeout(self.poll, self.identity.changed()).await;
                continue;
            };
            let until = match self.pass(worker, &stop).await {
                Ok(until) => until,
                Err(error) => {
                    tracing::warn!(error = queue_core::message(&error), "cannot claim now; trying again");
                    self.sleep = Sleep::Awake;
                    Some(Instant::now() + Duration::from_millis(500).mul_f64(1.0 + fastrand::f64()))
                }
            };
            if let Some(until) = until {
                self.bell.wait(until).await;
            }
        }
        self.link.close().await;
    }

    /// Asks for all that is needed now; returns until when to wait for the bell, or `None` to go on at once.
    async fn pass(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<Option<Instant>> {
        self.promote_due().await?;
        let full = self.claim(worker).await?;
        if full {
            self.streak += 1;
            if self.streak >= BUSY && self.sleep != Sleep::Awake {
                let woken = Sleep::end(self.link.get().await?, self.store, worker).await;
                self.sleep = self.link.note(woken)?;
            }
        } else {
            self.streak = 0;
        }
        if (!full || self.refreshed.elapsed() > LOOK) && self.refresh().await? {
            return Ok(None);
        }
        self.try_suspects(worker, stop).await?;
        if self.subscriptions.iter().any(|subscription| subscription.drained) { self.fall_asleep(worker).await } else { Ok(self.until_look()) }
    }

    /// Claims for every subscription that has room; returns whether one got all it asked for.
    async fn claim(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let mut full = false;
        self.turn = self.turn.wrapping_add(1);
        for subscription in &mut self.subscriptions {
            let want = subscription.slots.demand(self.batch);
            if want == 0 {
                subscription.drained = false;
                continue;
            }
            let lanes = order(self.lanes.all().filter(|lane| !lane.solo && subscription.serves(lane)), self.turn);
            let mut source = Source { link: &mut self.link, store: self.store, worker };
            let claimed = match lanes.as_slice() {
                [] => Vec::new(),
                lanes => self.lanes.claim(&mut source, &mut subscription.rescan, lanes, want).await?,
            };
            subscription.drained = claimed.len() < want;
            full |= !subscription.drained;
            subscription.slots.push(claimed);
        }
        Ok(full)
    }

    /// One step on the way to sleep; see [`Sleep`].
    async fn fall_asleep(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        let connection = self.link.get().await?;
        let before = self.sleep;
        let step = match before {
            Sleep::Awake => Sleep::announce(connection, self.store, worker, &self.queues).await,
            Sleep::Announced(_) => before.confirm(connection).await,
            Sleep::Asleep => Ok(before),
        };
        self.sleep = self.link.note(step)?;
        if self.sleep != before {
            return Ok(None);
        }
        if let Sleep::Announced(_) = before {
            return Ok(Some(Instant::now() + NAP));
        }
        self.bell.forget_due();
        let next = next_run(self.link.get().await?, self.store).await;
        if let Some(wait) = self.link.note(next)? {
            self.bell.due_in(wait);
        }
        let poll = Instant::now() + self.poll;
        Ok(Some(self.bell.due().map_or(poll, |due| due.min(poll))))
    }

    fn until_look(&self) -> Option<Instant> {
        let look = Instant::now() + LOOK;
        Some(self.bell.due().map_or(look, |due| due.min(look)))
    }

    async fn promote_due(&mut self) -> sqlx::Result<()> {
        let now = Instant::now();
        if self.bell.due().is_none_or(|due| now < due) && now.duration_since(self.promoted) < LOOK {
            return Ok(());
        }
        self.bell.forget_due();
        loop {
            let promoted = promote(self.link.get().await?, self.store).await;
            let (queues, more) = self.link.note(promoted)?;
            if !queues.is_empty() {
                let woken = wake_others(self.link.get().await?, self.store, &queues).await;
                self.link.note(woken)?;
            }
            if !more {
                break;
            }
        }
        self.promoted = Instant::now();
        Ok(())
    }

    /// Learns of new lanes; returns whether there were any.
    async fn refresh(&mut self) -> sqlx::Result<bool> {
        let found = self.lanes.refresh(self.link.get().await?, self.store).await;
        let found = self.link.note(found)?;
        self.refreshed = Instant::now();
        Ok(found)
    }

    /// Runs jobs that may have ended a process, one at a time while nothing else runs here, so that a crash convicts the right one.
    async fn try_suspects(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<()> {
        let lanes: Vec<i64> = order(self.lanes.all().filter(|lane| lane.solo), self.turn);
        if lanes.is_empty() || self.suspected.elapsed() < LOOK {
            return Ok(());
        }
        self.suspected = Instant::now();
        let found = sqlx::query_scalar::<_, bool>(self.store.sql(include_str!("../sql/suspects.sql"))).bind(&lanes);
        let found = bounded(found.fetch_one(self.link.get().await?)).await;
        if !self.link.note(found)? {
            return Ok(());
        }
        self.wait_until_idle(self.patience, stop).await;
        let began = Instant::now();
        while began.elapsed() < ALONE && !stop.is_cancelled() {
            let mut source = Source { link: &mut self.link, store: self.store, worker };
            let claimed = self.lanes.claim(&mut source, &mut Rescan::default(), &lanes, 1).await?;
            let Some(lane) = claimed.first().and_then(|job| self.lanes.get(job.lane)) else { break };
            let Some(subscription) = self.subscriptions.iter().find(|subscription| subscription.serves(lane)) else { break };
            subscription.slots.push(claimed);
            self.wait_until_idle(ALONE, stop).await;
        }
        Ok(())
    }

    async fn wait_until_idle(&self, at_most: Duration, stop: &CancellationToken) {
        let until = Instant::now() + at_most;
        while Instant::now() < until && !stop.is_cancelled() && !self.subscriptions.iter().all(|subscription| subscription.slots.is_idle()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

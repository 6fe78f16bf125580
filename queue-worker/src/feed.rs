//! The claim loop: keeps the slots fed, promotes what is due, and sleeps when there is nothing to do.
//!
//! One pass asks the database what is needed now; between passes the loop waits for the bell or a time. It decides when to claim; `claim`
//! knows how.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    bell::Bell,
    claim::{Claimed, Lane, Lanes, Rescan, Share, Source, Strays, order},
    config::Config,
    connect::{Link, bounded},
    lease::Identity,
    promote::{next_run, promote, wake_others},
    slots::{Queues, Slots},
    wake::Sleep,
};

/// The claim loop's state.
pub(crate) struct Feed {
    store: Store,
    batch: usize,
    poll: Duration,
    aging: Option<Duration>,
    queues: Arc<Queues>,
    lanes: Lanes,
    link: Link,
    strays: Strays,
    rescan: Rescan,
    bell: Arc<Bell>,
    identity: watch::Receiver<Identity>,
    sleep: Sleep,
    traffic: Traffic,
    turn: usize,
    promoted: Instant,
    refreshed: Instant,
    /// The suspect that was claimed last.
    suspect: Option<(Arc<Slots>, JobId)>,
    /// Suspects are not looked for before this.
    suspects: Instant,
}

/// While busy, due jobs and new lanes are looked for this often; an idle worker knows when to look.
const LOOK: Duration = Duration::from_millis(250);

/// How soon a worker that is falling asleep looks again whether older transactions have ended.
const NAP: Duration = Duration::from_millis(5);

/// How soon a worker looks again while jobs keep coming.
const BREATH: Duration = Duration::from_millis(2);

/// How long a suspect may have the process to itself before others run beside it again.
const ALONE: Duration = Duration::from_secs(10);

/// What a claim found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// No queue had room.
    Saturated,
    /// All there was.
    Jobs(usize),
    /// As much as was asked for; there may be more.
    Full,
}

/// Whether jobs come so fast that looking for them costs less than being told: a notification in every transaction makes commits queue up
/// behind each other.
#[derive(Default)]
struct Traffic {
    hits: u32,
    misses: u32,
}

impl Traffic {
    /// So many looks in a row make up one's mind. Fewer, and the idle row would be written and deleted for every small burst.
    const ENOUGH: u32 = 3;

    fn note(&mut self, found: Found) {
        match found {
            Found::Saturated => {}
            Found::Jobs(0) if self.misses + 1 >= Self::ENOUGH => *self = Self::default(),
            Found::Jobs(0) => self.misses += 1,
            Found::Jobs(_) | Found::Full => *self = Self { hits: self.hits.saturating_add(1), misses: 0 },
        }
    }

    fn is_dense(&self) -> bool {
        self.hits >= Self::ENOUGH
    }
}

impl Feed {
    pub(crate) fn new(
        config: &Config,
        types: Vec<&'static str>,
        queues: Arc<Queues>,
        link: Link,
        bell: Arc<Bell>,
        identity: watch::Receiver<Identity>,
    ) -> Self {
        let now = Instant::now();
        Self {
            store: config.store,
            batch: config.batch,
            poll: config.poll_interval,
            aging: config.aging,
            lanes: Lanes::new(types, queues.named()),
            queues,
            link,
            strays: Strays::default(),
            rescan: Rescan::default(),
            bell,
            identity,
            sleep: Sleep::Awake,
            traffic: Traffic::default(),
            turn: 0,
            promoted: now,
            refreshed: now,
            suspect: None,
            suspects: now,
        }
    }

    /// Until `stop` fires. Waits are broken off by it, statements never.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut us = None;
        while !stop.is_cancelled() {
            let identity = *self.identity.borrow_and_update();
            if identity != us {
                // Seen here too, because `fence` may sleep through a loss that lasted a millisecond; nothing was claimed under the new one yet.
                for slots in self.queues.all().into_iter().filter(|_| us.is_some()) {
                    slots.abandon();
                }
                (us, self.sleep) = (identity, Sleep::Awake);
                self.bell.note_told(false);
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
                    // Not the bell: every handler that ends now would ring for another failure.
                    let pause = Duration::from_millis(500).mul_f64(1.0 + fastrand::f64());
                    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
                    None
                }
            };
            self.bell.note_told(self.sleep == Sleep::Asleep);
            if let Some(until) = until {
                self.bell.wait(until).await;
            }
        }
        self.link.close().await;
    }

    /// Asks for all that is needed now; returns until when to wait for the bell, or `None` to go on at once.
    async fn pass(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<Option<Instant>> {
        self.promote_due().await?;
        if self.strays.any() {
            let given_back = self.strays.give_back(self.link.get().await?, self.store).await;
            self.link.note(given_back)?;
        }
        let found = self.claim(worker).await?;
        self.traffic.note(found);
        if self.traffic.is_dense() && self.sleep != Sleep::Awake {
            self.bell.note_told(false);
            let woken = Sleep::end(self.link.get().await?, self.store, worker).await;
            self.sleep = self.link.note(woken)?;
        }
        let is_busy = found == Found::Full || self.traffic.is_dense();
        if (!is_busy || self.refreshed.elapsed() > LOOK) && self.refresh().await? {
            return Ok(None);
        }
        let suspects = self.try_suspects(worker, stop).await?;
        match found {
            Found::Full => Ok(None),
            Found::Saturated => Ok(Some(self.until(LOOK))),
            Found::Jobs(_) if self.traffic.is_dense() => Ok(Some(self.until(BREATH))),
            Found::Jobs(_) => {
                let owed = self.rescan.owed().into_iter().chain(suspects).min();
                let until = self.fall_asleep(worker).await?;
                Ok(until.map(|until| owed.map_or(until, |owed| owed.min(until))))
            }
        }
    }

    /// Claims for every queue that has room.
    async fn claim(&mut self, worker: Uuid) -> sqlx::Result<Found> {
        self.turn = self.turn.wrapping_add(1);
        let lanes: Vec<&Lane> = if self.lanes.are_many() {
            let waiting = self.lanes.waiting(self.link.get().await?, self.store).await;
            order(self.link.note(waiting)?.into_iter().filter(|lane| !lane.solo), self.turn)
        } else {
            order(self.lanes.all().filter(|lane| !lane.solo), self.turn)
        };
        let mut room: HashMap<&str, (Arc<Slots>, usize)> = HashMap::new();
        let mut shares = Vec::with_capacity(lanes.len());
        for lane in &lanes {
            let Some(slots) = self.queues.slots(&lane.queue) else { continue };
            let (_, most) = room.entry(&lane.queue).or_insert_with(|| {
                let most = slots.demand(self.batch);
                (slots, most)
            });
            if *most > 0 {
                shares.push(Share { lane: lane.id, most: *most });
            }
        }
        let most = room.values().map(|(_, most)| *most).sum::<usize>().min(self.batch);
        let room: HashMap<String, (Arc<Slots>, usize)> = room.into_iter().map(|(queue, room)| (queue.to_owned(), room)).collect();
        if shares.is_empty() {
            if self.lanes.more_wait() {
                return Ok(Found::Full);
            }
            return Ok(if room.is_empty() { Found::Jobs(0) } else { Found::Saturated });
        }
        self.let_age(&mut shares);
        let mut source = Source { link: &mut self.link, store: self.store, worker, strays: &mut self.strays };
        let claimed = self.lanes.claim(&mut source, &mut self.rescan, &shares, most).await?;
        let count = claimed.len();
        if self.aging.is_some() {
            let reached = if count < most { shares.len() } else { 0 };
            self.lanes.served(shares[..reached].iter().map(|share| share.lane).chain(claimed.iter().map(|job| job.lane)));
        }
        let filled = self.hand_out(worker, claimed, &room);
        Ok(if count >= most || filled || self.lanes.more_wait() { Found::Full } else { Found::Jobs(count) })
    }

    /// Lanes that better ones have kept waiting too long go first, for a tenth of the room.
    fn let_age(&mut self, shares: &mut [Share]) {
        let Some(aging) = self.aging else { return };
        shares.sort_by_cached_key(|share| !self.lanes.is_passed_over(share.lane, aging));
        for share in shares {
            if self.lanes.is_passed_over(share.lane, aging) {
                share.most = share.most.div_ceil(10);
            }
        }
    }

    /// Gives jobs to their queues' slots; returns whether a queue got all it had room for. Drops them if our identity is gone meanwhile: they
    /// will be recovered.
    fn hand_out(&self, worker: Uuid, claimed: Vec<Claimed>, room: &HashMap<String, (Arc<Slots>, usize)>) -> bool {
        let mut by_queue: HashMap<&str, Vec<Claimed>> = HashMap::new();
        for job in claimed {
            let queue = self.lanes.get(job.lane).map_or("", |lane| lane.queue.as_str());
            by_queue.entry(queue).or_default().push(job);
        }
        let ours = *self.identity.borrow() == Some(worker);
        let mut filled = false;
        for (queue, jobs) in by_queue {
            if let Some((slots, most)) = room.get(queue)
                && ours
            {
                filled |= jobs.len() >= *most;
                slots.push(jobs);
            }
        }
        filled
    }

    /// One step on the way to sleep; see [`Sleep`].
    async fn fall_asleep(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        let connection = self.link.get().await?;
        let before = self.sleep;
        let step = match before {
            Sleep::Awake => {
                Sleep::announce(connection, self.store, worker, &self.queues.named().unwrap_or_else(|| vec!["*".to_owned()])).await
            }
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
            self.bell.note_due(wait);
        }
        let poll = Instant::now() + self.poll;
        Ok(Some(self.bell.due().map_or(poll, |due| due.min(poll))))
    }

    fn until(&self, pause: Duration) -> Instant {
        let look = Instant::now() + pause;
        self.bell.due().map_or(look, |due| due.min(look))
    }

    async fn promote_due(&mut self) -> sqlx::Result<()> {
        let now = Instant::now();
        let asleep = self.sleep == Sleep::Asleep;
        if self.bell.due().is_none_or(|due| now < due) && (asleep || now.duration_since(self.promoted) < LOOK) {
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
    /// Returns when to look again, if there may be some still.
    async fn try_suspects(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<Option<Instant>> {
        let lanes: Vec<i64> = order(self.lanes.all().filter(|lane| lane.solo), self.turn).into_iter().map(|lane| lane.id).collect();
        if lanes.is_empty() || Instant::now() < self.suspects {
            return Ok(Some(self.suspects).filter(|_| !lanes.is_empty()));
        }
        self.suspects = Instant::now() + LOOK;
        let found = sqlx::query_scalar::<_, bool>(self.store.sql(include_str!("../sql/suspects.sql"))).bind(&lanes);
        let found = bounded(found.fetch_one(self.link.get().await?)).await;
        if !self.link.note(found)? {
            return Ok(None);
        }
        let (began, mut more) = (Instant::now(), true);
        self.wait_until_idle(ALONE, stop).await;
        let shares = self.suspects_with_room();
        // Not alone if ordinary jobs outlast our patience, lest they keep the suspect waiting for ever; but never two suspects at a time, or the
        // longer one would be charged with the other's crashes.
        while began.elapsed() < 2 * ALONE && !stop.is_cancelled() && !shares.is_empty() && !self.suspect_runs() {
            let mut source = Source { link: &mut self.link, store: self.store, worker, strays: &mut self.strays };
            let claimed = self.lanes.claim(&mut source, &mut Rescan::default(), &shares, 1).await?;
            more = !claimed.is_empty();
            let lane = claimed.first().and_then(|job| self.lanes.get(job.lane));
            let Some(slots) = lane.and_then(|lane| self.queues.slots(&lane.queue)) else { break };
            if *self.identity.borrow() != Some(worker) {
                break;
            }
            self.suspect = claimed.first().map(|job| (Arc::clone(&slots), job.id));
            slots.push(claimed);
            self.wait_until_idle(ALONE, stop).await;
        }
        // As long for the others as for the suspects, lest one crash of many slow jobs stop everything else.
        self.suspects = Instant::now() + began.elapsed().max(LOOK);
        Ok(Some(self.suspects).filter(|_| more))
    }

    /// The solo lanes whose queues have a free slot.
    fn suspects_with_room(&self) -> Vec<Share> {
        let lanes = order(self.lanes.all().filter(|lane| lane.solo), self.turn).into_iter();
        let free = lanes.filter(|lane| self.queues.slots(&lane.queue).is_some_and(|slots| slots.has_room()));
        free.map(|lane| Share { lane: lane.id, most: 1 }).collect()
    }

    fn suspect_runs(&self) -> bool {
        self.suspect.as_ref().is_some_and(|(slots, id)| slots.holds(*id))
    }

    /// Until nothing runs here and every verdict is written: a crash would charge those that are not.
    async fn wait_until_idle(&self, at_most: Duration, stop: &CancellationToken) {
        let until = Instant::now() + at_most;
        while Instant::now() < until && !stop.is_cancelled() && !self.lanes.hold_nothing() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

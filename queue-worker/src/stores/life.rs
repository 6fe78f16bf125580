//! The life of one store in the process: without a worker until there is something to do, with one until nothing is left.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    migrate,
    runner::{locate, verify_worker},
    stores::Member,
};
use sqlx::PgPool;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    scout::{self, Rouse},
    site::Site,
    watched::{Served, Watched},
};
use crate::{
    error::Error,
    live::{Engine, Life, Link, Vitals, Wires},
    run::SharedSlots,
    tally::Tallies,
    worker::{Beside, Checked, RunningWorker, Worker},
};

/// Makes the worker of a store.
pub(super) type Make = dyn Fn(&Member, Worker) -> Worker + Send + Sync;

/// What the stores of a process have in common.
pub(super) struct Common {
    pub(super) make: Arc<Make>,
    pub(super) shares: SharedSlots,
    pub(super) loops: Engine,
    pub(super) hearts: Engine,
    /// The runtime that handlers run on.
    pub(super) handlers: Handle,
    pub(super) upkeeps: Semaphore,
    pub(super) linger: Duration,
    pub(super) upkeep: Duration,
    pub(super) stop: CancellationToken,
}

/// One of them.
pub(super) struct OneStore {
    pub(super) common: Arc<Common>,
    pub(super) site: Arc<Site>,
    pub(super) watched: Arc<Watched>,
    /// It was taken off the roster.
    pub(super) gone: CancellationToken,
}

/// How often it is looked whether a worker has something to do still.
const BEAT: Duration = Duration::from_millis(100);

/// A worker that only tidies goes so soon.
const TIDY: Duration = Duration::from_millis(300);

/// A worker that cannot claim for so long, and runs nothing, is let go until its store is well.
const FAILING: Duration = Duration::from_secs(5);

/// A store that does not say within so long whether it can have a worker does not work.
const BEGIN: Duration = Duration::from_secs(10);

/// A store that is not tidied within so long leaves its turn to others.
const TURN: Duration = Duration::from_secs(30);

/// Pruning every minute, as any worker does.
const PRUNE: Duration = Duration::from_mins(1);

/// Where nobody listens, an idle worker looks this often.
const POLL: Duration = Duration::from_millis(250);

/// Why a store is given a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Roused,
    Upkeep,
}

/// How a worker's time in a store ended.
enum Over {
    /// There is nothing to do.
    Nothing,
    /// It is to end.
    Asked,
    /// The store does not work.
    Failed(&'static str),
}

/// What the worker of a store serves, as it is made now, and where its own connections are to lead.
pub(super) fn served(common: &Common, member: &Member) -> Result<(Served, PgPool), Error> {
    let worker = made(common, member)?;
    let Checked { config, given, direct, .. } = worker.checked((Vitals::default(), Life::new(), Tallies::default()), None)?;
    let queues = (!config.queues.is_empty()).then(|| config.queues.iter().map(|(queue, _)| queue.clone()).collect());
    Ok((Served { types: given.job_types(), queues }, direct))
}

/// By the program's own function, whose panic is that store's trouble.
fn made(common: &Common, member: &Member) -> Result<Worker, Error> {
    let make = || (common.make)(member, Worker::new(member.pool().clone()));
    catch_unwind(AssertUnwindSafe(make)).map_err(|_| Error::Making)
}

impl OneStore {
    /// Until the process stops, or the store is taken off.
    pub(super) async fn live(self) {
        let (common, watched) = (&self.common, &self.watched);
        // Where each is seen to first is not at one time.
        let (mut upkeep, mut pruned) = (Instant::now() + Duration::from_secs(2).mul_f64(fastrand::f64()), None::<Instant>);
        loop {
            let reason = tokio::select! {
                biased;
                () = common.stop.cancelled() => return,
                () = self.gone.cancelled() => return,
                () = watched.roused() => Reason::Roused,
                () = sleep_until(upkeep.into()) => Reason::Upkeep,
            };
            if reason == Reason::Upkeep && watched.is_out_of_reach() {
                upkeep = Instant::now() + PRUNE;
                continue;
            }
            let turn = match reason {
                Reason::Roused => None,
                Reason::Upkeep => tokio::select! {
                    turn = common.upkeeps.acquire() => turn.ok(),
                    () = common.stop.cancelled() => return,
                    () = self.gone.cancelled() => return,
                },
            };
            let prune_in = pruned.map_or(Duration::ZERO, |at| (at + PRUNE).saturating_duration_since(Instant::now()));
            let prune_in = if reason == Reason::Upkeep { Duration::ZERO } else { prune_in };
            let vitals = Vitals::default();
            watched.set_awake(true);
            let mut work = pin!(self.work(reason, &vitals, prune_in));
            let over = tokio::select! {
                over = &mut work => over,
                // Others have their turn once this one is tidied, or does not come to it.
                _ = timeout(TURN, has_pruned(&vitals)) => {
                    drop(turn);
                    work.await
                }
            };
            let is_tried = vitals.prunes.load(Relaxed) > 0;
            if is_tried {
                pruned = Some(Instant::now());
            }
            if vitals.pruned.age().is_some() {
                upkeep = Instant::now() + common.upkeep.mul_f64(0.75 + 0.5 * fastrand::f64());
            } else if is_tried || reason == Reason::Upkeep {
                // Not all of it could be done.
                upkeep = Instant::now() + PRUNE;
            }
            match over {
                Ok(Over::Nothing) => {}
                Ok(Over::Asked) => return,
                Ok(Over::Failed(why)) => watched.note_trouble(why),
                Err(error) => watched.note_trouble(&error.to_string()),
            }
            watched.set_awake(false);
        }
    }

    /// Gives the store a worker until there is nothing left to do.
    async fn work(&self, reason: Reason, vitals: &Vitals, prune_in: Duration) -> Result<Over, Error> {
        let Self { common, site, watched, .. } = self;
        let (wires, heart, prune, ears) = (site.wires(watched.number), site.heart(watched.number), site.prune(watched.number), site.ears());
        let ran = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ran);
        let (member, share) = (&watched.member, common.shares.of(watched.number));
        let worker = made(common, member)?.store(member.store()).on_outcome(move |_| {
            counted.fetch_add(1, Relaxed);
        });
        let polled = ears.is_none();
        let beside = Beside { share, hearts: common.hearts.beside(vitals), heart, prune, ears, prune_in };
        let checked = worker.checked((vitals.clone(), Life::new(), Tallies::default()), Some(beside))?;
        let Checked { pool, mut config, ready, given, .. } = checked;
        if polled {
            config.poll_interval = config.poll_interval.min(POLL);
        }
        let look = timeout(BEGIN, self.look(&wires));
        let looked = tokio::select! {
            looked = look => looked,
            () = common.stop.cancelled() => return Ok(Over::Asked),
            () = self.gone.cancelled() => return Ok(Over::Asked),
        };
        match looked {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(why))) => return Ok(Over::Failed(why)),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(Over::Failed("it does not answer")),
        }
        let running = {
            let _of_handlers = common.handlers.enter();
            let running = RunningWorker::start(&common.loops.beside(vitals), (&pool, &wires), &config, given)?;
            running.tell_ready(ready);
            running
        };
        tracing::debug!(store = member.name(), "this store has a worker");
        let over = self.until_over(reason, (vitals, &ran), &running, scout::link(&wires)).await;
        if matches!(over, Over::Asked) && !common.stop.is_cancelled() {
            self.until_all_have_ended(&running).await;
        }
        vitals.stop();
        running.stop(config.grace).await;
        tracing::debug!(store = member.name(), "this store has no worker any more");
        Ok(over)
    }

    /// Why it cannot have a worker, if so.
    async fn look(&self, wires: &Wires) -> Result<Option<&'static str>, Error> {
        let (mut link, store) = (Link::new(wires, "verify").impatient().brief(), self.watched.member.store());
        self.site.check(&mut link).await?;
        // After an error the connection is not used again.
        verify_worker(link.get().await?, store).await?;
        migrate::verify(link.get().await?, store).await?;
        let owner = locate(link.get().await?, store).await;
        Ok(link.note(owner)?.map(|_| "it is distributed over a Citus cluster, and needs a `Worker` of its own"))
    }

    async fn until_over(&self, reason: Reason, (vitals, ran): (&Vitals, &AtomicU64), running: &RunningWorker, mut link: Link) -> Over {
        let (mut quiet, mut seen) = (Instant::now(), 0);
        let linger = if reason == Reason::Upkeep { TIDY } else { self.common.linger };
        loop {
            tokio::select! {
                () = sleep(BEAT) => {}
                () = self.gone.cancelled() => return Over::Asked,
                () = self.common.stop.cancelled() => return Over::Asked,
            }
            let (now, is_idle) = (ran.load(Relaxed), running.is_idle());
            if vitals.failing.age().is_some_and(|age| age > FAILING) && is_idle {
                return Over::Failed("its worker cannot claim");
            }
            if let Some(ended) = vitals.ended() {
                tracing::error!(
                    store = self.watched.member.name(),
                    ended,
                    "a loop of this store's worker has ended: it gets another worker"
                );
                return Over::Failed("a loop of its worker has ended");
            }
            let is_announced = running.identity().borrow().is_some();
            if is_announced && vitals.failing.age().is_none() && (!is_idle || now != seen || quiet.elapsed() >= linger) {
                self.watched.is_well();
            }
            if !is_idle || now != seen || !is_announced {
                (quiet, seen) = (Instant::now(), now);
            }
            let is_kept = reason == Reason::Roused || vitals.prunes.load(Relaxed) > 0;
            if quiet.elapsed() >= linger && is_kept {
                match scout::ask(&mut link, &[&self.watched]).await.as_deref() {
                    Ok([Rouse::Nothing]) => return Over::Nothing,
                    // Its loops fail as well, and tell it.
                    _ => quiet = Instant::now(),
                }
            }
        }
    }

    /// Claims nothing more, and lets what runs go on to its end, unless the process is to stop.
    async fn until_all_have_ended(&self, running: &RunningWorker) {
        running.claim_no_more();
        while !running.is_idle() && !self.common.stop.is_cancelled() {
            sleep(BEAT).await;
        }
    }
}

async fn has_pruned(vitals: &Vitals) {
    while vitals.prunes.load(Relaxed) == 0 {
        sleep(BEAT).await;
    }
}

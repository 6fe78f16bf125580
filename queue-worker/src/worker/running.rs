//! A worker at work: its loops, started, and ended in the right order.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::{
    Durability, Options,
    runner::{ReportSender, Shared},
};
use sqlx::PgPool;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    announced::{Abandon, fence, tell_ready},
    farewell::Farewell,
    given::{Beside, Given},
    last::{LAST_WORDS, give_back, wait_for},
    tellers::{Speaker, Tellers, kept},
};
use crate::{
    claim::{Poller, write_slow_downs},
    error::Error,
    keep::{House, Ticks, fire_all, keep_house, keep_pruned},
    lanes::{LeaseRegistry, PayloadMemory, stored_types},
    live::{Bell, Config, Engine, Identity, Link, Loop, Pauses, Pulse, Vitals, Wires},
    run::{Queues, SlotContext},
    settle::{DatabaseBackend, JournalSender, LogSender, Settlement, SignalSender, settle_all},
};

/// A worker at work.
pub(crate) struct RunningWorker {
    queues: Arc<Queues>,
    settle: mpsc::Sender<Settlement>,
    bell: Arc<Bell>,
    stop: CancellationToken,
    closing: CancellationToken,
    claims: JoinHandle<()>,
    settles: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
    speaker: Speaker,
    farewell: Farewell,
    pulse: Pulse,
    _abandon: Abandon,
}

/// So many verdicts may wait for the settle loop before slots wait for it.
const UNSETTLED: usize = 4096;

/// Verdicts that were made have this long to come to the settle loop: no time at all, but on a machine that stands still.
const LAST_VERDICTS: Duration = Duration::from_secs(1);

/// The last verdicts have this long to be written.
const LAST_WRITES: Duration = Duration::from_secs(2);

impl RunningWorker {
    /// On the engine, with connections of its own; handlers share theirs, and run on the runtime from which this is called.
    pub(crate) fn start(engine: &Engine, (theirs, wires): (&PgPool, &Wires), config: &Config, given: Given) -> Result<Self, Error> {
        let Given { registry, states, teller, middleware, declares, limits, days, vitals, life, tallies, beside } = given;
        let ((settle, verdicts), bell) = (mpsc::channel(UNSETTLED), Arc::new(Bell::of(vitals.clone())));
        let known: Vec<(&'static str, Options)> = registry.names().map(|(name, known)| (name, *known.options())).collect();
        let ((reports, said), (logger, logs)) = (ReportSender::open(), LogSender::open());
        let ((journal, steps), (signals, asks)) = (JournalSender::open(), SignalSender::open());
        let (store, served, pauses) = (config.store, registry.clone(), vitals.pauses.get_or_init(|| Pauses::new(registry.clone())).clone());
        let backend = Arc::new(DatabaseBackend { pool: theirs.clone(), store, logs: logger, journal, signals });
        let (handlers, trace, shutting_down) = (Handle::current(), config.trace, CancellationToken::new());
        let shared = Arc::new(Shared { pool: theirs.clone(), store, states, handlers, backend, reports, middleware, trace, shutting_down });
        let (stop, closing, settling) = (CancellationToken::new(), CancellationToken::new(), settle_link(wires, config));
        let context = SlotContext {
            registry,
            shared,
            settle: settle.clone(),
            bell: Arc::clone(&bell),
            pauses: pauses.clone(),
            life: life.clone(),
            handlers: Handle::current(),
            cancel_grace: config.cancel_grace,
            teller,
            tallies: tallies.clone(),
            takes_batches: known.iter().any(|(_, options)| options.batch.is_some()),
            share: beside.as_ref().map(|beside| beside.share.clone()),
            hand: PayloadMemory::new(config.payload_memory, &bell),
            slowed: Arc::default(),
        };
        let queues = Arc::new(Queues::new(context, config));
        let (of, heart) = (Arc::clone(&queues), heart(wires, beside.as_ref()));
        let pulse = Pulse::start(heart, config, stored_types(&newest(&known)), (life, vitals.clone()), Box::new(move || of.load()))?;
        let (link, held) = (Link::new(wires, "claim").relaxed(), LeaseRegistry::default());
        let scout = Poller::new((config, limits), &known, Arc::clone(&queues), held.clone(), link, Arc::clone(&bell), pulse.identity());
        let house = House {
            link: Link::new(wires, "housekeeping"),
            config: config.clone(),
            queues: Arc::clone(&queues),
            held,
            bell: Arc::clone(&bell),
            identity: pulse.identity(),
            settle: settle.clone(),
            tallies: tallies.clone(),
        };
        let ticks = Ticks::new(Link::new(wires, "schedules"), config, &bell, pulse.identity(), declares);
        let prune = prune((wires, beside.as_ref(), days), config.clone(), known, vitals);
        let fenced = (pulse.identity(), Arc::clone(&queues), Arc::clone(&bell));
        let (ears, pace) = (beside.and_then(|beside| beside.ears), config.pace);
        let tellers = Tellers { engine, wires, store, bell: &bell, tallies: &tallies, registry: served, pace, ears };
        let mut helpers = tellers.start(pauses, (said, logs), (steps, asks));
        helpers.extend([
            engine.supervise(Loop::Schedules, move || fire_all(ticks.another())),
            engine.supervise(Loop::Prune, prune),
            engine.supervise(Loop::SlowDowns, slow_downs(&queues.context, Link::new(wires, "limits").impatient())),
            engine.supervise(Loop::Fence, move || fence(fenced.clone())),
            engine.supervise(Loop::Housekeeping, move || keep_house(house.another())),
        ]);
        Ok(Self {
            claims: engine.supervise(Loop::Poller, claim(scout, stop.clone())),
            settles: engine.supervise(Loop::Settle, settle_all((kept(verdicts), closing.clone()), settling, config, (&bell, &tallies))),
            helpers,
            speaker: tellers.speak(),
            farewell: Farewell::new(Link::new(wires, "farewell"), config.store, pulse.identity(), queues.pauses()),
            _abandon: Abandon(Arc::clone(&queues)),
            queues,
            settle,
            bell,
            stop,
            closing,
            pulse,
        })
    }

    /// Calls these hooks once it is announced.
    pub(crate) fn tell_ready(&self, hooks: Vec<Box<dyn FnOnce() + Send>>) {
        if !hooks.is_empty() {
            tokio::spawn(tell_ready(self.identity(), hooks));
        }
    }

    /// Who it is; none while it must not act.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.pulse.identity()
    }

    /// Whether nothing is queued here or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.load().busy == 0 && self.queues.all().iter().all(|slots| slots.is_idle())
    }

    /// Claims nothing from now on.
    pub(crate) fn claim_no_more(&self) {
        self.stop.cancel();
        self.bell.ring();
    }

    /// Tells handlers, stops claiming, waits for them, releases what is left, settles it all, and takes the heartbeat away last.
    pub(crate) async fn stop(self, grace: Duration) {
        let Self { queues, settle, bell, stop, closing, claims, settles, helpers, speaker, farewell, pulse, _abandon } = self;
        let until = Instant::now() + grace;
        queues.context.shared.shutting_down.cancel();
        stop.cancel();
        bell.ring();
        let _ = claims.await;
        let subscriptions = queues.all();
        for slots in &subscriptions {
            give_back(&settle, slots.take_queued()).await;
        }
        let farewell = tokio::spawn(farewell.say());
        wait_for(&subscriptions, until).await;
        for slots in &subscriptions {
            slots.request_shutdown();
        }
        wait_for(&subscriptions, Instant::now() + LAST_WORDS).await;
        for slots in &subscriptions {
            slots.drop_running();
        }
        wait_for(&subscriptions, Instant::now() + LAST_WORDS).await;
        for slots in &subscriptions {
            give_back(&settle, slots.take_running()).await;
        }
        wait_for(&subscriptions, Instant::now() + LAST_VERDICTS).await;
        for helper in helpers.into_iter().chain([farewell]) {
            helper.abort();
        }
        closing.cancel();
        // A database that does not answer now cannot hold up the exit: what is not written is recovered as a silent worker's.
        let abort = settles.abort_handle();
        if tokio::time::timeout(LAST_WRITES, settles).await.is_err() {
            abort.abort();
        }
        speaker.end().await;
        pulse.stop().await;
    }
}

/// Finds out where jobs are, with all that the scout knew before a panic.
fn claim(scout: Poller, stop: CancellationToken) -> impl FnMut() -> BoxFuture<'static, ()> + Send {
    let scout = kept(scout);
    move || {
        let (scout, stop) = (Arc::clone(&scout), stop.clone());
        async move { scout.lock().await.run(stop).await }.boxed()
    }
}

/// Each type with its newest version.
fn newest(known: &[(&'static str, Options)]) -> Vec<(&'static str, u16)> {
    known.iter().map(|(name, options)| (*name, options.version)).collect()
}

/// Tells the store where handlers were told to slow down.
fn slow_downs(context: &Arc<SlotContext>, link: Link) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let context = Arc::clone(context);
    move || write_slow_downs(Arc::clone(&context.slowed), link.another(), context.shared.store, Arc::clone(&context.bell)).boxed()
}

/// The connection on which it beats, and whose thread if not its own.
fn heart<'b>(wires: &Wires, beside: Option<&'b Beside>) -> (Link, Option<&'b Handle>) {
    match beside {
        // Others wait for the connection.
        Some(beside) => (Link::new(&beside.heart, "heartbeat").prompt(), Some(beside.hearts.handle())),
        // Nobody's statement is ever in its way.
        None => (Link::new(wires.pool(), "heartbeat"), None),
    }
}

/// Prunes, on links of its own.
fn prune(
    (wires, beside, days): (&Wires, Option<&Beside>, Option<Link>),
    config: Config,
    known: Vec<(&'static str, Options)>,
    vitals: Vitals,
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let (wires, begin) = beside.map_or((wires, Duration::ZERO), |beside| (&beside.prune, beside.prune_in));
    let link = Link::new(wires, "prune");
    move || {
        let links = (link.another(), days.as_ref().map(Link::another));
        keep_pruned(links, config.clone(), known.clone(), (vitals.clone(), begin)).boxed()
    }
}

fn settle_link(wires: &Wires, config: &Config) -> Link {
    let link = Link::new(wires, "settle").prompt();
    if matches!(config.durability, Durability::Relaxed) { link.relaxed() } else { link }
}

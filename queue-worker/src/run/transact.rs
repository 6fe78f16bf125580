//! Jobs of transactional types: the claim of one, its handler and its verdict are one transaction, so that what the handler writes there
//! happens exactly once.
//!
//! The lock on the job's entry in `ready` is the lease, and the connection is the heartbeat: when either is lost, the job is as it was. A
//! few loops for each queue, of which one at a time looks for the next job. Nothing here decides what follows from an outcome.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Outcome, Registry, Store,
    runner::{AttemptSpan, ClaimedJob, Ended, Ending, Halt, Shared, run},
};
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::{runtime::Handle, sync::Mutex, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    faults::{is_lost, is_refusal},
    hands::Hands,
    lookout::{LOOK, LockedJob, Lookout},
    passed::Passed,
    told::{Teller, tell_and_count},
};
use crate::{
    error::complain,
    lanes::Lanes,
    live::{Bell, Config, Engine, Life, Loop, OneLife, OwnPool, Paused, Pauses, bounded, jittered, our_settings, their_settings},
    settle::finish,
    tally::{Attempt, How, Tallies},
};

/// What the loops of a worker share.
pub(crate) struct TransactContext {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) pauses: Pauses,
    pub(crate) life: Life,
    /// The runtime that handlers run on.
    pub(crate) handlers: Handle,
    pub(crate) stop: CancellationToken,
    pub(crate) teller: Teller,
    pub(crate) tallies: Tallies,
    pub(crate) hands: Hands,
}

/// The loops of a worker.
pub(crate) struct Transact {
    halt: Arc<Halt>,
    loops: TaskTracker,
}

/// Handlers that were told to stop have this long. So have dropped ones, to be rolled back.
const LAST_WORDS: Duration = Duration::from_millis(250);

impl Transact {
    /// Starts the loops, none if no type is transactional: for each named queue its concurrency, else that of all, but no more than
    /// `Config::transactional`.
    pub(crate) fn start(engine: &Engine, context: TransactContext) -> Self {
        let (halt, loops) = (Arc::<Halt>::default(), TaskTracker::new());
        let served = context.registry.names().filter(|(_, known)| known.options().transactional);
        let types: Vec<(&'static str, u16)> = served.map(|(name, known)| (name, known.options().version)).collect();
        let config = &context.config;
        let named = config.queues.iter().map(|(queue, concurrency)| (Some(vec![queue.clone()]), *concurrency));
        let mut queues: Vec<(Option<Vec<String>>, usize)> = named.collect();
        if queues.is_empty() {
            queues.push((None, config.concurrency));
        }
        let most = config.transactional;
        let context = Arc::new(context);
        for (queue, concurrency) in queues.into_iter().filter(|_| !types.is_empty()) {
            let concurrency = concurrency.min(most);
            let crew = Arc::new(Crew::new(&context, Lanes::new(&types, HashSet::new(), queue), Arc::clone(&halt), concurrency));
            crew.context.hands.hire(concurrency);
            for _ in 0..concurrency {
                loops.spawn_on(engine.watched(Loop::Transactional, Arc::clone(&crew).work()), engine.handle());
            }
        }
        loops.close();
        Self { halt, loops }
    }

    /// Once `stop` has fired: lets running handlers go on until then, and rolls the others back.
    pub(crate) async fn stop(self, until: Instant) {
        if tokio::time::timeout_at(until.into(), self.loops.wait()).await.is_ok() {
            return;
        }
        self.halt.ask.shut_down();
        if timeout(LAST_WORDS, self.loops.wait()).await.is_ok() {
            return;
        }
        self.halt.drop.cancel();
        // What does not end now never awaits. It can write nothing that counts, for only its loop commits.
        let _ = timeout(4 * LAST_WORDS, self.loops.wait()).await;
    }
}

impl Drop for Transact {
    fn drop(&mut self) {
        self.halt.drop.cancel();
    }
}

/// A job that is about to begin.
struct NextJob {
    tx: Transaction<'static, Postgres>,
    job: LockedJob,
    /// The pauses by which it was looked for, kept until it has begun.
    paused: Arc<Paused>,
    life: OneLife,
}

/// The loops of one queue, or of all.
struct Crew {
    context: Arc<TransactContext>,
    store: Store,
    halt: Arc<Halt>,
    /// Our connections, with the settings that the user's own have: handlers write on them.
    own: OwnPool,
    lookout: Mutex<Lookout>,
    /// Jobs of which nothing could be written.
    passed: StdMutex<Passed>,
}

/// Our statements run under the settings of a worker's other connections; a handler finds the user's own.
const BEGIN: &str = concat!("begin isolation level read committed; ", our_settings!());
const LEND: &str = concat!(their_settings!(), "savepoint queue_job");

/// What the handler wrote is to stay. Constraints that it deferred are checked now, so that they count as its failure.
const KEEP: &str = concat!("set constraints all immediate; ", our_settings!(), "savepoint queue_verdict");
/// What the handler wrote is to go; the entry stays locked.
const UNDO: &str = concat!("rollback to savepoint queue_job; ", our_settings!(), "savepoint queue_verdict");

/// The verdict is to go, and nothing else.
const FORGET: &str = "rollback to savepoint queue_verdict";

/// Said of an attempt whose transaction is not ours to commit any more.
const NOT_COMMITTED: &str = "its verdict was not committed: its handler has ended or kept its transaction";

/// How soon to look again at the earliest.
const GLANCE: Duration = Duration::from_millis(20);

impl Crew {
    fn new(context: &Arc<TransactContext>, lanes: Lanes, halt: Arc<Halt>, loops: usize) -> Self {
        // One more, for ending a statement that a handler left behind.
        let own = OwnPool::beside(&context.shared.pool, "queue-worker transact", loops + 1);
        let lookout = Lookout::new(lanes, context.bell.watch(), context.tallies.clone());
        Self {
            context: Arc::clone(context),
            store: context.config.store,
            halt,
            own,
            lookout: Mutex::new(lookout),
            passed: StdMutex::default(),
        }
    }

    async fn work(self: Arc<Self>) {
        let stop = &self.context.stop;
        while !stop.is_cancelled() {
            if let Err(error) = self.one().await {
                complain(&error, "transactional jobs cannot be looked for; trying again");
                self.own.renew();
                self.lookout.lock().await.forget_server();
                let pause = jittered(Duration::from_millis(500));
                let _ = timeout(pause, stop.cancelled()).await;
            }
        }
    }

    /// One job, if there is one. Of what nothing can be written is passed over for a while, for it stands before all others of its lane.
    async fn one(&self) -> sqlx::Result<()> {
        let Some(next) = self.find().await? else { return Ok(()) };
        let id = next.job.job.id;
        let (mut span, _busy) = (AttemptSpan::default(), self.context.hands.begin());
        let attempted = self.attempt(next, &mut span).await;
        // If it has not said how it ended.
        let error = attempted.as_ref().err().map(|error| format!("nothing of it was committed: {}", queue_core::message(error)));
        span.end(Outcome::Failed, error.as_deref().or(Some(NOT_COMMITTED)));
        match attempted {
            Ok(()) => self.passed().forget(id),
            Err(error) => {
                let wait = self.passed().note(id, Instant::now());
                let error = queue_core::message(&error);
                tracing::warn!(job = %id, error, next_try_in = ?wait, "nothing could be written of this transactional job: it is as it was");
            }
        }
        Ok(())
    }

    fn passed(&self) -> MutexGuard<'_, Passed> {
        // It is right after each call, so a panic elsewhere breaks nothing.
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From its lock to its commit; only then its span is told how it ended.
    async fn attempt(&self, next: NextJob, span: &mut AttemptSpan) -> sqlx::Result<()> {
        let NextJob { mut tx, job: locked, paused, life } = next;
        bounded(sqlx::raw_sql(LEND).execute(&mut *tx)).await?;
        if life.is_over() {
            return bounded(tx.rollback()).await;
        }
        let registration = self.context.registry.get(locked.job.job_type).copied();
        let (since, lent) = (Instant::now(), Arc::new(Mutex::new(tx)));
        let counted = locked.attempt(registration.as_ref(), since);
        let LockedJob { job, seq, pid, .. } = locked;
        let (shared, halt, theirs) = (Arc::clone(&self.context.shared), Arc::clone(&self.halt), Arc::clone(&lent));
        let attempt = self.context.handlers.spawn(async move {
            // From here on it runs.
            drop(paused);
            let mut span = AttemptSpan::default();
            let ended = match &registration {
                Some(known) => run(known, &job, &shared, &halt, Some(theirs), drop, Some(&mut span)).await,
                None => Ended::terminal("no handler for this job type in this worker"),
            };
            (job, ended, span)
        });
        // Neither fails but with the runtime of the handlers, and then the transaction is rolled back.
        let Ok((job, ended, open)) = attempt.await else { return Ok(()) };
        *span = open;
        let Some(mut tx) = Arc::into_inner(lent).map(Mutex::into_inner) else { return Ok(()) };

        let ending = |ended: Ended| {
            let (outcome, ran) = (ended.outcome(), ended.ran(since));
            (outcome, ended.ending(registration.as_ref(), &job, ran, fastrand::f64()))
        };
        let mut said = ending(ended);
        if said.1.is_complete() {
            let why = match bounded(sqlx::raw_sql(KEEP).execute(&mut *tx)).await {
                Ok(_) => match self.write(&mut tx, &job, seq, &mut said.1).await {
                    Err(error) if is_refusal(&error) => queue_core::message(&error),
                    written => return self.commit(tx, (&job, counted), written?, said, span).await,
                },
                Err(error @ sqlx::Error::Database(_)) if !is_lost(&error) => queue_core::message(&error),
                Err(error) => return Err(error),
            };
            said = ending(Ended::failed(format!("the handler succeeded, but its transaction cannot be committed: {why}")));
        }
        match self.undo(&mut tx, pid).await {
            Ok(()) if said.1.is_release() => {
                tx.rollback().await?;
                span.end(said.0, said.1.error());
                tell_and_count((&self.context.teller, &self.context.tallies), &job, counted, (said.0, &said.1));
                return Ok(());
            }
            Ok(()) => {}
            Err(error) if is_lost(&error) || said.1.is_release() => return Err(error),
            // The handler has ended the transaction by itself. Its failure counts if the entry is still there.
            Err(_) => {
                tx = self.begin().await?;
                bounded(sqlx::raw_sql("savepoint queue_verdict").execute(&mut *tx)).await?;
            }
        }
        let written = match self.write(&mut tx, &job, seq, &mut said.1).await {
            // Else the handler would run again and again, uncharged, and its job stand before all others.
            Err(error) if is_refusal(&error) => {
                let (word, why) = (said.1.word(), queue_core::message(&error));
                tracing::error!(job = %job.id, verdict = word, error = why, "cannot store this verdict; making a dead letter of the job");
                said = ending(Ended::terminal(format!("its verdict `{word}` cannot be stored: {why}")));
                bounded(sqlx::raw_sql(FORGET).execute(&mut *tx)).await?;
                self.write(&mut tx, &job, seq, &mut said.1).await?
            }
            written => written?,
        };
        self.commit(tx, (&job, counted), written, said, span).await
    }

    /// The next job, locked; waits until there is one. `None` once it is time to stop.
    async fn find(&self) -> sqlx::Result<Option<NextJob>> {
        let mut lookout = self.lookout.lock().await;
        loop {
            if self.context.stop.is_cancelled() {
                return Ok(None);
            }
            let life = self.context.life.present();
            let Some(paused) = self.context.stop.run_until_cancelled(self.context.pauses.known()).await else { continue };
            // Read before the look: whoever enqueues after it either notifies, or saw the claim loop awake, and then we do not wait long.
            let told = *lookout.told.borrow_and_update();
            let mut tx = self.begin().await?;
            let (passed, tried_again) = self.passed().at(Instant::now());
            let found = bounded(lookout.look(&mut tx, self.store, &paused, &passed)).await?;
            let fresh = (found.is_none() || lookout.refreshed.elapsed() > LOOK) && lookout.refresh(&mut tx, self.store).await?;
            if let Some(late) = found.as_ref().filter(|found| found.job.may_begin_within().is_some_and(|left| left.is_zero())) {
                self.expire(tx, late.job.id).await?;
                continue;
            }
            let in_force = self.context.pauses.is_in_force(&paused);
            if let Some(job) = found.filter(|_| in_force && !life.is_over()) {
                return Ok(Some(NextJob { tx, job, paused, life }));
            }
            bounded(tx.rollback()).await?;
            drop(paused);
            if fresh || !in_force {
                continue;
            }
            let wait = told.max(GLANCE);
            let owed = lookout.owed.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = owed.into_iter().chain(tried_again).fold(wait, Duration::min);
            tokio::select! {
                _ = timeout(wait, lookout.told.changed()) => {}
                () = self.context.stop.cancelled() => {}
            }
        }
    }

    /// Ends a job that this transaction has locked and whose time is over; passes over one of which somebody has more than its entry.
    async fn expire(&self, mut tx: Transaction<'static, Postgres>, id: JobId) -> sqlx::Result<()> {
        let expire = sqlx::query_scalar(self.store.sql(include_str!("../../sql/expire_one.sql"))).bind(id);
        let over = match bounded(expire.fetch_one(&mut *tx)).await {
            Err(error) if is_refusal(&error) => {
                let error = queue_core::message(&error);
                tracing::warn!(job = %id, error, "its time is over, and it cannot be ended; mend what refuses it, or `discard` it");
                false
            }
            over => over?,
        };
        if over {
            bounded(tx.commit()).await?;
            self.context.tallies.tell_expired(&[id]);
        } else {
            bounded(tx.rollback()).await?;
            self.passed().note(id, Instant::now());
        }
        Ok(())
    }

    async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        bounded(self.own.pool().begin_with(BEGIN)).await
    }

    /// Takes back what the handler wrote. A statement that it left behind when it was dropped is ended first.
    async fn undo(&self, tx: &mut PgConnection, pid: i32) -> sqlx::Result<()> {
        let mut tries = 0;
        loop {
            let undoing = bounded(sqlx::raw_sql(UNDO).execute(&mut *tx));
            tokio::pin!(undoing);
            let done = if let Ok(done) = timeout(LAST_WORDS, &mut undoing).await {
                done
            } else {
                let cancel = sqlx::query("select pg_catalog.pg_cancel_backend($1)").bind(pid).execute(self.own.pool());
                let _ = bounded(cancel).await;
                undoing.await
            };
            tries += 1;
            match done {
                Ok(_) => return Ok(()),
                // May be what became of the handler's last statement.
                Err(error) if tries < 3 && !is_lost(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the ending; false if the job is not ours any more.
    async fn write(&self, tx: &mut PgConnection, job: &ClaimedJob, seq: i64, ending: &mut Ending) -> sqlx::Result<bool> {
        loop {
            match finish(tx, self.store, (job, seq), ending).await {
                // A value that the server refuses: an output that jsonb cannot hold.
                Err(error) if is_refusal(&error) && ending.leave_output_out() => {
                    tracing::warn!(job = %job.id, error = queue_core::message(&error), "cannot keep this output; leaving it out");
                    bounded(sqlx::raw_sql(FORGET).execute(&mut *tx)).await?;
                }
                written => return written,
            }
        }
    }

    /// Commits what was written, and tells of it.
    async fn commit(
        &self,
        tx: Transaction<'static, Postgres>,
        (job, counted): (&ClaimedJob, Attempt),
        written: bool,
        (outcome, ending): (Outcome, Ending),
        span: &mut AttemptSpan,
    ) -> sqlx::Result<()> {
        if !written {
            let lost = Attempt { how: How::LeaseLost, ..counted };
            self.context.tallies.note(std::iter::once((lost, ending.counted(), ending.ran())));
            tracing::warn!(job = %job.id, "the transaction of this job was ended by its handler, and others have the job: verdict refused");
            return bounded(tx.rollback()).await;
        }
        bounded(tx.commit()).await?;
        span.end(outcome, ending.error());
        tell_and_count((&self.context.teller, &self.context.tallies), job, counted, (outcome, &ending));
        if ending.freed().is_some() || ending.is_child() {
            self.context.bell.tell_keys();
        }
        self.context.bell.note_over();
        if let Some(wait) = ending.wait() {
            self.context.bell.due_in(wait);
        }
        Ok(())
    }
}

//! Jobs of transactional types: the claim of one, its handler and its verdict are one transaction, so that what the handler writes there
//! happens exactly once.
//!
//! The lock on the job's entry in `ready` is the lease, and the connection is the heartbeat: when either is lost, the job is as it was. A
//! few loops for each queue, of which one at a time looks for the next job. Nothing here decides what follows from an outcome.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Registry, Store, Verdict,
    worker::{FINISH_ONE, Shared},
};
use sqlx::{PgConnection, PgPool, Postgres, Row as _, Transaction, postgres::PgPoolOptions};
use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    bell::Bell,
    claim::{Claimed, key_of},
    config::Config,
    connect::bounded,
    dispatch::{Ended, Halt, attempt_within, judge},
    error::complain,
    lanes::{Lane, Lanes, order},
    settle::Settlement,
};

/// What the loops of a worker have in common.
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) bell: Arc<Bell>,
    /// The runtime that handlers run on.
    pub(crate) handlers: Handle,
    pub(crate) stop: CancellationToken,
}

/// The loops of a worker.
pub(crate) struct Transact {
    halt: Arc<Halt>,
    loops: TaskTracker,
}

/// Handlers that were asked to end have this long before they are dropped; and those dropped, to be rolled back.
const LAST_WORDS: Duration = Duration::from_millis(250);

impl Transact {
    /// Starts the loops, none if no type is transactional: for each named queue its concurrency, else that of all, but no more than
    /// `Config::transactional`.
    pub(crate) fn start(engine: &Handle, common: Common) -> Self {
        let (halt, loops) = (Arc::<Halt>::default(), TaskTracker::new());
        let types: Vec<&'static str> =
            common.registry.names().filter(|(_, known)| known.options().transactional).map(|(name, _)| name).collect();
        let config = &common.config;
        let named = config.queues.iter().map(|(queue, concurrency)| (Some(vec![queue.clone()]), *concurrency));
        let mut queues: Vec<(Option<Vec<String>>, usize)> = named.collect();
        if queues.is_empty() {
            queues.push((None, config.concurrency));
        }
        let most = config.transactional;
        let common = Arc::new(common);
        for (queue, concurrency) in queues.into_iter().filter(|_| !types.is_empty()) {
            let concurrency = concurrency.min(most);
            let crew = Arc::new(Crew::new(&common, Lanes::new(types.clone(), queue), Arc::clone(&halt), concurrency));
            for _ in 0..concurrency {
                loops.spawn_on(Arc::clone(&crew).work(), engine);
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
        self.halt.ask.cancel();
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

/// The loops of one queue, or of all.
struct Crew {
    common: Arc<Common>,
    store: Store,
    halt: Arc<Halt>,
    /// Our connections, with the settings that the user's own have: handlers write on them.
    pool: PgPool,
    lookout: Mutex<Lookout>,
}

/// What is known of where jobs are; held by the loop that looks for the next one.
struct Lookout {
    lanes: Lanes,
    floors: HashMap<i64, i64>,
    turn: usize,
    refreshed: Instant,
    /// When to look from zero again, at the earliest and at the latest.
    from_zero: (Instant, Instant),
    /// When to look again before a sleep: what made us look may lie below a floor, and it was too soon to look from zero.
    owed: Option<Instant>,
    told: watch::Receiver<bool>,
}

/// A job, and the transaction that has it locked.
struct Held {
    tx: Transaction<'static, Postgres>,
    job: Claimed,
    seq: i64,
    pid: i32,
}

/// Our statements run under settings like those of a worker's other connections; a handler finds the user's own.
const BEGIN: &str = "begin isolation level read committed; set local search_path = pg_catalog; set local enable_seqscan = off;
  set local plan_cache_mode = force_generic_plan; set local jit = off";
const LEND: &str = "set local search_path to default; set local enable_seqscan to default; set local plan_cache_mode to default;
  set local jit to default; savepoint queue_job";

/// What the handler wrote is to stay. Constraints that it deferred are checked now, so that they count as its failure.
const KEEP: &str = "set constraints all immediate; set local search_path = pg_catalog; set local enable_seqscan = off;
  set local plan_cache_mode = force_generic_plan; set local jit = off; savepoint queue_verdict";

/// What the handler wrote is to go; the entry stays locked.
const UNDO: &str = "rollback to savepoint queue_job; set local search_path = pg_catalog; set local enable_seqscan = off;
  set local plan_cache_mode = force_generic_plan; set local jit = off; savepoint queue_verdict";

/// How soon to look again while producers do not notify, because the claim loop is awake.
const GLANCE: Duration = Duration::from_millis(20);

/// How often lanes that are new, and late commits, are looked for while jobs keep coming.
const LOOK: Duration = Duration::from_millis(250);

impl Crew {
    fn new(common: &Arc<Common>, lanes: Lanes, halt: Arc<Halt>, loops: usize) -> Self {
        let options = (*common.shared.pool.connect_options()).clone().application_name("queue-worker transact");
        // One more, for ending a statement that a handler left behind.
        let connections = u32::try_from(loops + 1).unwrap_or(u32::MAX);
        let pool = PgPoolOptions::new().max_connections(connections).test_before_acquire(false).connect_lazy_with(options);
        let now = Instant::now();
        let told = common.bell.watch();
        let lookout = Lookout { lanes, floors: HashMap::new(), turn: 0, refreshed: now, from_zero: (now, now), owed: None, told };
        Self { common: Arc::clone(common), store: common.config.store, halt, pool, lookout: Mutex::new(lookout) }
    }

    async fn work(self: Arc<Self>) {
        let stop = &self.common.stop;
        while !stop.is_cancelled() {
            if let Err(error) = self.one().await {
                complain(&error, "a transactional job is as it was, or cannot be looked for; trying again");
                let pause = Duration::from_millis(500).mul_f64(1.0 + fastrand::f64());
                let _ = timeout(pause, stop.cancelled()).await;
            }
        }
    }

    /// One job, from its lock to its commit.
    async fn one(&self) -> sqlx::Result<()> {
        let Some(Held { mut tx, job, seq, pid }) = self.find().await? else { return Ok(()) };
        bounded(sqlx::raw_sql(LEND).execute(&mut *tx)).await?;
        let registration = self.common.registry.get(job.job_type).copied();
        let (since, lent) = (Instant::now(), Arc::new(Mutex::new(tx)));
        let (shared, halt, theirs) = (Arc::clone(&self.common.shared), Arc::clone(&self.halt), Arc::clone(&lent));
        let run = self.common.handlers.spawn(async move {
            let ended = match &registration {
                Some(known) => attempt_within(known, &job, &shared, &halt, Some(theirs)).await,
                None => Ended::terminal("no handler for this job type in this worker"),
            };
            (job, ended)
        });
        // Neither fails but with the runtime of the handlers, and then the transaction is rolled back.
        let Ok((job, ended)) = run.await else { return Ok(()) };
        let Some(mut tx) = Arc::into_inner(lent).map(Mutex::into_inner) else { return Ok(()) };

        let mut settlement = judge(registration.as_ref(), &job, ended, since.elapsed());
        if settlement.verdict == Verdict::Complete {
            match bounded(sqlx::raw_sql(KEEP).execute(&mut *tx)).await {
                Ok(_) => return self.finish(tx, &mut settlement, seq).await,
                Err(error @ sqlx::Error::Database(_)) if !is_lost(&error) => {
                    let why = format!("the handler succeeded, but its transaction cannot be committed: {}", queue_core::message(&error));
                    settlement = judge(registration.as_ref(), &job, Ended::failed(why), since.elapsed());
                }
                Err(error) => return Err(error),
            }
        }
        match self.undo(&mut tx, pid).await {
            Ok(()) if settlement.verdict == Verdict::Release => tx.rollback().await,
            Ok(()) => self.finish(tx, &mut settlement, seq).await,
            Err(error) if is_lost(&error) || settlement.verdict == Verdict::Release => Err(error),
            // The handler has ended the transaction by itself. Its failure counts if the entry is still there.
            Err(_) => {
                drop(tx);
                self.finish(self.begin().await?, &mut settlement, seq).await
            }
        }
    }

    /// The next job, locked; waits until there is one. `None` once it is time to stop.
    async fn find(&self) -> sqlx::Result<Option<Held>> {
        let mut lookout = self.lookout.lock().await;
        loop {
            if self.common.stop.is_cancelled() {
                return Ok(None);
            }
            // Read before the look: whoever enqueues after it either notifies, or saw the claim loop awake, and then we do not wait long.
            let told = *lookout.told.borrow_and_update();
            let mut tx = self.begin().await?;
            let found = bounded(lookout.look(&mut tx, self.store)).await?;
            let fresh = (found.is_none() || lookout.refreshed.elapsed() > LOOK) && lookout.refresh(&mut tx, self.store).await?;
            if let Some((job, seq, pid)) = found {
                return Ok(Some(Held { tx, job, seq, pid }));
            }
            bounded(tx.rollback()).await?;
            if fresh {
                continue;
            }
            let wait = if told { self.common.config.poll_interval } else { GLANCE };
            let owed = lookout.owed.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = owed.map_or(wait, |owed| wait.min(owed));
            tokio::select! {
                _ = timeout(wait, lookout.told.changed()) => {}
                () = self.common.stop.cancelled() => {}
            }
        }
    }

    async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        bounded(self.pool.begin_with(BEGIN)).await
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
                let cancel = sqlx::query("select pg_catalog.pg_cancel_backend($1)").bind(pid).execute(&self.pool);
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

    /// Writes the verdict, and commits.
    async fn finish(&self, mut tx: Transaction<'static, Postgres>, said: &mut Settlement, seq: i64) -> sqlx::Result<()> {
        let written = match self.write(&mut tx, said, seq).await {
            // A value that the server refuses: an output that jsonb cannot hold.
            Err(error @ sqlx::Error::Database(_)) if !is_lost(&error) && said.output.take().is_some() => {
                tracing::warn!(job = %said.id, error = queue_core::message(&error), "cannot keep this output; leaving it out");
                bounded(sqlx::raw_sql("rollback to savepoint queue_verdict").execute(&mut *tx)).await?;
                self.write(&mut tx, said, seq).await?
            }
            other => other?,
        };
        if !written {
            tracing::warn!(job = %said.id, "the transaction of this job was ended by its handler, and others have the job: verdict refused");
            return bounded(tx.rollback()).await;
        }
        bounded(tx.commit()).await?;
        if said.freed().is_some() {
            self.common.bell.tell_keys();
        }
        self.common.bell.note_over();
        match said.verdict {
            Verdict::Retry(wait) | Verdict::Snooze(wait) => self.common.bell.due_in(wait),
            _ => {}
        }
        Ok(())
    }

    async fn write(&self, tx: &mut PgConnection, said: &Settlement, seq: i64) -> sqlx::Result<bool> {
        let (word, wait) = match said.verdict {
            Verdict::Complete if said.keep => ("complete", Duration::ZERO),
            Verdict::Complete => ("forget", Duration::ZERO),
            Verdict::Retry(wait) => ("retry", wait),
            Verdict::Snooze(wait) => ("snooze", wait),
            _ => ("dead", Duration::ZERO),
        };
        let statement = sqlx::query(self.store.sql(FINISH_ONE))
            .bind(said.lane)
            .bind(seq)
            .bind(said.id)
            .bind(word)
            .bind(said.attempt)
            .bind(said.crashes)
            .bind(wait.as_secs_f64() * 1000.0)
            .bind(i32::try_from(said.ran.as_millis()).unwrap_or(i32::MAX))
            .bind(said.output.as_deref())
            .bind(said.error.as_deref())
            .bind(said.freed());
        Ok(bounded(statement.fetch_optional(tx)).await?.is_some())
    }
}

impl Lookout {
    /// The next job, locked by this transaction: from each lane's floor on, and from zero now and then, as a claim looks.
    async fn look(&mut self, tx: &mut PgConnection, store: Store) -> sqlx::Result<Option<(Claimed, i64, i32)>> {
        self.turn = self.turn.wrapping_add(1);
        let lanes: Vec<Lane> = order(self.lanes.all(), self.turn).into_iter().cloned().collect();
        if lanes.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        if began < self.from_zero.1 {
            let found = self.take(tx, store, &lanes, false).await?;
            if found.is_some() {
                return Ok(found);
            }
            if began < self.from_zero.0 {
                self.owed = Some(self.from_zero.0);
                return Ok(None);
            }
        }
        self.owed = None;
        let began = Instant::now();
        let found = self.take(tx, store, &lanes, true).await?;
        let (now, rest) = (Instant::now(), 20 * began.elapsed());
        self.from_zero = (now + rest, now + rest.max(Duration::from_secs(1)));
        Ok(found)
    }

    async fn take(&mut self, tx: &mut PgConnection, store: Store, lanes: &[Lane], zero: bool) -> sqlx::Result<Option<(Claimed, i64, i32)>> {
        let floor = |lane: &Lane| if zero { 0 } else { self.floors.get(&lane.id).copied().unwrap_or(0) };
        let statement = sqlx::query(store.sql(include_str!("../sql/take_one.sql")))
            .bind(lanes.iter().map(|lane| lane.id).collect::<Vec<_>>())
            .bind(lanes.iter().map(floor).collect::<Vec<_>>());
        let Some(row) = statement.fetch_optional(tx).await? else { return Ok(None) };
        let (lane, seq): (i64, i64) = (row.try_get("lane")?, row.try_get("seq")?);
        self.floors.insert(lane, seq);
        let job = Claimed {
            token: Uuid::nil(),
            id: row.try_get::<JobId, _>("id")?,
            lane,
            attempt: row.try_get::<i16, _>("attempts")?.saturating_add(1),
            crashes: row.try_get("crashes")?,
            max_attempts: row.try_get::<Option<i16>, _>("max_attempts")?.unwrap_or(1),
            job_type: lanes.iter().find(|known| known.id == lane).map_or("", |lane| lane.job_type),
            batch: 1,
            payload: row.try_get("payload")?,
            key: key_of(&row)?,
            held: Arc::default(),
        };
        Ok(Some((job, seq, row.try_get("pid")?)))
    }

    /// Learns of new lanes; returns whether there were any.
    async fn refresh(&mut self, tx: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
        self.refreshed = Instant::now();
        self.lanes.refresh(tx, store).await
    }
}

/// Whether the connection is gone, and with it the lock.
fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => {
            db.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08") || code.starts_with("25P03"))
        }
        _ => true,
    }
}

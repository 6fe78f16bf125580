//! Environment of the operations: pools, two stores, a schema with user tables, and a worker.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use queue_core::{JobHandle, JobRef, JobState, JobType, Queue, Store, migrate};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{cluster::Cluster, handlers::HandlerState, lock, setup::Setup};

/// Objects that a run creates and uses.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) store: Store,
    pub(super) second: Store,
    /// State passed to the job handlers.
    pub(super) given: HandlerState,
    /// Names of the group roles that the run has created.
    roles: Mutex<Vec<String>>,
    is_migrated: AtomicBool,
    worker: Mutex<Option<RunningWorker>>,
    queue: OnceLock<Queue>,
    marks: AtomicI64,
}

/// Worker that runs in this process.
#[derive(Debug)]
pub(super) struct RunningWorker {
    pub(super) stop: oneshot::Sender<()>,
    pub(super) task: JoinHandle<Result<(), queue_worker::Error>>,
}

impl RunningWorker {
    /// Stops the worker gracefully, as a shutdown does.
    pub(super) async fn end(self) -> Result<()> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}

/// Queue that the worker serves with a single slot.
pub(super) const SINGLE: &str = "single";
/// Queue that no worker serves.
pub(super) const IDLE: &str = "idle";

impl World {
    /// Creates the environment with the user tables, but without a store.
    pub(super) async fn new(setup: Setup) -> Result<Self> {
        let run = format!("conformance_{:08x}", fastrand::u32(..));
        let store = Store::new(&run)?;
        let given = HandlerState::new(store, format!("{run}_app"));
        let app = given.app();
        // The statements are executed as one transaction, so an error leaves nothing to remove.
        let made = format!(
            "create schema {app}; create table {app}.effect (job bigint not null, n bigint not null); create table {app}.mark (n bigint not null)"
        );
        sqlx::raw_sql(AssertSqlSafe(made)).execute(maker(&setup)).await.context("cannot create the tables of the run")?;
        let (second, marks) = (Store::new(&format!("{run}_two"))?, AtomicI64::new(0));
        let (roles, worker, queue, is_migrated) = Default::default();
        Ok(Self { setup, store, second, given, roles, is_migrated, worker, queue, marks })
    }

    pub(super) fn pool(&self) -> &PgPool {
        self.setup.database.pool()
    }

    pub(super) fn direct(&self) -> &PgPool {
        self.setup.database.direct()
    }

    /// Returns the pool for creating and dropping objects. In a cluster, the pool connects to the coordinator.
    pub(super) fn maker(&self) -> &PgPool {
        maker(&self.setup)
    }

    /// Creates or migrates a store, and returns the applied migrations. In a cluster, moves the store to the node that the database URL
    /// names, if that node may hold shards.
    pub(super) async fn migrate_store(&self, store: Store) -> Result<Vec<i32>> {
        let applied = migrate(&mut *self.maker().acquire().await?, store).await?;
        if let Some(cluster) = &self.setup.cluster {
            cluster.move_to_node(store.schema()).await?;
        }
        Ok(applied)
    }

    /// Returns a handle for read-only operations; see [`World::read`].
    pub(super) async fn queries(&self) -> Result<Queue> {
        Ok(Queue::new(self.read().await?).store(self.store))
    }

    /// Returns the pool for read-only operations. If the pool connects to a standby, first waits until the standby has replayed all commits
    /// so far.
    pub(super) async fn read(&self) -> Result<&PgPool> {
        let Some(read) = &self.setup.read else { return Ok(self.pool()) };
        let (mark, app) = (self.marks.fetch_add(1, Ordering::Relaxed), self.given.app());
        sqlx::query(AssertSqlSafe(format!("insert into {app}.mark values ($1)"))).bind(mark).execute(self.pool()).await?;
        let is_there = format!("select exists (select from {app}.mark where n = $1)");
        for _ in 0..1000 {
            let found = sqlx::query_scalar(AssertSqlSafe(is_there.clone())).bind(mark).fetch_one(read.pool()).await;
            if found.unwrap_or(false) {
                return Ok(read.pool());
            }
            sleep(Duration::from_millis(10)).await;
        }
        bail!("the server of the read URL has not replayed the commits after 10 s")
    }

    /// Returns a `Queue` for the run's store. Waits of this `Queue` use the direct connection.
    pub(super) fn queue(&self) -> &Queue {
        self.queue.get_or_init(|| Queue::new(self.pool()).direct(self.direct()).store(self.store))
    }

    /// Returns the reason why an operation that requires `need` cannot run, or `None` if nothing is missing.
    pub(super) fn missing_requirement(&self, need: super::play::Need) -> Option<String> {
        use super::play::Need;
        let is_migrated = self.is_migrated.load(Ordering::Relaxed);
        let runs = lock(&self.worker).as_ref().is_some_and(|running| !running.task.is_finished());
        match need {
            Need::Store | Need::Worker if !is_migrated => Some("the store could not be created".to_owned()),
            Need::Worker if !runs => Some("no worker is running".to_owned()),
            _ => None,
        }
    }

    pub(super) fn is_migrated(&self) {
        self.is_migrated.store(true, Ordering::Relaxed);
    }

    pub(super) fn runs(&self, running: RunningWorker) {
        *lock(&self.worker) = Some(running);
    }

    /// Registers roles that are dropped at the end of the run.
    pub(super) fn made_roles(&self, names: Vec<String>) {
        lock(&self.roles).extend(names);
    }

    /// Stops the worker. Returns whether a worker was running.
    pub(super) async fn stop(&self) -> Result<bool> {
        let running = lock(&self.worker).take();
        match running {
            Some(running) => running.end().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops all schemas and roles that the run has created.
    pub(super) async fn remove(&self) -> Result<()> {
        let mut left = Vec::new();
        let stores = [self.second.schema(), self.store.schema()];
        // On a Citus cluster each store has a second schema.
        let beside = stores.map(|store| format!("{store}_here"));
        for schema in beside.iter().map(String::as_str).chain(stores).chain([self.given.app()]) {
            self.drop_one(format!("drop schema if exists {schema} cascade"), &mut left).await;
        }
        // The roles had privileges only in the dropped schemas. `drop owned` would require the privileges of the role, which a login with
        // `createrole` may not have.
        let roles = lock(&self.roles).clone();
        for role in roles.iter().rev() {
            self.drop_one(format!("drop role if exists {role}"), &mut left).await;
        }
        let find = "select count(*) from pg_namespace where nspname like $1 || '%'";
        let schemas: i64 = sqlx::query_scalar(find).bind(self.store.schema()).fetch_one(self.maker()).await?;
        ensure!(left.is_empty() && schemas == 0, "left behind: {} ({schemas} schemas)", left.join("; "));
        Ok(())
    }

    async fn drop_one(&self, statement: String, left: &mut Vec<String>) {
        let dropped = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(self.maker()).await;
        if let Err(error) = dropped {
            left.push(format!("{statement}: {error}"));
        }
    }

    pub(super) async fn close(self) {
        // Dropping the handle ends the task that serves its waits. The task then closes its connection.
        drop(self.queue);
        self.setup.close().await;
    }

    /// Waits until the condition `holds` returns true. Fails after 500 checks at intervals of 40 ms.
    pub(super) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        const PATIENCE: u32 = 500;
        for _ in 0..PATIENCE {
            if holds().await? {
                return Ok(());
            }
            sleep(Duration::from_millis(40)).await;
        }
        bail!("timed out after 20 s: {what}")
    }

    /// Waits for a job, and returns the job's output.
    pub(super) async fn output<J: JobType>(&self, job: JobHandle<J>) -> Result<J::Output> {
        Ok(job.wait(self.queue()).timeout(Duration::from_secs(25)).await?)
    }

    /// Waits until a job is in the given state.
    pub(super) async fn wait_for_state(&self, job: JobRef, state: JobState) -> Result<()> {
        let mut last = None;
        for _ in 0..500 {
            last = Some(job.state(self.pool()).await?);
            if last == Some(state) {
                return Ok(());
            }
            sleep(Duration::from_millis(40)).await;
        }
        bail!("job {} is {last:?} after 20 s instead of {state}", job.id())
    }

    /// Returns the numbers that a job wrote to the user table `effect`, in ascending order.
    pub(super) async fn effects(&self, job: JobRef) -> Result<Vec<i64>> {
        let effects = format!("select n from {}.effect where job = $1 order by n", self.given.app());
        Ok(sqlx::query_scalar(AssertSqlSafe(effects)).bind(job.id()).fetch_all(self.pool()).await?)
    }
}

/// Returns the pool for creating and dropping objects.
fn maker(setup: &Setup) -> &PgPool {
    setup.cluster.as_ref().map_or_else(|| setup.database.direct(), Cluster::coordinator)
}

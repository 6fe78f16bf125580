//! What operations find: pools, a store of the run's own and a second one, a schema of tables that stand for a user's, and a worker.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use queue_core::{JobHandle, JobRef, JobState, JobType, Store, Waiter, migrate};
use sqlx::{AssertSqlSafe, PgPool};
use tests::server::lock;
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{cluster::Cluster, handlers::Given, setup::Setup};

/// What a run has made, and all that it works on.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) store: Store,
    pub(super) second: Store,
    /// What handlers are given.
    pub(super) given: Given,
    /// Group roles that were made.
    roles: Mutex<Vec<String>>,
    is_migrated: AtomicBool,
    worker: Mutex<Option<RunningWorker>>,
    waiter: OnceLock<Waiter>,
    marks: AtomicI64,
}

/// A worker in this process.
#[derive(Debug)]
pub(super) struct RunningWorker {
    pub(super) stop: oneshot::Sender<()>,
    pub(super) task: JoinHandle<Result<(), queue_worker::Error>>,
}

impl RunningWorker {
    /// Ends it as a shutdown does.
    pub(super) async fn end(self) -> Result<()> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}

/// A queue that the worker serves with one slot, one that it serves, and one that nobody does.
pub(super) const SINGLE: &str = "single";
pub(super) const IDLE: &str = "idle";

impl World {
    /// With the user's tables, and no store yet.
    pub(super) async fn new(setup: Setup) -> Result<Self> {
        let run = format!("conformance_{:08x}", fastrand::u32(..));
        let store = Store::new(&run)?;
        let given = Given::new(store, format!("{run}_app"));
        let app = given.app();
        // One text is one transaction: there is all of it, or nothing to remove.
        let made = format!(
            "create schema {app}; create table {app}.effect (job bigint not null, n bigint not null); create table {app}.mark (n bigint not null)"
        );
        sqlx::raw_sql(AssertSqlSafe(made)).execute(maker(&setup)).await.context("the run's own tables")?;
        let (second, marks) = (Store::new(&format!("{run}_two"))?, AtomicI64::new(0));
        let (roles, worker, waiter, is_migrated) = Default::default();
        Ok(Self { setup, store, second, given, roles, is_migrated, worker, waiter, marks })
    }

    pub(super) fn pool(&self) -> &PgPool {
        self.setup.database.pool()
    }

    pub(super) fn direct(&self) -> &PgPool {
        self.setup.database.direct()
    }

    /// For what is made and dropped: the coordinator of a cluster.
    pub(super) fn maker(&self) -> &PgPool {
        maker(&self.setup)
    }

    /// Makes a store, or brings it up to date; of a cluster it is on the node that was named then, if that may have one.
    pub(super) async fn migrates(&self, store: Store) -> Result<Vec<i32>> {
        let applied = migrate(&mut *self.maker().acquire().await?, store).await?;
        if let Some(cluster) = &self.setup.cluster {
            cluster.take_home(store.schema()).await?;
        }
        Ok(applied)
    }

    /// For what only looks: the standby, once it has all that was committed until now.
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
        bail!("after 10 s the server of the read URL has not what was committed")
    }

    /// One waiter for all.
    pub(super) fn waiter(&self) -> &Waiter {
        self.waiter.get_or_init(|| Waiter::start_on(self.direct(), self.store))
    }

    /// What an operation that needs this would miss.
    pub(super) fn lacks(&self, need: super::play::Need) -> Option<String> {
        use super::play::Need;
        let is_migrated = self.is_migrated.load(Ordering::Relaxed);
        let runs = lock(&self.worker).as_ref().is_some_and(|running| !running.task.is_finished());
        match need {
            Need::Store | Need::Worker if !is_migrated => Some("the store could not be made".to_owned()),
            Need::Worker if !runs => Some("no worker runs".to_owned()),
            _ => None,
        }
    }

    pub(super) fn is_migrated(&self) {
        self.is_migrated.store(true, Ordering::Relaxed);
    }

    pub(super) fn runs(&self, running: RunningWorker) {
        *lock(&self.worker) = Some(running);
    }

    /// These roles are to be dropped.
    pub(super) fn made_roles(&self, names: Vec<String>) {
        lock(&self.roles).extend(names);
    }

    /// Ends the worker; whether there was one.
    pub(super) async fn stop(&self) -> Result<bool> {
        let running = lock(&self.worker).take();
        match running {
            Some(running) => running.end().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops all that was made.
    pub(super) async fn remove(&self) -> Result<()> {
        let mut left = Vec::new();
        let stores = [self.second.schema(), self.store.schema()];
        // On a Citus cluster a store has a second schema.
        let beside = stores.map(|store| format!("{store}_here"));
        for schema in beside.iter().map(String::as_str).chain(stores).chain([self.given.app()]) {
            self.drop_one(format!("drop schema if exists {schema} cascade"), &mut left).await;
        }
        // They had rights in those only. To drop what a role owns takes its own rights, which whoever may make roles need not have.
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
        // Its task gives its connection back first.
        drop(self.waiter);
        self.setup.close().await;
    }

    /// Waits until this is so.
    pub(super) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        const PATIENCE: u32 = 500;
        for _ in 0..PATIENCE {
            if holds().await? {
                return Ok(());
            }
            sleep(Duration::from_millis(40)).await;
        }
        bail!("not so after 20 s: {what}")
    }

    /// What a job of ours returned.
    pub(super) async fn output<J: JobType>(&self, job: JobHandle<J>) -> Result<J::Output> {
        Ok(job.wait(self.waiter()).timeout(Duration::from_secs(25)).await?)
    }

    /// Waits until a job is in this state.
    pub(super) async fn comes_to(&self, job: JobRef, state: JobState) -> Result<()> {
        let mut last = None;
        for _ in 0..500 {
            last = Some(job.state(self.pool()).await?);
            if last == Some(state) {
                return Ok(());
            }
            sleep(Duration::from_millis(40)).await;
        }
        bail!("job {} is {last:?} after 20 s, and was to be {state}", job.id())
    }

    /// What was written for a job into the user's table.
    pub(super) async fn effects(&self, job: JobRef) -> Result<Vec<i64>> {
        let effects = format!("select n from {}.effect where job = $1 order by n", self.given.app());
        Ok(sqlx::query_scalar(AssertSqlSafe(effects)).bind(job.id()).fetch_all(self.pool()).await?)
    }
}

/// What leads to where things are made.
fn maker(setup: &Setup) -> &PgPool {
    setup.cluster.as_ref().map_or_else(|| setup.database.direct(), Cluster::coordinator)
}

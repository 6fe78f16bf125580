//! One database per test, copied from a migrated template on a server that all tests share.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    str::FromStr as _,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use queue_core::{JobId, JobState, Queue, Store, migrate};
use queue_worker::{
    Worker,
    embedded::{Embedded, EmbeddedOptions},
};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};

use crate::{WorkerProcess, cluster, eventually};

/// Migrated database of one test. A test ends with [`TestDb::finish`], which checks the invariant.
#[derive(Debug)]
pub struct TestDb {
    /// Pool of connections to the database.
    pub pool: PgPool,
    /// Database URL, for other processes.
    pub url: String,
    name: String,
    /// URLs of the cluster's nodes, if the database is on a cluster.
    nodes: Vec<String>,
    finished: bool,
}

/// Query for violations of the invariant, as rows of (id, entries, jobs), where a negative `jobs` is a code:
/// - ids in `job` without exactly one entry, and entries without a job;
/// - jobs without a lane (jobs: -1), and ready jobs that are in a fair queue although their lane is not fair, or the reverse (-6);
/// - waiting jobs that have not started and have an expiry time but no expiry entry (-2);
/// - jobs that do not match the tick recorded for them (-3), and ticks that do not match exactly one job (-4);
/// - acknowledged pause numbers that no pause has used yet (-5), except the acknowledgements of workers that no longer start jobs.
pub const INVARIANT: &str = "
with entry as (
  select id from queue.ready union all select id from queue.scheduled union all select unnest(ids) from queue.lease
  union all select id from queue.done union all select unnest(ids) from queue.done_many union all select id from queue.dead
  union all select id from queue.blocked union all select id from queue.parked
)
select coalesce(e.id, j.id) as id, count(e.id) as entries, count(j.id) as jobs
from entry e full join queue.job j on j.id = e.id
group by 1
having count(e.id) <> 1 or count(j.id) <> 1
union all
select j.id, 1, -1 from queue.job j where not exists (select from queue.lane l where l.lane = j.lane)
union all
select r.id, 1, -6 from queue.ready r where (r.fair_id is not null) <> exists (select from queue.lane l where l.lane = r.lane and l.paired)
 union all
select j.id, 1, -2
from queue.job j
where j.system ->> 'expires_at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$'
  and not exists (select from queue.expiry x where x.id = j.id)
  and (
    exists (select from queue.ready r where r.id = j.id and r.attempts = 0 and r.crashes = 0)
    or exists (select from queue.scheduled s where s.id = j.id and s.attempts = 0 and s.crashes = 0)
    or exists (select from queue.blocked b where b.id = j.id)
  )
union all
select j.id, 1, -3
from queue.fire f
join queue.job j on j.id = f.job
where f.outcome in ('enqueued', 'run_now') and (j.system ->> 'schedule', j.system ->> 'tick')
  is distinct from (f.name, to_char(f.tick at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))
union all
select coalesce(f.job, 0), count(f.job), -4 from queue.fire f where f.outcome in ('enqueued', 'run_now') group by 1, f.job is null
having count(*) > 1 or f.job is null
union all
select j.id, 1, -4
from queue.fire f
join queue.job j on j.system ->> 'schedule' = f.name
  and j.system ->> 'tick' = to_char(f.tick at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')
where f.outcome = 'enqueued' and f.job <> j.id
  and not exists (select from queue.fire h where h.job = j.id and h.outcome = 'run_now')
union all
select w.paused_seen, 1, -5 from queue.worker w where w.paused_seen > (select p.last_value from queue.pause_seq p)
  and w.paused_seen < 9223372036854775807
limit 20";

impl TestDb {
    /// Creates a database with the default store and the table `effect`.
    ///
    /// # Panics
    /// Panics if the server cannot be started or does not respond.
    pub async fn new() -> Self {
        if std::env::var_os("QUEUE_TEST_ALL_ON_CITUS").is_some()
            && let Some(db) = Self::on_citus().await
        {
            return db;
        }
        let admin = server();
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        let mut connection = connect(&admin).await;
        let template = ensure_template(&mut connection, &admin).await;
        // The default strategy also writes each page to the WAL. With `file_copy`, creating and dropping a database cost half as much.
        run(&mut connection, &format!("create database {name} template {template} strategy file_copy")).await;
        Self::at(with_database(&admin, &name), name, Vec::new())
    }

    /// Creates a database with a distributed store on a cluster. Its pool connects to the coordinator. Returns `None` if no cluster is
    /// configured.
    ///
    /// # Panics
    /// Panics if the cluster does not respond.
    pub async fn on_citus() -> Option<Self> {
        let nodes = cluster::nodes().await?;
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        cluster::make(&nodes, &name).await;
        Some(Self::at(with_database(&nodes[0], &name), name, nodes))
    }

    /// Returns the URL of the database on each node of its cluster, coordinator first.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| with_database(node, &self.name)).collect()
    }

    fn at(url: String, name: String, nodes: Vec<String>) -> Self {
        let options = PgConnectOptions::from_str(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let pool = PgPoolOptions::new().max_connections(8).test_before_acquire(false).connect_lazy_with(options);
        Self { pool, url, name, nodes, finished: false }
    }

    /// Returns a handle to the default store.
    pub fn queue(&self) -> Queue {
        Queue::new(&self.pool)
    }

    /// Builds a worker that runs [`Do`](crate::Do) jobs and has a short grace period.
    pub fn worker(&self) -> Worker {
        Worker::new(self.pool.clone()).register::<crate::Do>().lease_ttl(Duration::from_secs(30)).grace(Duration::from_secs(2))
    }

    /// Listens to a channel of the store: `wake` or `over`.
    ///
    /// # Panics
    /// Panics if the database does not respond.
    pub async fn listen(&self, purpose: &str) -> PgListener {
        let listening = async {
            let channel: String = sqlx::query_scalar("select queue.channel($1)").bind(purpose).fetch_one(&self.pool).await?;
            let mut listener = PgListener::connect(&self.url).await?;
            listener.listen(&channel).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        listening.await.unwrap_or_else(|error| panic!("cannot listen to {purpose}: {error}"))
    }

    /// Returns the state of a job as shown by the view `jobs`, or `None` if the view does not contain the job.
    ///
    /// # Panics
    /// Panics if the database does not respond, or shows the job more than once.
    pub async fn state(&self, id: JobId) -> Option<JobState> {
        let states: Vec<String> = sqlx::query_scalar("select state from queue.jobs where id = $1")
            .bind(id)
            .fetch_all(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("cannot read the state of {id}: {error}"));
        assert!(states.len() <= 1, "job {id} is in several states: {states:?}");
        states.first().map(|state| state.parse().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Waits until a job has the state `expected`.
    ///
    /// # Panics
    /// Panics if the job does not reach this state within the timeout of [`eventually`].
    pub async fn until(&self, id: JobId, expected: JobState) {
        eventually(&format!("job {id} is {expected}"), async || self.state(id).await == Some(expected)).await;
    }

    /// Returns the result of a query that yields a single integer.
    ///
    /// # Panics
    /// Panics if the query fails.
    pub async fn count(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&self.pool).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Runs a worker until no job is blocked, ready, scheduled, parked or running, then stops the worker.
    ///
    /// # Panics
    /// Panics if the worker fails, or if unfinished jobs remain after the timeout of [`eventually`].
    pub async fn run_until_idle(&self, worker: Worker) {
        self.run_while(worker, async {
            eventually("nothing is left to do", async || {
                self.count("select count(*) from queue.jobs where state in ('blocked', 'ready', 'scheduled', 'parked', 'running')").await
                    == 0
            })
            .await;
        })
        .await;
    }

    /// Runs a worker while `test` is running, then stops the worker.
    ///
    /// # Panics
    /// Panics if the worker fails.
    pub async fn run_while<T>(&self, worker: Worker, test: impl Future<Output = T>) -> T {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let worker = tokio::spawn(worker.run(async move {
            let _ = stopped.await;
        }));
        let value = test.await;
        let _ = stop.send(());
        match worker.await {
            Ok(Ok(())) => value,
            Ok(Err(error)) => panic!("the worker failed: {error}"),
            Err(error) => panic!("the worker panicked: {error}"),
        }
    }

    /// Expires the lease of a worker process, as if the process had been killed or stopped. Other workers can then recover the worker's
    /// jobs immediately.
    ///
    /// # Panics
    /// Panics if the worker is not registered or its lease has already expired.
    pub async fn expire_worker(&self, worker: &WorkerProcess) {
        let expire = "update queue.worker set expires_at = now() - interval '1 second' where pid = $1 and expires_at > now()";
        let expired = sqlx::query(expire).bind(worker.pid().cast_signed()).execute(&self.pool).await;
        let expired = expired.unwrap_or_else(|error| panic!("cannot expire {worker:?}: {error}")).rows_affected();
        assert!(expired > 0, "{worker:?} is not announced");
    }

    /// Ends a worker process with SIGKILL and expires its lease. Does not wait for statements that the process has sent.
    ///
    /// # Panics
    /// Panics if the worker was not registered or its lease had already expired.
    pub async fn kill(&self, mut worker: WorkerProcess) {
        worker.signal("KILL");
        worker.wait();
        self.expire_worker(&worker).await;
    }

    /// Checks that the query [`INVARIANT`] finds no violations, such as a job without exactly one entry.
    ///
    /// # Panics
    /// Panics if the invariant is broken.
    pub async fn check_invariant(&self) {
        let mut connection = self.pool.acquire().await.unwrap_or_else(|error| panic!("cannot check the invariant: {error}"));
        let broken = broken(&mut connection).await.unwrap_or_else(|error| panic!("cannot check the invariant: {error}"));
        assert!(broken.is_empty(), "(id, entries, jobs) that break the invariant: {broken:?}");
    }

    /// Checks the invariant without dropping the database. Used for a cluster that has lost a node, because the cluster is removed with
    /// its databases.
    ///
    /// # Panics
    /// Panics if the invariant is broken.
    pub async fn leave(mut self) {
        self.check_invariant().await;
        self.finished = true;
        self.pool.close().await;
    }

    /// Checks the invariant and drops the database.
    ///
    /// # Panics
    /// Panics if the invariant is broken.
    pub async fn finish(mut self) {
        self.check_invariant().await;
        self.finished = true;
        self.pool.close().await;
        if !self.nodes.is_empty() {
            return cluster::drop(&self.nodes, &self.name).await;
        }
        run(&mut connect(&server()).await, &format!("drop database {} with (force)", self.name)).await;
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        assert!(self.finished || std::thread::panicking(), "end this test with `db.finish().await`, which checks the invariant");
    }
}

/// Returns the violations of the invariant as (id, entries, jobs). The result is normally empty.
///
/// # Errors
/// Returns a database error if the query fails.
pub async fn broken(connection: &mut PgConnection) -> sqlx::Result<Vec<(i64, i64, i64)>> {
    sqlx::query_as(INVARIANT).fetch_all(connection).await
}

/// Returns the URL of the server that all tests of this checkout share. The first caller starts the server. The server and its folder are
/// removed soon after the last test process ends. `QUEUE_TEST_DATABASE_URL` names another server.
fn server() -> String {
    static SERVER: OnceLock<(String, Option<Embedded>)> = OnceLock::new();
    let start = || {
        if let Ok(url) = std::env::var("QUEUE_TEST_DATABASE_URL") {
            return (url, None);
        }
        let mut hash = DefaultHasher::new();
        (env!("CARGO_MANIFEST_DIR"), std::env::var_os("QUEUE_PG_BIN"), std::env::var_os("HOME")).hash(&mut hash);
        let folder = crate::scratch().join(format!("queue-tests-{:x}", hash.finish()));
        let settings = [("max_connections", "300"), ("shared_buffers", "128MB")];
        let options = EmbeddedOptions {
            folder: Some(folder),
            durable: false,
            ephemeral: true,
            settings: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
            ..EmbeddedOptions::default()
        };
        let server = Embedded::start(options).unwrap_or_else(|error| panic!("no server to test on: {error}"));
        (server.url().to_owned(), Some(server))
    };
    SERVER.get_or_init(start).0.clone()
}

/// Returns the name of the template database. The name contains a hash of the migrations, so that different builds of this checkout do
/// not share a template. The name also contains the day, because the template has partitions for today and the following days.
fn template() -> String {
    let mut hash = DefaultHasher::new();
    let today = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() / 86_400);
    (migrate::print(Store::default()), today).hash(&mut hash);
    format!("queue_template_{:x}", hash.finish())
}

/// Creates the template database if it does not exist, under an advisory lock on which other tests wait. Returns the name of the template.
async fn ensure_template(admin: &mut PgConnection, url: &str) -> String {
    const EXISTS: &str = "select exists (select from pg_database where datname = $1)";
    let name = template();
    let exists = async |connection: &mut PgConnection| sqlx::query_scalar::<_, bool>(EXISTS).bind(&name).fetch_one(connection).await;
    if exists(admin).await.is_ok_and(|exists| exists) {
        return name;
    }
    run(admin, "select pg_advisory_lock(1)").await;
    if !exists(admin).await.is_ok_and(|exists| exists) {
        run(admin, "drop database if exists queue_template_new").await;
        run(admin, "create database queue_template_new").await;
        let mut fresh = connect(&with_database(url, "queue_template_new")).await;
        migrate(&mut fresh, Store::default()).await.unwrap_or_else(|error| panic!("cannot migrate the template: {error}"));
        run(&mut fresh, "create table effect (job bigint, attempt int, pid int, at timestamptz default clock_timestamp())").await;
        fresh.close().await.unwrap_or_else(|error| panic!("cannot close the template: {error}"));
        // The server writes a file on the first connection to a database. Connecting now includes this file in the copies.
        let first = connect(&with_database(url, "queue_template_new")).await;
        first.close().await.unwrap_or_else(|error| panic!("cannot close the template: {error}"));
        run(admin, &format!("alter database queue_template_new rename to {name}")).await;
    }
    run(admin, "select pg_advisory_unlock(1)").await;
    name
}

pub(crate) async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
}

pub(crate) async fn run(connection: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Returns the URL of another database on the same server.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let base = address.rsplit_once('/').map_or(address, |(base, _)| base);
    format!("{base}/{name}?{query}")
}

//! Creates, fills, truncates, checks and drops the benchmark's database.

use std::time::{Duration, Instant};

use queue_core::{Job as _, Store};
use queue_worker::Database;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    BenchError,
    job::{MOST_JOBS, Noop},
    measure::Postmaster,
    process::RunCounts,
    report::Server,
};

/// Database used only by the benchmark.
#[derive(Debug)]
pub(crate) struct BenchDatabase {
    admin: PgConnection,
    pool: PgPool,
    name: String,
    url: String,
    pub(crate) postmaster: Option<Postmaster>,
}

/// Maximum number of connections for the producers and the benchmark itself. The worker is a separate process with its own pool.
const MOST_CONNECTIONS: u32 = 12;

/// Numbers of jobs by state, for jobs enqueued since the measurement began. Blocked jobs count as ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
struct JobCounts {
    enqueued: i64,
    ready: i64,
    scheduled: i64,
    leased: i64,
    completed: i64,
    dead: i64,
}

const JOB_COUNTS: &str = "
select
  (select count(*) from queue.job where id >= $1) as enqueued,
  (select count(*) from queue.ready where id >= $1) + (select count(*) from queue.blocked where id >= $1) as ready,
  (select count(*) from queue.scheduled where id >= $1) as scheduled,
  (select count(*) from queue.lease h, unnest(h.ids) u (id) where u.id >= $1) as leased,
  (select count(distinct id) from (
    select id from queue.done where id >= $1
    union all
    select unnest(ids) from queue.done_many where first_id >= $1) d) as completed,
  (select count(*) from queue.dead where id >= $1) as dead";

/// Expected values of [`JobCounts`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) completed: u64,
    pub(crate) ready: u64,
    pub(crate) scheduled: u64,
}

const COMPLETED: &str = "
select coalesce((select sum(cardinality(ids)) from queue.done_many where first_id >= $1), 0)::bigint
  + (select count(*) from queue.done where id >= $1)";

const TRUNCATE: &str = "
do $$ begin
  execute (select 'truncate ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
    from pg_tables where schemaname = 'queue' and tablename not in ('migration', 'secret', 'stripe'));
end $$;
drop table if exists plain";

const DESCRIBE: &str = "
select format('PostgreSQL %s, shared_buffers %s, max_wal_size %s, fsync %s, synchronous_commit %s, full_page_writes %s',
  current_setting('server_version'), current_setting('shared_buffers'), current_setting('max_wal_size'), current_setting('fsync'),
  current_setting('synchronous_commit'), current_setting('full_page_writes'))";

impl BenchDatabase {
    /// Creates the database with an empty store.
    pub(crate) async fn create(server: &Database) -> Result<Self, BenchError> {
        let options: PgConnectOptions =
            (*server.pool().connect_options()).clone().application_name("queue-bench").disable_statement_logging();
        let name = format!("queue_bench_{}", std::process::id());
        let mut admin = options.connect().await?;
        for statement in [format!("drop database if exists {name}"), format!("create database {name}")] {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await?;
        }
        let options = options.database(&name);
        let url = options.to_url_lossy().to_string();
        let pool = PgPoolOptions::new().max_connections(MOST_CONNECTIONS).test_before_acquire(false).connect_lazy_with(options);
        let postmaster = Postmaster::of(&mut admin).await?;
        let database = Self { admin, pool, name, url, postmaster };
        queue_core::migrate(&mut *database.connection().await?, Store::default()).await?;
        Ok(database)
    }

    /// Drops the database and closes any remaining connections.
    pub(crate) async fn drop(mut self) -> Result<(), BenchError> {
        self.pool.close().await;
        let statement = format!("drop database {} with (force)", self.name);
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut self.admin).await?;
        Ok(self.admin.close().await?)
    }

    /// Returns the version and the settings of the server.
    pub(crate) async fn describe(&self) -> Result<Server, BenchError> {
        let server: String = sqlx::query_scalar(DESCRIBE).fetch_one(&self.pool).await?;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let location = if self.postmaster.is_some() { "on this machine" } else { "elsewhere, so its processor time is not known" };
        Ok(Server { server: format!("{server}; {location}; {cores} cores here") })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns a pooled connection, which the caller uses for many statements. Acquiring a connection costs more than a short statement.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<Postgres>, BenchError> {
        Ok(self.pool.acquire().await?)
    }

    /// Empties the store and drops the table of the baselines. Then runs a checkpoint if permitted, so that a checkpoint during the
    /// measurement is unlikely. Returns a job id that is lower than the ids of all jobs enqueued afterwards.
    pub(crate) async fn reset(&self) -> Result<i64, BenchError> {
        sqlx::raw_sql(TRUNCATE).execute(&self.pool).await?;
        let _ = sqlx::raw_sql("checkpoint").execute(&self.pool).await;
        self.next_id().await
    }

    /// Runs a vacuum and a checkpoint. Otherwise autovacuum would run within a minute, during the measurement.
    pub(crate) async fn vacuum(&self) -> Result<(), BenchError> {
        sqlx::raw_sql("vacuum").execute(&self.pool).await?;
        let _ = sqlx::raw_sql("checkpoint").execute(&self.pool).await;
        Ok(())
    }

    /// Returns a new job id, which is lower than the ids of all jobs enqueued afterwards.
    pub(crate) async fn next_id(&self) -> Result<i64, BenchError> {
        Ok(sqlx::query_scalar("select queue.next_id()").fetch_one(&self.pool).await?)
    }

    /// Enqueues `jobs` ready jobs into one lane, in one transaction.
    pub(crate) async fn fill(&self, jobs: u64) -> Result<(), BenchError> {
        self.fill_later(jobs, Duration::ZERO).await
    }

    /// Enqueues `jobs` jobs into one lane, in one transaction. The jobs are due after `wait`.
    pub(crate) async fn fill_later(&self, jobs: u64, wait: Duration) -> Result<(), BenchError> {
        if jobs > MOST_JOBS {
            return Err(self.wrong_result("bench", format!("{jobs} jobs exceed the maximum of {MOST_JOBS}; use a smaller --scale")));
        }
        Noop::enqueue_all((0..jobs).map(Noop::numbered), &self.pool).after(wait).await?;
        Ok(())
    }

    /// Waits until `jobs` jobs with an id of at least `from` are durably completed.
    pub(crate) async fn until_completed(&self, from: i64, jobs: u64) -> Result<(), BenchError> {
        let mut connection = self.connection().await?;
        let began = Instant::now();
        loop {
            let completed: i64 = sqlx::query_scalar(COMPLETED).bind(from).fetch_one(&mut *connection).await?;
            if completed >= jobs as i64 {
                return Ok(());
            }
            if began.elapsed() > Duration::from_mins(1) {
                return Err(self.wrong_result("bench", format!("{completed} of {jobs} jobs completed; no progress for a minute")));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until a worker has recorded in `queue.idle` that it is asleep.
    pub(crate) async fn until_asleep(&self) -> Result<(), BenchError> {
        let began = Instant::now();
        while !sqlx::query_scalar::<_, bool>("select exists (select from queue.idle)").fetch_one(&self.pool).await? {
            if began.elapsed() > Duration::from_secs(30) {
                return Err(self.wrong_result("bench", "the worker did not sleep in time".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // After the worker has recorded that it is asleep, it polls once more. The delay leaves time for that poll.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(())
    }

    /// Waits up to 5 s for the server to close the connections of a stopped worker, so that the statistics include their activity.
    pub(crate) async fn until_alone(&self) -> Result<(), BenchError> {
        const OTHERS: &str =
            "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker%'";
        let began = Instant::now();
        while sqlx::query_scalar::<_, i64>(OTHERS).fetch_one(&self.pool).await? > 0 && began.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Checks all jobs with an id of at least `from`. The counts per state must equal the expected counts. If `seen` is given, it must
    /// report exactly one run of each completed job.
    pub(crate) async fn check(
        &self,
        workload: &'static str,
        from: i64,
        expected: Expected,
        seen: Option<&RunCounts>,
    ) -> Result<(), BenchError> {
        let Expected { completed, ready, scheduled } = expected;
        let counts: JobCounts = sqlx::query_as(JOB_COUNTS).bind(from).fetch_one(&self.pool).await?;
        let enqueued = (completed + ready + scheduled) as i64;
        let required =
            JobCounts { enqueued, ready: ready as i64, scheduled: scheduled as i64, completed: completed as i64, ..JobCounts::default() };
        if counts != required {
            return Err(self.wrong_result(workload, format!("the jobs per state are {counts:?} instead of {required:?}")));
        }
        match seen {
            Some(seen) if seen.runs != completed || seen.distinct != completed => {
                let (runs, distinct) = (seen.runs, seen.distinct);
                Err(self.wrong_result(workload, format!("{completed} jobs completed, but {distinct} ran, in {runs} runs")))
            }
            _ => Ok(()),
        }
    }

    #[allow(clippy::unused_self, reason = "reads as an error of this database")]
    pub(crate) fn wrong_result(&self, workload: &'static str, what: String) -> BenchError {
        BenchError::Wrong { workload, what }
    }
}

//! Tables and queries of the demo. As in an application, the tables are in the same database as the queue.

use queue_core::{Job as _, JobHandle, JobId};
use sqlx::PgPool;

use crate::hash::HashFile;

/// Statements that create the tables of runs and files, and delete runs older than one day. Newer runs are kept for inspection.
const TABLES: &str = "
select pg_advisory_xact_lock(hashtext('demo'));
create schema if not exists demo;
create table if not exists demo.run (
  id          bigint generated always as identity,
  folder      text not null,
  started_at  timestamptz not null default now(),
  constraint run_pkey primary key (id)
);
create table if not exists demo.file (
  run     bigint not null,
  path    text not null,
  bytes   bigint,
  digest  bytea,
  constraint file_pkey primary key (run, path),
  constraint file_of_run foreign key (run) references demo.run on delete cascade,
  constraint file_hashed_has_both check ((bytes is null) = (digest is null))
);
delete from demo.run where started_at < now() - interval '1 day';
";

/// Run of the demo. The jobs of each run have their own queue, so that concurrent runs on one server do not share jobs.
pub(crate) struct Run {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) files: u64,
    /// Lowest and highest job id of the run.
    jobs: (Option<JobId>, Option<JobId>),
}

/// Numbers of jobs in a run, by state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) completed: u64,
    pub(crate) dead: u64,
    /// Number of jobs that wait for a retry.
    pub(crate) scheduled: u64,
    /// Number of unfinished jobs: scheduled, ready or running.
    pub(crate) left: u64,
}

/// Group of files with the same contents.
#[derive(sqlx::FromRow)]
pub(crate) struct Group {
    pub(crate) bytes: i64,
    pub(crate) copies: i64,
    pub(crate) wasted: i64,
    pub(crate) paths: Vec<String>,
}

/// Dead letter of a file that could not be read.
#[derive(sqlx::FromRow)]
pub(crate) struct DeadLetter {
    pub(crate) path: String,
    pub(crate) attempts: i16,
    pub(crate) error: String,
}

pub(crate) async fn create(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::raw_sql(TABLES).execute(pool).await.map(drop)
}

/// Writes a row and enqueues a job for each file in one transaction, so a job exists if and only if its row exists.
pub(crate) async fn enqueue(pool: &PgPool, folder: &str, files: &[String]) -> anyhow::Result<Run> {
    let mut tx = pool.begin().await?;
    let id: i64 = sqlx::query_scalar("insert into demo.run (folder) values ($1) returning id").bind(folder).fetch_one(&mut *tx).await?;
    sqlx::query("insert into demo.file (run, path) select $1, unnest($2::text[])").bind(id).bind(files).execute(&mut *tx).await?;
    let (queue, jobs) = (format!("demo-{id}"), files.iter().map(|path| HashFile { run: id, path: path.clone() }));
    let jobs = HashFile::enqueue_all(jobs, &mut tx).queue(&queue).returning_ids().await?;
    tx.commit().await?;
    let ids = || jobs.iter().map(JobHandle::id);
    Ok(Run { id, queue, files: files.len() as u64, jobs: (ids().min(), ids().max()) })
}

/// Stores a digest unless the file already has one. Returns whether the digest was stored.
pub(crate) async fn store(pool: &PgPool, job: &HashFile, digest: [u8; 32], bytes: u64) -> sqlx::Result<bool> {
    let statement = "update demo.file set digest = $3, bytes = $4 where run = $1 and path = $2 and digest is null";
    let done = sqlx::query(statement).bind(job.run).bind(&job.path).bind(digest).bind(bytes.cast_signed()).execute(pool).await?;
    Ok(done.rows_affected() == 1)
}

impl Run {
    /// Counts all jobs of the run by state.
    pub(crate) async fn counts(&self, pool: &PgPool) -> sqlx::Result<Counts> {
        // A range of job ids is also a range of enqueue times. The query therefore reads only the part of the history from that period.
        self.count(pool, "select state, count(*) from queue.jobs where id between $1 and $2 and queue = $3 group by state").await
    }

    /// Counts the run's scheduled and dead jobs. The query is cheap for any number of jobs, because few jobs fail.
    pub(crate) async fn troubles(&self, pool: &PgPool) -> sqlx::Result<Counts> {
        let statement = "
            select state, count(*)
            from queue.jobs
            where id between $1 and $2 and queue = $3 and state in ('scheduled', 'dead')
            group by state";
        self.count(pool, statement).await
    }

    async fn count(&self, pool: &PgPool, statement: &'static str) -> sqlx::Result<Counts> {
        let query = sqlx::query_as(statement).bind(self.jobs.0).bind(self.jobs.1).bind(&self.queue);
        let rows: Vec<(String, i64)> = query.fetch_all(pool).await?;
        let of = |state: &str| rows.iter().find(|row| row.0 == state).map_or(0, |row| row.1.unsigned_abs());
        let scheduled = of("scheduled");
        Ok(Counts { completed: of("completed"), dead: of("dead"), scheduled, left: scheduled + of("ready") + of("running") })
    }

    /// Returns the number of files with a digest, and the total size of these files in bytes.
    pub(crate) async fn digests(&self, pool: &PgPool) -> sqlx::Result<(u64, u64)> {
        let statement = "select count(*), coalesce(sum(bytes), 0)::bigint from demo.file where run = $1 and digest is not null";
        let (files, bytes): (i64, i64) = sqlx::query_as(statement).bind(self.id).fetch_one(pool).await?;
        Ok((files.unsigned_abs(), bytes.unsigned_abs()))
    }

    /// Loads the groups of files with the same contents, ordered by wasted space, largest first. Ignores empty files.
    pub(crate) async fn duplicates(&self, pool: &PgPool) -> sqlx::Result<Vec<Group>> {
        let statement = "
            select bytes, count(*) as copies, bytes * (count(*) - 1) as wasted, (array_agg(path order by path))[:4] as paths
            from demo.file
            where run = $1 and bytes > 0
            group by digest, bytes
            having count(*) > 1
            order by wasted desc, paths";
        sqlx::query_as(statement).bind(self.id).fetch_all(pool).await
    }

    /// Loads the dead letters of the run.
    pub(crate) async fn dead_letters(&self, pool: &PgPool) -> sqlx::Result<Vec<DeadLetter>> {
        let statement = "
            select payload ->> 'path' as path, attempts::smallint as attempts, error
            from queue.jobs
            where id between $1 and $2 and queue = $3 and state = 'dead'
            order by path";
        sqlx::query_as(statement).bind(self.jobs.0).bind(self.jobs.1).bind(&self.queue).fetch_all(pool).await
    }
}

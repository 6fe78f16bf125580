//! Producer side of the comparison of queue libraries: installs a library, fills its queue, and counts the unfinished jobs. Each library
//! has its own match arms, which call the library's public API. Only the job type is shared.

use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use graphile_worker::{JobSpec, WorkerUtils};
use pgmq::PGMQueueExt;
use queue_core::{Job as _, Store};
use sqlx::{PgConnection, PgPool};

use crate::{database::BenchDatabase, job::Noop};

/// Queue library to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    Ours,
    Graphile,
    Pgmq,
}

/// Default schema of `graphile_worker`.
pub(crate) const SCHEMA: &str = "graphile_worker";

/// Name of the only `pgmq` queue.
pub(crate) const QUEUE: &str = "bench";

/// Number of jobs per call, for libraries that do not accept a stream. Larger calls are not faster.
const CHUNK: usize = 1000;

/// Client of a queue library that [`Client::install`] has installed in the measurement's database.
#[derive(Clone)]
pub(crate) enum Client {
    Ours,
    Graphile(WorkerUtils),
    Pgmq(PGMQueueExt),
}

impl Client {
    /// Installs the queue library in the database. For `pgmq`, `wakes` determines whether an enqueue wakes a waiting worker. In our queue
    /// and in `graphile_worker`, an enqueue always wakes a waiting worker.
    pub(crate) async fn install(peer: Peer, wakes: bool, database: &BenchDatabase) -> anyhow::Result<Self> {
        match peer {
            Peer::Ours => {
                queue_core::migrate(&mut *database.pool.acquire().await?, Store::default()).await?;
                Ok(Self::Ours)
            }
            Peer::Graphile => {
                let utils = WorkerUtils::new(database.pool.clone(), SCHEMA);
                utils.migrate().await?;
                Ok(Self::Graphile(utils))
            }
            Peer::Pgmq => {
                let queue = PGMQueueExt::new_with_pool(database.pool.clone()).await;
                queue.install_sql_from_embedded().await?;
                queue.create(QUEUE).await?;
                if wakes {
                    // A throttle interval of zero disables throttling. A throttled queue would not notify the worker of most messages.
                    queue.enable_notify_insert(QUEUE, Duration::ZERO).await?;
                }
                Ok(Self::Pgmq(queue))
            }
        }
    }

    /// Enqueues one job in its own transaction.
    pub(crate) async fn enqueue(&self, connection: &mut PgConnection, job: Noop) -> anyhow::Result<()> {
        match self {
            Self::Ours => drop(job.enqueue(connection).await?),
            Self::Graphile(utils) => drop(utils.clone().with_executor(connection).add_job(job, JobSpec::default()).await?),
            Self::Pgmq(queue) => drop(queue.send_with_cxn(QUEUE, &job, connection).await?),
        }
        Ok(())
    }

    /// Enqueues `jobs` ready jobs. Then analyzes the tables, as autovacuum would have done in a long-lived store.
    pub(crate) async fn fill(&self, pool: &PgPool, jobs: u64) -> anyhow::Result<()> {
        let all: Vec<Noop> = (0..jobs).map(Noop::numbered).collect();
        match self {
            Self::Ours => drop(Noop::enqueue_all(all, pool).await?),
            Self::Graphile(utils) => {
                let spec = JobSpec::default();
                for chunk in all.chunks(CHUNK) {
                    utils.add_jobs(&chunk.iter().map(|job| (job.clone(), &spec)).collect::<Vec<_>>()).await?;
                }
            }
            Self::Pgmq(queue) => {
                for chunk in all.chunks(CHUNK) {
                    queue.send_batch(QUEUE, chunk).await?;
                }
            }
        }
        sqlx::raw_sql("analyze").execute(pool).await?;
        Ok(())
    }

    /// Returns the number of jobs that have not completed. Dead letters are included, so the benchmark fails if a job fails.
    pub(crate) async fn left(&self, pool: &PgPool) -> anyhow::Result<i64> {
        const OURS: &str = "
            select (select count(*) from queue.ready) + (select count(*) from queue.scheduled) + (select count(*) from queue.dead)
              + (select coalesce(sum(cardinality(ids)), 0) from queue.lease)";
        const GRAPHILE: &str = "select count(*) from graphile_worker._private_jobs";
        const PGMQ: &str = "select count(*) from pgmq.q_bench";
        let count = match self {
            Self::Ours => OURS,
            Self::Graphile(_) => GRAPHILE,
            Self::Pgmq(_) => PGMQ,
        };
        Ok(sqlx::query_scalar(count).fetch_one(pool).await?)
    }

    /// Checks that the history contains `jobs` jobs, each exactly once. Does nothing if the queue keeps no history.
    pub(crate) async fn check_history(&self, pool: &PgPool, archived: bool, jobs: u64) -> anyhow::Result<()> {
        const OURS: &str = "
            select count(*), count(distinct id) from (
              select id from queue.done
              union all
              select unnest(ids) from queue.done_many) d";
        const PGMQ: &str = "select count(*), count(distinct msg_id) from pgmq.a_bench";
        let count = match self {
            Self::Ours => OURS,
            Self::Pgmq(_) if archived => PGMQ,
            _ => return Ok(()),
        };
        let (all, distinct): (i64, i64) = sqlx::query_as(count).fetch_one(pool).await?;
        ensure!(
            (all, distinct) == (jobs as i64, jobs as i64),
            "the history has {all} entries of {distinct} distinct jobs instead of {jobs}"
        );
        Ok(())
    }
}

//! The side of the producers: how each queue is installed, filled and asked whether anything is left. One arm a queue, nothing shared but
//! the job; each goes through the public calls of its own library.

use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use graphile_worker::{JobSpec, WorkerUtils};
use pgmq::PGMQueueExt;
use queue_core::{Job as _, Store};
use sqlx::{PgConnection, PgPool};

use crate::{database::BenchDatabase, job::Noop};

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    Ours,
    Graphile,
    Pgmq,
}

/// The schema of graphile_worker, as it comes.
pub(crate) const SCHEMA: &str = "graphile_worker";

/// The one queue of pgmq.
pub(crate) const QUEUE: &str = "bench";

/// So many jobs go into one call where a library has no stream; more makes neither of them faster.
const CHUNK: usize = 1000;

/// A queue, installed in a database of its own.
#[derive(Clone)]
pub(crate) enum Client {
    Ours,
    Graphile(WorkerUtils),
    Pgmq(PGMQueueExt),
}

impl Client {
    /// Installs it. `wakes`: whether an enqueue wakes a waiting worker where that is a choice; ours and graphile_worker always do.
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
                    // Unthrottled: else most of the messages wake nobody.
                    queue.enable_notify_insert(QUEUE, Duration::ZERO).await?;
                }
                Ok(Self::Pgmq(queue))
            }
        }
    }

    /// Enqueues one job, in a transaction of its own.
    pub(crate) async fn enqueue(&self, connection: &mut PgConnection, job: Noop) -> anyhow::Result<()> {
        match self {
            Self::Ours => drop(job.enqueue(connection).await?),
            Self::Graphile(utils) => drop(utils.clone().with_executor(connection).add_job(job, JobSpec::default()).await?),
            Self::Pgmq(queue) => drop(queue.send_with_cxn(QUEUE, &job, connection).await?),
        }
        Ok(())
    }

    /// Makes so many jobs ready; then statistics, which a store that has been there for a while would have.
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

    /// How many jobs there are that nobody has finished.
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

    /// Where a history is kept, it must hold so many jobs, each once.
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
        ensure!((all, distinct) == (jobs as i64, jobs as i64), "{all} of {jobs} jobs are in the history, {distinct} different ones");
        Ok(())
    }
}

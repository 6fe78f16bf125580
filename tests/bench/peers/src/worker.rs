//! Worker side of the comparison of queue libraries. `process.rs` runs each queue's worker in a separate process, with default settings
//! or with settings for jobs that take no time. `pgmq` has no worker. The loop in this module follows the documentation of `pgmq`: read,
//! handle, then delete or archive.

use std::{sync::Arc, time::Duration};

use clap::ValueEnum;
use graphile_worker::{LocalQueueConfig, WorkerOptions};
use pgmq::PGMQueueExt;
use queue_worker::{Config, Worker};
use sqlx::postgres::PgListener;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    client::{Peer, QUEUE, SCHEMA},
    database::pool,
    job::{Noop, note},
};

/// Settings of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Default settings. For `pgmq`, one client that reads one message at a time.
    Defaults,
    /// Settings for jobs that take no time. For `pgmq`, messages are deleted, so it keeps no history.
    Tuned,
    /// Settings for jobs that take no time. For `pgmq`, messages are archived instead of deleted.
    Archived,
}

/// Runs the worker of a queue until `stop` becomes true.
pub(crate) async fn work(peer: Peer, shape: Shape, url: &str, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    match peer {
        Peer::Ours => ours(shape, url, stop).await,
        Peer::Graphile => graphile(shape, url, stop).await,
        Peer::Pgmq => pgmq(shape, url, stop).await,
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which also stops the worker.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn ours(shape: Shape, url: &str, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let mut config = Config::default();
    if shape != Shape::Defaults {
        (config.concurrency, config.batch) = (500, 1000);
    }
    Ok(Worker::new(pool(url, 5)?).config(config).run(stopped(stop)).await?)
}

async fn graphile(shape: Shape, url: &str, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let options = WorkerOptions::default().schema(SCHEMA).pg_pool(pool(url, 20)?).define_job::<Noop>();
    let options = match shape {
        Shape::Defaults => options,
        Shape::Tuned | Shape::Archived => options
            .concurrency(GRAPHILE_CONCURRENCY)
            .local_queue(LocalQueueConfig::default().with_size(GRAPHILE_SIZE).with_queue_count(GRAPHILE_QUEUES))
            .complete_job_batch_delay(Duration::from_millis(1))
            .fail_job_batch_delay(Duration::from_millis(1)),
    };
    Ok(options.shutdown_signal(stopped(stop)).init().await?.run().await?)
}

/// Number of concurrent jobs in `graphile_worker`. This setting is among the best of ten settings tried on two busy cores. The
/// differences were within the noise, so other settings may be better.
const GRAPHILE_CONCURRENCY: usize = 24;
const GRAPHILE_SIZE: usize = 1000;
const GRAPHILE_QUEUES: usize = 4;

/// Number of clients, and number of messages per read: the fastest of ten combinations. Smaller reads scan the dead rows of earlier reads
/// more often.
const PGMQ_TUNED: (u32, i32) = (2, 5000);

/// Visibility timeout of a read message in seconds, longer than any measurement.
const HIDDEN: i32 = 600;

async fn pgmq(shape: Shape, url: &str, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let (clients, batch) = if shape == Shape::Defaults { (1, 1) } else { PGMQ_TUNED };
    let queue = Arc::new(PGMQueueExt::new_with_pool(pool(url, clients)?).await);
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let mut listener = PgListener::connect(url).await?;
        listener.listen(&format!("pgmq.q_{QUEUE}.INSERT")).await?;
        running.spawn(consume(Arc::clone(&queue), listener, shape, batch, stop.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// Reads and handles messages until the worker is stopped. While the queue is empty, waits for a notification, at most for the default
/// poll interval of `pgmq`.
async fn consume(
    queue: Arc<PGMQueueExt>,
    mut listener: PgListener,
    shape: Shape,
    batch: i32,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut connection = queue.connection.acquire().await?;
    while !*stop.borrow() {
        let messages = queue.read_batch_with_cxn::<_, Noop, serde_json::Value>(QUEUE, HIDDEN, batch, &mut *connection).await?;
        if messages.is_empty() {
            let _ = tokio::time::timeout(Duration::from_millis(250), listener.recv()).await;
            continue;
        }
        let ids: Vec<i64> = messages.iter().map(|message| message.msg_id).collect();
        messages.iter().for_each(|message| note(&message.message));
        if shape == Shape::Archived {
            queue.archive_batch_with_cxn(QUEUE, &ids, &mut *connection).await?;
        } else {
            queue.delete_batch_with_cxn(QUEUE, &ids, &mut *connection).await?;
        }
    }
    Ok(())
}

//! `run` command: runs a worker until the process receives a signal.

use super::{
    open::open_for_worker,
    problem::{BoxError, Problem},
    settings::Settings,
};
use crate::{
    live::{notify_supervisor, shutdown_signal},
    worker::Worker,
};

pub(super) async fn run(settings: &Settings, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<(), Problem> {
    // An invalid configuration is reported before the database is opened or any task is started.
    let config = settings.config()?;
    let database = open_for_worker(settings, config.on_standby).await?;
    if settings.embedded.is_none() {
        database.log_location(config.store);
    }
    if settings.worker.migrate() || database.is_embedded() {
        config.on_standby.wait_for_writes(database.direct()).await?.close().await;
        let applied = database.migrate(config.store).await?;
        if !applied.is_empty() {
            tracing::info!(schema = config.store.schema(), migrations = applied.len(), "migrated");
        }
    }
    #[cfg(feature = "dashboard")]
    let dashboard = super::dashboard::start_beside_worker(settings, &database, config.store).await?;
    let worker = prepare(Worker::new(database.pool().clone()).direct(database.direct()).config(config)).await?;
    #[cfg(feature = "health")]
    let worker = settings.worker.health.into_iter().fold(worker, Worker::health);
    // A signal received from this point on stops the worker gracefully. An earlier signal ends the process before any job is claimed.
    let stopped = shutdown_signal();
    let stop = async move {
        stopped.await;
        notify_supervisor("STOPPING=1");
    };
    worker.on_ready(|| notify_supervisor("READY=1")).run(stop).await?;
    #[cfg(feature = "dashboard")]
    drop(dashboard);
    database.close().await;
    Ok(())
}

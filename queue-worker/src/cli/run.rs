//! `run`: a worker, until a signal.

use super::{
    open::open_patiently,
    problem::{BoxError, Problem},
    settings::Settings,
};
use crate::{
    live::{shutdown_signal, tell_supervisor},
    worker::Worker,
};

pub(super) async fn run(settings: &Settings, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<(), Problem> {
    // Before anything is started for settings that are wrong.
    let config = settings.config()?;
    let database = open_patiently(settings, config.on_standby).await?;
    if settings.embedded.is_none() {
        database.tell_where(config.store);
    }
    if settings.worker.migrate() || database.is_embedded() {
        config.on_standby.heed(database.direct()).await?.close().await;
        let applied = database.migrate(config.store).await?;
        if !applied.is_empty() {
            tracing::info!(schema = config.store.schema(), migrations = applied.len(), "migrated");
        }
    }
    #[cfg(feature = "dashboard")]
    let dashboard = super::dashboard::beside(settings, &database, config.store).await?;
    let worker = prepare(Worker::new(database.pool().clone()).direct(database.direct()).config(config)).await?;
    #[cfg(feature = "health")]
    let worker = settings.worker.health.into_iter().fold(worker, Worker::health);
    // Heard from here on: nothing has been claimed yet, and before, a signal ends the process at once.
    let stopped = shutdown_signal();
    let told = async move {
        stopped.await;
        tell_supervisor("STOPPING=1");
    };
    worker.on_ready(|| tell_supervisor("READY=1")).run(told).await?;
    #[cfg(feature = "dashboard")]
    drop(dashboard);
    database.close().await;
    Ok(())
}

//! `stores run`: runs one worker process for all stores until the process receives a signal. The process also maintains the stores.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use queue_core::stores::Stores;
use tokio::time::{sleep, timeout};

use super::{
    manage::migrate_store,
    open::{StoreSession, records},
    settings::{StoresSettings, StoresWorkerSettings},
};
use crate::{
    cli::{
        open::open_for_worker,
        problem::{BoxError, Problem},
        settings::Settings,
    },
    live::{Database, notify_supervisor, shutdown_signal},
    stores::StoresWorker,
    worker::Worker,
};

/// Default interval for reloading the list of stores.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum interval for reloading the list of stores.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Retry interval and connect timeout for databases that were unavailable at startup.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(settings: &Settings, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<(), Problem> {
    let config = settings.config()?;
    #[cfg(feature = "health")]
    if settings.worker.health.is_some() {
        return Err(Problem::usage("a worker of many stores answers no health checks; leave out `--health` (QUEUE_HEALTH)"));
    }
    let mut opened = StoreSession::without_records(settings, open_for_worker(settings, config.on_standby).await?)?;
    opened.connect_databases(settings, |_| true).await?;
    let is_migrated = settings.worker.migrate() || opened.home.is_embedded();
    if is_migrated {
        // `migrate` has already logged a failure with the name of the database. If the placement tables do not exist, `records` fails
        // below.
        let _ = opened.stores.migrate().await;
    }
    opened.records = records(settings, &opened.stores).await?;
    opened.load_roster(settings).await?;
    for trouble in &opened.failed {
        tracing::warn!(store = trouble.store, error = trouble.error, "store unavailable: its jobs wait, other stores continue");
    }
    if is_migrated {
        migrate_all(&opened.stores).await;
    }
    let worker = Worker::new(opened.home.pool().clone()).config(config);
    let (template, ready) = prepare(worker).await?.into_template()?;
    let (template, members) = (Arc::new(template), opened.stores.roster().all());
    let of_all = Arc::clone(&template);
    // Only the home database can have a direct URL, which bypasses its pooler.
    let (home, direct) = (opened.home.pool().clone(), opened.home.direct().clone());
    let worker = StoresWorker::new(opened.stores.roster(), move |member, _| {
        let is_home = Arc::ptr_eq(&home.connect_options(), &member.pool().connect_options());
        let worker = template.worker(member.pool().clone());
        if is_home { worker.direct(&direct) } else { worker }
    });
    let StoresSettings { worker: StoresWorkerSettings { slots, linger, upkeep, tend }, .. } = &settings.stores;
    let worker = slots.iter().fold(worker, |worker, slots| worker.slots(slots.get() as usize));
    let worker = linger.iter().fold(worker, |worker, linger| worker.linger(linger.0));
    let worker = upkeep.iter().fold(worker, |worker, upkeep| worker.upkeep(upkeep.0.max(Duration::from_secs(1))));
    // A signal received from this point on stops the workers gracefully. An earlier signal ends the process immediately.
    let stopped = shutdown_signal();
    let stop = async move {
        stopped.await;
        notify_supervisor("STOPPING=1");
    };
    for hook in ready {
        hook();
    }
    notify_supervisor("READY=1");
    let places: Vec<_> = members.iter().map(|member| (member.pool(), member.store())).collect();
    let checking = of_all.warn_of_unused(&places);
    let tending = opened.stores.tend(tend.map_or(DEFAULT_INTERVAL, |tend| tend.0.max(MIN_INTERVAL)));
    let finding = reconnect_lost((settings, is_migrated), opened.stores.clone(), std::mem::take(&mut opened.lost));
    tokio::select! {
        ran = worker.run(stop) => ran?,
        // `tending` and `finding` never complete, so the command ends only when the worker ends.
        _ = async { tokio::join!(tending, finding, checking) } => {}
    }
    opened.close().await;
    Ok(())
}

/// Migrates all stores. A failure is logged, and the failed store gets no worker until its schema is up to date.
async fn migrate_all(stores: &Stores) {
    for member in stores.roster().all().iter() {
        match migrate_store(member).await {
            Ok(applied) if applied.is_empty() => {}
            Ok(applied) => tracing::info!(store = member.name(), schema = member.store().schema(), migrations = applied.len(), "migrated"),
            Err(error) => tracing::warn!(store = member.name(), %error, "store migration failed"),
        }
    }
}

/// Reconnects to the databases that were unavailable at startup, and adds each database once it is available.
async fn reconnect_lost((settings, is_migrated): (&Settings, bool), stores: Stores, mut lost: BTreeMap<String, String>) {
    for (database, error) in &lost {
        tracing::warn!(database, error, "database unavailable: its stores wait, others continue; retrying");
    }
    let addresses = settings.stores.databases().map(|named| named.others).unwrap_or_default();
    let mut found = Vec::new();
    while !lost.is_empty() {
        sleep(RETRY_INTERVAL).await;
        for name in lost.keys().cloned().collect::<Vec<_>>() {
            let Some(url) = addresses.get(&name) else { continue };
            let connect = settings.worker.pool(Database::options()).url(url).connect();
            let Ok(Ok(database)) = timeout(RETRY_INTERVAL, connect).await else { continue };
            if stores.clone().database(&name, database.pool()).is_ok() {
                tracing::info!(database = name, "database available again");
                lost.remove(&name);
                found.push(database);
                if is_migrated {
                    // `migrate` has already logged the error. If `refresh` fails, the list of stores is reloaded at the next interval.
                    let _ = stores.migrate().await;
                    let _ = stores.refresh().await;
                    migrate_all(&stores).await;
                }
            }
        }
    }
    pending::<()>().await;
}

//! `run`: one worker process over all stores, which tends to them besides, until a signal.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use queue_core::stores::Stores;
use tokio::time::{sleep, timeout};

use super::{
    known::bring_up,
    open::{Opened, records},
    settings::{StoresSettings, StoresWorkerSettings},
};
use crate::{
    cli::{
        open::open_patiently,
        problem::{BoxError, Problem},
        settings::Settings,
    },
    live::{Database, shutdown_signal, tell_supervisor},
    stores::StoresWorker,
    worker::Worker,
};

/// How often it is looked which stores there are, unless it is said.
const TEND: Duration = Duration::from_secs(5);

/// No more often than so.
const SOONEST: Duration = Duration::from_millis(100);

/// How often a database that is out of reach is tried again.
const AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn run(settings: &Settings, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<(), Problem> {
    let config = settings.config()?;
    #[cfg(feature = "health")]
    if settings.worker.health.is_some() {
        return Err(Problem::usage("a worker of many stores answers no health checks; leave out `--health` (QUEUE_HEALTH)"));
    }
    let mut opened = Opened::unread(settings, open_patiently(settings, config.on_standby).await?)?;
    opened.reach(settings, |_| true).await?;
    let is_migrated = settings.worker.migrate() || opened.home.is_embedded();
    if is_migrated {
        // The log says which database it is. Without those of the home nothing is read below.
        let _ = opened.stores.migrate().await;
    }
    opened.records = records(settings, &opened.stores).await?;
    opened.meet(settings).await?;
    for trouble in &opened.failed {
        tracing::warn!(store = trouble.store, error = trouble.error, "this store does not work: its jobs wait; others go on");
    }
    if is_migrated {
        bring_all_up(&opened.stores).await;
    }
    let worker = Worker::new(opened.home.pool().clone()).config(config);
    let (prepared, ready) = prepare(worker).await?.into_prepared()?;
    let (prepared, members) = (Arc::new(prepared), opened.stores.roster().all());
    let of_all = Arc::clone(&prepared);
    // Of these stores only the home's may have a pooler in front of them.
    let (home, direct) = (opened.home.pool().clone(), opened.home.direct().clone());
    let worker = StoresWorker::new(opened.stores.roster(), move |member, _| {
        let is_home = Arc::ptr_eq(&home.connect_options(), &member.pool().connect_options());
        let worker = prepared.worker(member.pool().clone());
        if is_home { worker.direct(&direct) } else { worker }
    });
    let StoresSettings { worker: StoresWorkerSettings { slots, linger, upkeep, tend }, .. } = &settings.stores;
    let worker = slots.iter().fold(worker, |worker, slots| worker.slots(slots.get() as usize));
    let worker = linger.iter().fold(worker, |worker, linger| worker.linger(linger.0));
    let worker = upkeep.iter().fold(worker, |worker, upkeep| worker.upkeep(upkeep.0.max(Duration::from_secs(1))));
    // Heard from here on, as in `run`.
    let stopped = shutdown_signal();
    let told = async move {
        stopped.await;
        tell_supervisor("STOPPING=1");
    };
    for hook in ready {
        hook();
    }
    tell_supervisor("READY=1");
    let places: Vec<_> = members.iter().map(|member| (member.pool(), member.store())).collect();
    let checking = of_all.warn_of_unused(&places);
    let tending = opened.stores.tend(tend.map_or(TEND, |tend| tend.0.max(SOONEST)));
    let finding = find_lost((settings, is_migrated), opened.stores.clone(), std::mem::take(&mut opened.lost));
    tokio::select! {
        ran = worker.run(told) => ran?,
        // The first two go on for ever.
        _ = async { tokio::join!(tending, finding, checking) } => {}
    }
    opened.close().await;
    Ok(())
}

/// One that cannot be brought up to date is told of, and does not work; the others do.
async fn bring_all_up(stores: &Stores) {
    for member in stores.roster().all().iter() {
        match bring_up(member).await {
            Ok(applied) if applied.is_empty() => {}
            Ok(applied) => tracing::info!(store = member.name(), schema = member.store().schema(), migrations = applied.len(), "migrated"),
            Err(error) => tracing::warn!(store = member.name(), %error, "this store cannot be brought up to date"),
        }
    }
}

/// Tries again and again to reach the databases that were out of reach at the start, and adds them once they are not.
async fn find_lost((settings, is_migrated): (&Settings, bool), stores: Stores, mut lost: BTreeMap<String, String>) {
    for (database, error) in &lost {
        tracing::warn!(database, error, "this database is out of reach: its stores wait, others go on; trying again");
    }
    let addresses = settings.stores.databases().map(|named| named.others).unwrap_or_default();
    let mut found = Vec::new();
    while !lost.is_empty() {
        sleep(AGAIN).await;
        for name in lost.keys().cloned().collect::<Vec<_>>() {
            let Some(url) = addresses.get(&name) else { continue };
            let connect = settings.worker.pool(Database::options()).url(url).connect();
            let Ok(Ok(database)) = timeout(AGAIN, connect).await else { continue };
            if stores.clone().database(&name, database.pool()).is_ok() {
                tracing::info!(database = name, "this database can be reached again");
                lost.remove(&name);
                found.push(database);
                if is_migrated {
                    // What fails is told of, and is looked at again with the stores.
                    let _ = stores.migrate().await;
                    let _ = stores.refresh().await;
                    bring_all_up(&stores).await;
                }
            }
        }
    }
    pending::<()>().await;
}

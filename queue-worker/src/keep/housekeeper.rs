//! Housekeeping of a worker. The housekeeper recovers the jobs of workers whose heartbeat has expired, cancels running jobs on request, and
//! prunes the store.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use queue_core::{
    Queue, Store,
    operate::Unserved,
    options::Options,
    runner::{program_name, verify_worker},
};
use tokio::sync::watch;
use uuid::Uuid;

use super::{
    expire::ExpiryFloor,
    promote::wake_others,
    prune::PruneTask,
    publish::publish,
    recover::{RecoveredJobs, limit_heartbeats, load_own_leases, recover, return_leases},
    tick::any_schedule,
    unblock::probe_hints,
};
use crate::{
    error::warn_throttled,
    lanes::LeaseRegistry,
    live::{Config, Identity, LoopHealth, StoreConnection, bounded},
    run::Queues,
};

/// Connection and state of the housekeeping loop.
pub(crate) struct Housekeeper {
    pub(crate) link: StoreConnection,
    pub(crate) config: Config,
    pub(crate) queues: Arc<Queues>,
    /// Registry of this worker's leases.
    pub(crate) leases: LeaseRegistry,
    pub(crate) identity: watch::Receiver<Identity>,
}

impl Housekeeper {
    /// Returns a housekeeper with the same settings and registries, but a new connection.
    pub(crate) fn another(&self) -> Self {
        Self {
            link: self.link.another(),
            config: self.config.clone(),
            queues: Arc::clone(&self.queues),
            leases: self.leases.clone(),
            identity: self.identity.clone(),
        }
    }
}

/// Runs the housekeeping loop. About every second, the loop recovers the jobs of workers whose heartbeat has expired. About every second
/// and on notification, the loop checks this worker's leases for cancelled jobs and for claims whose response was lost. Four times per
/// lease TTL, the loop corrects heartbeat times that lie in the future. The loop also probes for hints, overdue jobs and schedules, and
/// reports stuck handlers and jobs that no worker serves.
pub(crate) async fn run_housekeeper(mut housekeeper: Housekeeper) {
    let pause = (housekeeper.config.lease_ttl / 10).min(Duration::from_secs(1));
    let mut next = Instant::now();
    // The first check for unserved jobs waits until workers that started at the same time have registered.
    let mut unserved_at = next + housekeeper.config.lease_ttl;
    let (mut schedules, mut heartbeats_at) = (next, next);
    // Lower bound of the scan for overdue jobs.
    let mut expiries = ExpiryFloor::default();
    loop {
        // Each step handles its own errors, so a failed step does not affect the other steps.
        if let Err(error) = check_own_leases(&mut housekeeper).await {
            warn_throttled(&error, "cannot check this worker's leases; retrying");
        }
        if Instant::now() >= next {
            if Instant::now() >= heartbeats_at {
                if let Err(error) = correct_heartbeats(&mut housekeeper).await {
                    warn_throttled(&error, "cannot check for worker heartbeats in the future; retrying");
                }
                heartbeats_at = Instant::now() + housekeeper.config.lease_ttl / 4;
            }
            if let Err(error) = recover_silent(&mut housekeeper).await {
                warn_throttled(&error, "cannot recover jobs of silent workers; retrying");
            }
            if let Err(error) = check_hints(&mut housekeeper, &mut expiries).await {
                warn_throttled(&error, "cannot check for ordering keys to unblock and jobs to expire; retrying");
            }
        }
        if Instant::now() >= next {
            for slots in housekeeper.queues.all() {
                slots.report_stuck();
            }
            if Instant::now() >= schedules {
                if let Err(error) = check_schedules(&mut housekeeper).await {
                    warn_throttled(&error, "cannot check for schedules; retrying");
                }
                schedules = Instant::now() + SCHEDULE_POLL_INTERVAL;
            }
            if Instant::now() >= unserved_at {
                warn_unserved(&mut housekeeper).await;
                unserved_at = Instant::now() + Duration::from_mins(1);
            }
            next = Instant::now() + pause.mul_f64(0.75 + 0.25 * fastrand::f64());
        }
        let _ = tokio::time::timeout_at(next.into(), housekeeper.queues.context.notifier.wait_for_control()).await;
    }
}

/// Cancels the handlers of cancelled jobs, and releases leases that are unknown to this worker.
async fn check_own_leases(housekeeper: &mut Housekeeper) -> sqlx::Result<()> {
    let Housekeeper { link, config, queues, leases, identity } = housekeeper;
    let own = *identity.borrow();
    if let Some(worker) = own {
        let found = load_own_leases(link.get().await?, config.store, worker).await;
        let found = link.note(found)?;
        for (token, id) in found.iter().filter_map(|(token, id)| Some((*token, (*id)?))) {
            for not_begun in queues.all().iter().filter_map(|slots| slots.cancel(token, id)) {
                // Sending fails only if the worker has ended. Recovery then cancels the job.
                let _ = queues.context.settle.send(not_begun).await;
            }
        }
        // A lease is unknown to this worker if the response to the claim was lost, or if the server executed a claim that the worker had
        // already abandoned. Every lease is registered before its claim is sent, so an unknown lease is not in use.
        let mut strays: Vec<Uuid> = found.into_iter().map(|(token, _)| token).filter(|token| !leases.knows(*token)).collect();
        if !strays.is_empty() {
            // A lease that ended after the first query is no longer registered and therefore also appears unknown. The second query
            // excludes such leases.
            let left = load_own_leases(link.get().await?, config.store, worker).await;
            let left: HashSet<Uuid> = link.note(left)?.into_iter().map(|(token, _)| token).collect();
            strays.retain(|token| left.contains(token));
        }
        // If the worker's identity has changed, its handlers have been dropped, and recovery handles the leases of the old identity.
        if *identity.borrow() != own {
            return Ok(());
        }
        if !strays.is_empty() {
            tracing::warn!(
                leases = strays.len(),
                "returned leases that were claimed for this worker but unknown to it, such as claims whose answer was lost"
            );
            let given_back = return_leases(link.get().await?, config.store, &strays).await;
            link.note(given_back)?;
            queues.context.notifier.request_probe();
        }
    }
    Ok(())
}

/// Warns about ready jobs that no worker serves.
async fn warn_unserved(housekeeper: &mut Housekeeper) {
    const MAX_LINES: usize = 20;
    let Housekeeper { link, config, .. } = housekeeper;
    let found = match link.get().await {
        Ok(connection) => bounded(async { Queue::on(connection).store(config.store).unserved().await.map_err(sqlx_error) }).await,
        Err(error) => Err(error),
    };
    match link.note(found) {
        Ok(found) => {
            for Unserved { queue, job_type, version, jobs, .. } in found.iter().filter(|unserved| unserved.jobs > 0).take(MAX_LINES) {
                if *version > 1 {
                    let why =
                        "ready jobs that no live worker serves; start a worker with this queue, and with this version of the job type";
                    tracing::warn!(queue, job_type, version, jobs, "{why}");
                } else {
                    tracing::warn!(
                        queue,
                        job_type,
                        jobs,
                        "ready jobs that no live worker serves; start a worker with this queue and job type"
                    );
                }
            }
            if let Some(more) = found.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
                tracing::warn!(more, "more queues and job types have ready jobs that no worker serves; see `stats`");
            }
        }
        Err(error) => warn_throttled(&error, "cannot check for ready jobs that no worker serves; retrying"),
    }
}

fn sqlx_error(error: queue_core::Error) -> sqlx::Error {
    match error {
        queue_core::Error::Database(error) => error,
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

/// Corrects heartbeat times that lie in the future because the database clock was set back. Such times make dead workers appear alive.
async fn correct_heartbeats(housekeeper: &mut Housekeeper) -> sqlx::Result<()> {
    let Housekeeper { link, config, .. } = housekeeper;
    let limited = limit_heartbeats(link.get().await?, config.store).await;
    link.note(limited)
}

async fn recover_silent(housekeeper: &mut Housekeeper) -> sqlx::Result<()> {
    let Housekeeper { link, config, queues, .. } = housekeeper;
    let recovered = bounded(recover(link.get().await?, config.store)).await;
    let recovered = link.note(recovered)?;
    if !recovered.is_empty() {
        let jobs: i64 = recovered.iter().map(|of| of.jobs).sum();
        tracing::warn!(jobs, "recovered the jobs of a worker that went silent");
        for RecoveredJobs { queue, job_type, jobs, dead, cancelled, .. } in &recovered {
            let dead = dead.as_ref().map_or(0, |dead| dead.len() as i64);
            queues.context.metrics.record_crashed(queue, queues.present_name(job_type), [*jobs, dead, *cancelled]);
        }
        for job in recovered.iter().filter_map(|of| of.dead.as_ref()).flatten() {
            let error = "the process ended during the attempt";
            tracing::warn!(%job, error, "dead letter; fix the cause, then `{} requeue {job}`", program_name());
        }
        let names: Vec<String> = recovered.into_iter().map(|of| of.queue).collect::<BTreeSet<_>>().into_iter().collect();
        let woken = wake_others(link.get().await?, config.store, &names).await;
        link.note(woken)?;
        queues.context.notifier.request_probe();
        queues.context.notifier.notify_finished();
    }
    Ok(())
}

async fn check_hints(housekeeper: &mut Housekeeper, expiries: &mut ExpiryFloor) -> sqlx::Result<()> {
    let Housekeeper { link, config, queues, .. } = housekeeper;
    let began = Instant::now();
    let found = match link.get().await {
        Ok(connection) => probe_hints(connection, config.store, expiries.floor(began)).await,
        Err(error) => Err(error),
    };
    let (keys, expiry) = link.note(found).inspect_err(|_| *expiries = ExpiryFloor::default())?;
    expiries.record(began, expiry);
    if keys {
        queues.context.notifier.notify_keys();
    }
    if expiry.is_some() {
        queues.context.notifier.notify_expiries();
    }
    Ok(())
}

/// Interval between checks for schedules in the store. The checks find the first schedule even if its notification is lost.
const SCHEDULE_POLL_INTERVAL: Duration = Duration::from_secs(15);

async fn check_schedules(housekeeper: &mut Housekeeper) -> sqlx::Result<()> {
    let Housekeeper { link, config, queues, .. } = housekeeper;
    let any = any_schedule(link.get().await?, config.store).await;
    if link.note(any)? {
        queues.context.notifier.notify_schedules();
    }
    Ok(())
}

/// Prunes the store about once a minute. Pruning has a separate loop, because a round may take a long time. The connection is closed
/// between rounds. Each round first checks the login's access to the store.
///
/// In a distributed store (Citus), partitions are created and dropped on the coordinator. `days` is the connection to the coordinator,
/// and `None` for other stores.
pub(crate) async fn run_pruning(
    (mut link, mut days): (StoreConnection, Option<StoreConnection>),
    config: Config,
    types: Vec<(&'static str, Options)>,
    (loop_health, first): (LoopHealth, Duration),
) {
    let anywhere = Config { store: config.store.anywhere(), ..config.clone() };
    let mut published = false;
    // The start of the loop counts as a successful round, so that the metric `queue.prune.age` also grows if pruning never succeeds.
    loop_health.pruned.set();
    tokio::time::sleep(first).await;
    loop {
        check_login(&mut link, config.store, &loop_health).await;
        if !published {
            let written = match link.get().await {
                Ok(connection) => publish(connection, config.store, &types).await,
                Err(error) => Err(error),
            };
            match link.note(written) {
                Ok(()) => published = true,
                Err(error) => warn_throttled(&error, "cannot publish the options of job types; retrying"),
            }
        }
        let mut all = true;
        for task in PruneTask::ALL {
            let (link, config) = match &mut days {
                Some(days) if task.is_partition_task() => (days, &anywhere),
                _ => (&mut link, &config),
            };
            let done = match link.get().await {
                Ok(connection) => task.run(connection, config).await,
                Err(error) => Err(error),
            };
            // A failed task is retried in the next round, not immediately, because waiting for a lock on a partition blocks producers.
            if let Err(error) = link.note(done) {
                // If the login lacks access to the store, `check_login` has already logged the cause.
                if loop_health.no_access.age().is_none() {
                    warn_throttled(&error, task.failure_message());
                }
                all = false;
            }
        }
        if all {
            loop_health.pruned.set();
        }
        loop_health.prunes.fetch_add(1, Relaxed);
        for link in std::iter::once(&mut link).chain(&mut days) {
            let idle = link.another();
            std::mem::replace(link, idle).close().await;
        }
        tokio::time::sleep(Duration::from_mins(1).mul_f64(0.9 + 0.2 * fastrand::f64()) / config.pace).await;
    }
}

/// Checks the login's access to the store. If rows are hidden or unreadable, logs the cause with a fix and marks the worker as not ready.
async fn check_login(link: &mut StoreConnection, store: Store, loop_health: &LoopHealth) {
    let found = match link.get().await {
        Ok(connection) => bounded(async { split_database_error(verify_worker(connection, store).await) }).await,
        Err(error) => Err(error),
    };
    match link.note(found) {
        Ok(Ok(())) => loop_health.no_access.clear(),
        Ok(Err(error)) => {
            loop_health.no_access.set_first();
            tracing::error!(%error, "the login lacks access to parts of the store; checking again in a minute");
        }
        Err(error) => warn_throttled(&error, "cannot check the login's access to the store; retrying in a minute"),
    }
}

/// Moves database errors to the outer result. The inner result then contains only access problems as errors.
fn split_database_error<T>(result: Result<T, queue_core::Error>) -> sqlx::Result<Result<T, queue_core::Error>> {
    match result {
        Err(queue_core::Error::Database(error)) => Err(error),
        other => Ok(other),
    }
}

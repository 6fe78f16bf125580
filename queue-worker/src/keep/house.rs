//! What a worker does beside claiming: recovers the jobs of silent workers, tells handlers whose jobs were cancelled, prunes.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use queue_core::{
    Options, Store,
    operate::{Unserved, unserved},
    runner::verify_worker,
};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::{
    expire::Floor,
    promote::wake_others,
    prune::Chore,
    publish::publish,
    recover::{Recovered, give_back, limit_beats, own_leases, recover},
    tick::any_schedule,
    unblock::hinted,
};
use crate::{
    error::complain,
    lanes::LeaseRegistry,
    live::{Bell, Config, Identity, Link, Vitals, bounded},
    run::Queues,
    settle::Settlement,
    tally::Tallies,
};

/// What housekeeping works with.
pub(crate) struct House {
    pub(crate) link: Link,
    pub(crate) config: Config,
    pub(crate) queues: Arc<Queues>,
    /// What this worker knows of what it holds.
    pub(crate) held: LeaseRegistry,
    pub(crate) bell: Arc<Bell>,
    pub(crate) identity: watch::Receiver<Identity>,
    pub(crate) settle: mpsc::Sender<Settlement>,
    pub(crate) tallies: Tallies,
}

impl House {
    /// The same over another link.
    pub(crate) fn another(&self) -> Self {
        Self {
            link: self.link.another(),
            config: self.config.clone(),
            queues: Arc::clone(&self.queues),
            held: self.held.clone(),
            bell: Arc::clone(&self.bell),
            identity: self.identity.clone(),
            settle: self.settle.clone(),
            tallies: self.tallies.clone(),
        }
    }
}

/// Recovers about every second; four times a ttl it sees that no clock that stepped back hides the dead. Looks over this worker's own
/// leases about every second, and whenever it is notified: for jobs that were cancelled, and for claims that it never heard of. Reports
/// handlers that are stuck.
pub(crate) async fn keep_house(mut house: House) {
    let pause = (house.config.lease_ttl / 10).min(Duration::from_secs(1));
    let mut next = Instant::now();
    // Not at once: workers that were started together with this one are announced by then.
    let mut look = next + house.config.lease_ttl;
    let (mut schedules, mut beats) = (next, next);
    // From where on it looks for jobs that expire.
    let mut expiries = Floor::default();
    loop {
        // Each without the others: what one of them meets does not stop the rest.
        if let Err(error) = look_over_own(&mut house).await {
            complain(&error, "cannot look over this worker's leases; trying again");
        }
        if Instant::now() >= next {
            if Instant::now() >= beats {
                if let Err(error) = look_for_beats(&mut house).await {
                    complain(&error, "cannot see now whether workers are said to live for too long; trying again");
                }
                beats = Instant::now() + house.config.lease_ttl / 4;
            }
            if let Err(error) = take_back(&mut house).await {
                complain(&error, "cannot recover now; trying again");
            }
            if let Err(error) = look_for_hints(&mut house, &mut expiries).await {
                complain(&error, "cannot see now whether ordering keys may go on and jobs expire; trying again");
            }
        }
        if Instant::now() >= next {
            for slots in house.queues.all() {
                slots.report_stuck();
            }
            if Instant::now() >= schedules {
                if let Err(error) = look_for_schedules(&mut house).await {
                    complain(&error, "cannot see now whether there are schedules; trying again");
                }
                schedules = Instant::now() + SCHEDULES;
            }
            if Instant::now() >= look {
                tell_unserved(&mut house).await;
                look = Instant::now() + Duration::from_mins(1);
            }
            next = Instant::now() + pause.mul_f64(0.75 + 0.25 * fastrand::f64());
        }
        let _ = tokio::time::timeout_at(next.into(), house.bell.control()).await;
    }
}

/// Tells handlers whose jobs were cancelled, and gives back what was claimed in our name and we know nothing of.
async fn look_over_own(house: &mut House) -> sqlx::Result<()> {
    let House { link, config, queues, held, bell, identity, settle, .. } = house;
    let us = *identity.borrow();
    if let Some(worker) = us {
        let found = own_leases(link.get().await?, config.store, worker).await;
        let found = link.note(found)?;
        for (token, id) in found.iter().filter_map(|(token, id)| Some((*token, (*id)?))) {
            for not_begun in queues.all().iter().filter_map(|slots| slots.cancel(token, id)) {
                // Fails only when the worker has ended; then the job is recovered, and cancelled by that.
                let _ = settle.send(not_begun).await;
            }
        }
        // A claim whose answer was lost, or that happened after we gave it up. What we hold was known before its claim was sent.
        let mut strays: Vec<Uuid> = found.into_iter().map(|(token, _)| token).filter(|token| !held.knows(*token)).collect();
        if !strays.is_empty() {
            // What has ended since it was read is gone by now.
            let left = own_leases(link.get().await?, config.store, worker).await;
            let left: HashSet<Uuid> = link.note(left)?.into_iter().map(|(token, _)| token).collect();
            strays.retain(|token| left.contains(token));
        }
        // If this worker has started over meanwhile, its handlers were dropped, with what they held: those leases are for recovery.
        if *identity.borrow() != us {
            return Ok(());
        }
        if !strays.is_empty() {
            tracing::warn!(leases = strays.len(), "claimed for this worker, which never heard of it: given back");
            let given_back = give_back(link.get().await?, config.store, &strays).await;
            link.note(given_back)?;
            bell.ring();
        }
    }
    Ok(())
}

/// Says which ready jobs wait for nobody.
async fn tell_unserved(house: &mut House) {
    const LINES: usize = 20;
    let House { link, config, .. } = house;
    let found = match link.get().await {
        Ok(connection) => bounded(async { unserved(connection, config.store).await.map_err(sqlx_error) }).await,
        Err(error) => Err(error),
    };
    match link.note(found) {
        Ok(found) => {
            for Unserved { queue, job_type, version, jobs, .. } in found.iter().filter(|unserved| unserved.jobs > 0).take(LINES) {
                if *version > 1 {
                    let why = "ready jobs that no living worker serves; start one with this queue, and with this version of the job type";
                    tracing::warn!(queue, job_type, version, jobs, "{why}");
                } else {
                    tracing::warn!(
                        queue,
                        job_type,
                        jobs,
                        "ready jobs that no living worker serves; start one with this queue and job type"
                    );
                }
            }
            if let Some(more) = found.len().checked_sub(LINES).filter(|more| *more > 0) {
                tracing::warn!(more, "further queues and job types have such jobs; see `stats`");
            }
        }
        Err(error) => complain(&error, "cannot see now whether ready jobs wait for nobody; trying again"),
    }
}

fn sqlx_error(error: queue_core::Error) -> sqlx::Error {
    match error {
        queue_core::Error::Database(error) => error,
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

/// A clock that stepped back makes the dead seem to live.
async fn look_for_beats(house: &mut House) -> sqlx::Result<()> {
    let House { link, config, .. } = house;
    let limited = limit_beats(link.get().await?, config.store).await;
    link.note(limited)
}

async fn take_back(house: &mut House) -> sqlx::Result<()> {
    let House { link, config, bell, queues, tallies, .. } = house;
    let recovered = bounded(recover(link.get().await?, config.store)).await;
    let recovered = link.note(recovered)?;
    if !recovered.is_empty() {
        let jobs: i64 = recovered.iter().map(|of| of.jobs).sum();
        tracing::warn!(jobs, "recovered the jobs of a worker that went silent");
        for Recovered { queue, job_type, jobs, dead, cancelled, .. } in &recovered {
            let dead = dead.as_ref().map_or(0, |dead| dead.len() as i64);
            tallies.note_crashed(queue, queues.present_name(job_type), [*jobs, dead, *cancelled]);
        }
        for job in recovered.iter().filter_map(|of| of.dead.as_ref()).flatten() {
            tracing::warn!(%job, error = "the process ended during the attempt", "dead letter; fix the cause, then `requeue {job}`");
        }
        let queues: Vec<String> = recovered.into_iter().map(|of| of.queue).collect::<BTreeSet<_>>().into_iter().collect();
        let woken = wake_others(link.get().await?, config.store, &queues).await;
        link.note(woken)?;
        bell.ring();
        bell.note_over();
    }
    Ok(())
}

async fn look_for_hints(house: &mut House, expiries: &mut Floor) -> sqlx::Result<()> {
    let House { link, config, bell, .. } = house;
    let began = Instant::now();
    let found = match link.get().await {
        Ok(connection) => hinted(connection, config.store, expiries.floor(began)).await,
        Err(error) => Err(error),
    };
    let (keys, expiry) = link.note(found).inspect_err(|_| *expiries = Floor::default())?;
    expiries.looked(began, expiry);
    if keys {
        bell.tell_keys();
    }
    if expiry.is_some() {
        bell.tell_expiries();
    }
    Ok(())
}

/// A worker that knows of no schedule is told of the first, and asks this often in case it was not.
const SCHEDULES: Duration = Duration::from_secs(15);

async fn look_for_schedules(house: &mut House) -> sqlx::Result<()> {
    let House { link, config, bell, .. } = house;
    let any = any_schedule(link.get().await?, config.store).await;
    if link.note(any)? {
        bell.tell_schedules();
    }
    Ok(())
}

/// Pruning every minute, on a connection that is there only meanwhile: it may take long, and nothing else is to wait for it. First it looks
/// whether the login may still see and use the store.
///
/// Where another node makes and drops tables, that is asked to over a link of its own.
pub(crate) async fn keep_pruned(
    (mut link, mut days): (Link, Option<Link>),
    config: Config,
    types: Vec<(&'static str, Options)>,
    (vitals, first): (Vitals, Duration),
) {
    let anywhere = Config { store: config.store.anywhere(), ..config.clone() };
    let mut told = false;
    // Where nothing can be pruned from the beginning, that is told after as long as where it fails later.
    vitals.pruned.set();
    tokio::time::sleep(first).await;
    loop {
        look_at_login(&mut link, config.store, &vitals).await;
        if !told {
            let written = match link.get().await {
                Ok(connection) => publish(connection, config.store, &types).await,
                Err(error) => Err(error),
            };
            match link.note(written) {
                Ok(()) => told = true,
                Err(error) => complain(&error, "cannot say how long job types are kept, and where they go; trying again"),
            }
        }
        let mut all = true;
        for chore in Chore::ALL {
            let (link, config) = match &mut days {
                Some(days) if chore.is_of_days() => (days, &anywhere),
                _ => (&mut link, &config),
            };
            let done = match link.get().await {
                Ok(connection) => chore.run(connection, config).await,
                Err(error) => Err(error),
            };
            // Tried again only later: what stands in the way of a partition is waited for at the cost of producers.
            if let Err(error) = link.note(done) {
                // Missing access to the store has been logged already.
                if vitals.no_access.age().is_none() {
                    complain(&error, chore.failed());
                }
                all = false;
            }
        }
        if all {
            vitals.pruned.set();
        }
        vitals.prunes.fetch_add(1, Relaxed);
        for link in std::iter::once(&mut link).chain(&mut days) {
            let idle = link.another();
            std::mem::replace(link, idle).close().await;
        }
        tokio::time::sleep(Duration::from_mins(1).mul_f64(0.9 + 0.2 * fastrand::f64()) / config.pace).await;
    }
}

/// Rows that are hidden or may not be read fail statements; the log says why, and what to do.
async fn look_at_login(link: &mut Link, store: Store, vitals: &Vitals) {
    let found = match link.get().await {
        Ok(connection) => bounded(async { heard(verify_worker(connection, store).await) }).await,
        Err(error) => Err(error),
    };
    match link.note(found) {
        Ok(Ok(())) => vitals.no_access.clear(),
        Ok(Err(error)) => {
            vitals.no_access.set_first();
            tracing::error!(%error, "this worker may not see or use all of its store; looking again in a minute");
        }
        Err(error) => complain(&error, "cannot see now whether rows of the store are hidden; trying again in a minute"),
    }
}

/// A failure of the database apart from what it said.
fn heard<T>(result: Result<T, queue_core::Error>) -> sqlx::Result<Result<T, queue_core::Error>> {
    match result {
        Err(queue_core::Error::Database(error)) => Err(error),
        other => Ok(other),
    }
}

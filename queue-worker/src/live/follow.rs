//! Follows the database when it moves to another host. The current host is checked periodically. If the current host does not respond or
//! no longer meets the requirements in the URL, this module searches for another host and redirects the pools. The worker's dedicated
//! connections detect the redirection and reconnect on their next use.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::{sleep, timeout};

use super::{
    Engine,
    fresh::{PoolFreshness, query_server_state},
    hosts::{GoodHost, Hosts},
};
use crate::error::Error;

/// Pools to redirect when the database moves to another host, with the state that shows which connections are still usable.
#[derive(Clone, Default)]
pub(super) struct Pools(Arc<Mutex<Vec<(PgPool, PoolFreshness)>>>);

/// Interval between checks of the current host.
const BEAT: Duration = Duration::from_millis(500);

/// Timeout for checking a host and for closing a connection.
const SILENCE: Duration = Duration::from_secs(2);

/// Initial interval between searches while no host qualifies. The interval grows during an outage, up to [`LONGEST`], to limit the load
/// from searching processes. Jitter of up to half the interval is added or subtracted.
const AGAIN: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(1);

/// Interval between log lines while no host qualifies.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between checks of the other hosts while the current host works. Another host may have been promoted while the current host
/// still runs as a primary.
const ROUND: Duration = Duration::from_secs(10);

impl Pools {
    pub(super) fn add(&self, pool: &PgPool, fresh: &PoolFreshness) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((pool.clone(), fresh.clone()));
    }

    fn lead_to(&self, found: &GoodHost) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|(pool, _)| !pool.is_closed());
        for (pool, fresh) in pools.iter() {
            pool.set_connect_options(found.options.clone());
            fresh.renew();
        }
    }

    fn are_closed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|(pool, _)| pool.is_closed())
    }
}

/// Starts a dedicated thread that follows the database to other hosts until all pools are closed. On a shared thread, a blocking handler
/// could delay the checks.
pub(super) fn start(hosts: Hosts, pools: Pools, found: GoodHost) -> Result<(), Error> {
    let engine = Engine::start("queue hosts").map_err(|error| Error::Thread(error.to_string()))?;
    let handle = engine.handle().clone();
    handle.spawn(async move {
        follow(&hosts, &pools, found.connection).await;
        drop(engine);
    });
    Ok(())
}

async fn follow(hosts: &Hosts, pools: &Pools, connection: PgConnection) {
    let mut present = Some(connection);
    let mut round = Instant::now() + ROUND;
    while !pools.are_closed() {
        sleep(BEAT).await;
        if is_well(hosts, &mut present).await && Instant::now() < round {
            continue;
        }
        let well = present.is_some();
        if !well {
            tracing::warn!(
                host = hosts.place(hosts.present()),
                "the database does not answer or no longer accepts writes: querying its other hosts"
            );
        }
        if let Some(found) = find_host(hosts, pools, well).await {
            // A host that failed its check may have restarted and closed all connections. The pools are then redirected even if the
            // search returns the same host, because a redirection invalidates their connections.
            if found.nth != hosts.present() || !well {
                pools.lead_to(&found);
                hosts.set_present(found.nth);
                tracing::warn!(host = hosts.place(found.nth), "connected to another host of the database");
            }
            if let Some(before) = present.replace(found.connection) {
                let _ = timeout(SILENCE, before.close()).await;
            }
        }
        round = Instant::now() + ROUND.mul_f64(0.75 + 0.5 * fastrand::f64());
    }
    if let Some(connection) = present {
        let _ = timeout(SILENCE, connection.close()).await;
    }
}

/// Returns whether the current host responds and still meets the requirements in the database URL.
async fn is_well(hosts: &Hosts, present: &mut Option<PgConnection>) -> bool {
    let Some(connection) = present else { return false };
    let well = timeout(SILENCE, query_server_state(connection))
        .await
        .is_ok_and(|state| state.is_ok_and(|state| hosts.address().wanted.takes(state)));
    if !well {
        *present = None;
    }
    well
}

/// Returns the host to use. If the current host works, searches only once and returns `None` if the search fails. Otherwise, repeats the
/// search until a host qualifies, and returns `None` once all pools are closed.
async fn find_host(hosts: &Hosts, pools: &Pools, well: bool) -> Option<GoodHost> {
    let (began, mut warned_at) = (Instant::now(), None::<Instant>);
    if well {
        return hosts.find_better().await.ok();
    }
    while !pools.are_closed() {
        match hosts.find().await {
            Ok(found) => return Some(found),
            Err(error) => {
                if warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    tracing::warn!("{error}");
                    warned_at = Some(Instant::now());
                }
            }
        }
        sleep((began.elapsed() / 20).clamp(AGAIN, LONGEST).mul_f64(0.5 + fastrand::f64())).await;
    }
    None
}

//! Going along when the database moves: asks the present host again and again, looks at the others when it does not answer or takes no writes any more, and
//! leads the pools to the one that does. What is connected elsewhere comes after: a worker's own connections see at their next use that their pool leads to
//! another host, and are made anew.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::{sleep, timeout};

use super::{
    Engine,
    fresh::{Fresh, ask},
    hosts::{GoodHost, Hosts},
};
use crate::error::Error;

/// The pools that are led to the host that is worked on; each with what is known of its connections.
#[derive(Clone, Default)]
pub(super) struct Pools(Arc<Mutex<Vec<(PgPool, Fresh)>>>);

/// How often the present host is asked: half of what may pass until it is known that it is gone.
const BEAT: Duration = Duration::from_millis(500);

/// So long it may take to answer.
const SILENCE: Duration = Duration::from_secs(2);

/// How soon all are asked again while none will do: less often the longer that lasts, for everybody does it.
const AGAIN: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(1);

/// So often it is told that none will do.
const TOLD: Duration = Duration::from_secs(10);

/// How often the others are asked while the present one is well: one of them may have been promoted, and the present one not know.
const ROUND: Duration = Duration::from_secs(10);

impl Pools {
    pub(super) fn add(&self, pool: &PgPool, fresh: &Fresh) {
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

/// Follows until all pools are closed: on a thread of its own, so that no handler that blocks its thread holds it up.
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
                "the database does not answer there or takes no writes any more: looking at its other hosts"
            );
        }
        if let Some(found) = look(hosts, pools, well).await {
            // That of before may have been made before a restart.
            if found.nth != hosts.present() || !well {
                pools.lead_to(&found);
                hosts.settle_on(found.nth);
                tracing::warn!(host = hosts.place(found.nth), "works on this host of the database from now on");
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

/// Whether the present host answers, and will still do.
async fn is_well(hosts: &Hosts, present: &mut Option<PgConnection>) -> bool {
    let Some(connection) = present else { return false };
    let well = timeout(SILENCE, ask(connection)).await.is_ok_and(|said| said.is_ok_and(|said| hosts.address().wanted.takes(said)));
    if !well {
        *present = None;
    }
    well
}

/// The host to work on. While none will do, again and again, unless the present one is well.
async fn look(hosts: &Hosts, pools: &Pools, well: bool) -> Option<GoodHost> {
    let (began, mut told) = (Instant::now(), None::<Instant>);
    if well {
        return hosts.look_for_better().await.ok();
    }
    while !pools.are_closed() {
        match hosts.look().await {
            Ok(found) => return Some(found),
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= TOLD) {
                    tracing::warn!("{error}");
                    told = Some(Instant::now());
                }
            }
        }
        sleep((began.elapsed() / 20).clamp(AGAIN, LONGEST).mul_f64(0.5 + fastrand::f64())).await;
    }
    None
}

//! Background task that reloads the list of stores and advances tenant moves. Each process that works on the stores runs this task.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use super::{all_stores::with_timeout, home::Stores, moves::Move};
use crate::error::Error;

/// Timeout for one step of a move. An unresponsive store delays only its own moves. The timeout is long because counting the remaining jobs
/// may take five minutes.
const STEP_TIMEOUT: Duration = Duration::from_mins(6);

/// Maximum interval between two rounds while tenants are moving. The interval is short because jobs in the new store may wait for a step
/// to release their ordering key.
const STEP_INTERVAL: Duration = Duration::from_millis(500);

impl Stores {
    /// Reloads the list of stores and advances all tenant moves, repeatedly at the interval `every`, or up to twice a second while tenants
    /// are moving. The future never completes. Run one such future as a task in each process that works on the stores. Moves between two
    /// stores do not wait for other stores.
    pub async fn tend(&self, every: Duration) {
        let (mut reported, mut is_failing) = (Vec::new(), false);
        let (mut rounds, mut running) = (JoinSet::new(), BTreeSet::new());
        loop {
            let (mut again, mut failed) = (Instant::now() + every, None);
            match self.refresh().await {
                Ok(unknown) => {
                    if !unknown.is_empty() && unknown != reported {
                        tracing::warn!(stores = ?unknown, "stores skipped: their databases are unknown to this process; add them with `Stores::database`");
                    }
                    reported = unknown;
                }
                Err(error) => failed = Some(error),
            }
            let mut by_stores = BTreeMap::<(String, String), Vec<String>>::new();
            match with_timeout(self.moves()).await {
                Ok(moves) => {
                    if !moves.is_empty() {
                        again = Instant::now() + every.min(STEP_INTERVAL);
                    }
                    for Move { key, from, to, .. } in moves {
                        by_stores.entry((from, to)).or_default().push(key);
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            for (stores, keys) in by_stores {
                if running.insert(stores.clone()) {
                    let this = self.clone();
                    rounds.spawn(async move { (stores, this.advance_moves(keys, every).await) });
                }
            }
            while Instant::now() < again {
                match timeout_at(again, rounds.join_next()).await {
                    Ok(Some(Ok((stores, done)))) => {
                        running.remove(&stores);
                        failed = failed.or(done.err());
                    }
                    Ok(Some(Err(error))) => error.try_into_panic().map_or_else(drop, |panic| resume_unwind(panic)),
                    Ok(None) => sleep_until(again).await,
                    Err(_) => {}
                }
            }
            match failed {
                Some(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = error.to_string(), "refreshing the stores or advancing moves failed, retrying");
                }
                Some(_) => {}
                None => is_failing = false,
            }
        }
    }

    /// Advances moves between the same two stores, one after another, and returns the first error. Stops if a store does not respond,
    /// because the next step would fail too. Each step counts the jobs of a store, so a pause after the steps limits the load. The pause is
    /// nine times as long as the steps, but at most `every`.
    async fn advance_moves(&self, keys: Vec<String>, every: Duration) -> Result<(), Error> {
        let (began, mut failed) = (Instant::now(), None);
        for key in keys {
            let step = timeout(STEP_TIMEOUT, self.go_on(&key)).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()));
            let is_unavailable = matches!(&step, Err(Error::Database(error)) if error.as_database_error().is_none());
            failed = failed.or(step.err());
            if is_unavailable {
                break;
            }
        }
        sleep((began.elapsed() * 9).min(every)).await;
        failed.map_or(Ok(()), Err)
    }
}

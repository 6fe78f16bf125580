//! Background task that reloads the list of stores and advances tenant moves. Each process that works on the stores runs this task.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::{all_stores::with_timeout, home::Stores, moves::Move};
use crate::error::Error;

/// Timeout for one step of a move. An unresponsive store delays only moves out of that store. The timeout is long because counting the
/// remaining jobs may take five minutes.
const STEP_TIMEOUT: Duration = Duration::from_mins(6);

impl Stores {
    /// Reloads the list of stores and advances all tenant moves, repeatedly at the interval `every`. The future never completes. Run one
    /// such future as a task in each process that works on the stores. Moves out of one store do not wait for other stores.
    pub async fn tend(&self, every: Duration) {
        let (mut reported, mut is_failing) = (Vec::new(), false);
        let (mut going, mut left) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let (again, mut failed) = (Instant::now() + every, None);
            match self.refresh().await {
                Ok(unknown) => {
                    if !unknown.is_empty() && unknown != reported {
                        tracing::warn!(stores = ?unknown, "stores skipped: their databases are unknown to this process; add them with `Stores::database`");
                    }
                    reported = unknown;
                }
                Err(error) => failed = Some(error),
            }
            let mut by_store = BTreeMap::<String, Vec<String>>::new();
            match with_timeout(self.moves()).await {
                Ok(moves) => {
                    for Move { key, from, .. } in moves {
                        by_store.entry(from).or_default().push(key);
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            for (from, keys) in by_store {
                if left.insert(from.clone()) {
                    going.push(async move { (from, self.advance_moves(keys).await) });
                }
            }
            while let Ok(gone_on) = timeout_at(again, next_finished(&mut going)).await {
                let (from, done) = gone_on;
                left.remove(&from);
                failed = failed.or(done.err());
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

    /// Advances moves out of the same store, one after another. Stops at the first error, because a store that does not respond to one
    /// step of a move will not respond to the next step.
    async fn advance_moves(&self, keys: Vec<String>) -> Result<(), Error> {
        for key in keys {
            timeout(STEP_TIMEOUT, self.go_on(&key)).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))?;
        }
        Ok(())
    }
}

/// Waits until one of the running futures finishes, and returns its output. Stays pending if no future is running.
async fn next_finished<F: Future>(going: &mut FuturesUnordered<F>) -> F::Output {
    match going.next().await {
        Some(ended) => ended,
        None => pending().await,
    }
}

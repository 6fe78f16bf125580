//! What goes on by itself, in each process that works on the stores: new ones are heard of, and moves brought to their end.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::{home::Stores, moves::Move, over::patiently};
use crate::error::Error;

/// A store that does not answer for so long holds up its own moves only. Counting what is left in it may take five minutes.
const LONGEST: Duration = Duration::from_mins(6);

impl Stores {
    /// Reads every few seconds which stores there are, and brings every move a step on, for ever. For one task of each process that works on them.
    /// Moves out of one store wait for no other store.
    pub async fn tend(&self, every: Duration) {
        let (mut told, mut is_failing) = (Vec::new(), false);
        let (mut going, mut left) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let (again, mut failed) = (Instant::now() + every, None);
            match self.refresh().await {
                Ok(unknown) => {
                    if !unknown.is_empty() && unknown != told {
                        tracing::warn!(stores = ?unknown, "these stores are in databases that this process does not know: it leaves them alone");
                    }
                    told = unknown;
                }
                Err(error) => failed = Some(error),
            }
            let mut by_store = BTreeMap::<String, Vec<String>>::new();
            match patiently(self.moves()).await {
                Ok(moves) => {
                    for Move { key, from, .. } in moves {
                        by_store.entry(from).or_default().push(key);
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            for (from, keys) in by_store {
                if left.insert(from.clone()) {
                    going.push(async move { (from, self.go_on_with(keys).await) });
                }
            }
            while let Ok(gone_on) = timeout_at(again, next(&mut going)).await {
                let (from, done) = gone_on;
                left.remove(&from);
                failed = failed.or(done.err());
            }
            match failed {
                Some(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = error.to_string(), "cannot see now which stores there are, or go on with moves; trying again");
                }
                Some(_) => {}
                None => is_failing = false,
            }
        }
    }

    /// Tenants that leave the same store: if it does not answer the one, it does not answer the next.
    async fn go_on_with(&self, keys: Vec<String>) -> Result<(), Error> {
        for key in keys {
            timeout(LONGEST, self.go_on(&key)).await.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))?;
        }
        Ok(())
    }
}

/// The next to end, if any is going on.
async fn next<F: Future>(going: &mut FuturesUnordered<F>) -> F::Output {
    match going.next().await {
        Some(ended) => ended,
        None => pending().await,
    }
}

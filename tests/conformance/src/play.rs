//! Runs the operations one after another. Each operation is isolated and has a time limit, so an operation that hangs, panics or fails
//! does not stop the run.

use std::{
    error::Error as StdError,
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::{
    report::{Outcome, Report},
    world::World,
};

/// Operations of one topic.
pub(super) struct OperationGroup {
    pub(super) name: &'static str,
    pub(super) needs: Need,
    pub(super) operations: &'static [Operation],
}

/// Prerequisite of the operations in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Store,
    Worker,
}

/// User-visible operation, with a function that performs the operation and checks its effect.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) play: for<'w> fn(&'w World) -> OperationFuture<'w>,
}

pub(super) type OperationFuture<'w> = Pin<Box<dyn Future<Output = Result<()>> + 'w>>;

/// Creates a list of operations, each with a name and the function that runs it.
macro_rules! operations {
    ($($name:literal => $play:expr,)*) => {
        &[$($crate::play::Operation { name: $name, play: |world| Box::pin(($play)(world)) },)*]
    };
}
pub(super) use operations;

/// Error that skips an operation that does not apply to this setup.
#[derive(Debug)]
pub(super) struct Skip(pub(super) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Skip {}

/// Skips the current operation, which does not apply to this setup.
pub(super) fn skip<T>(why: impl Into<String>) -> Result<T> {
    Err(Skip(why.into()).into())
}

/// Skips the current operation if the stores are distributed.
pub(super) fn not_on_citus(world: &World, why: &str) -> Result<()> {
    if world.setup.cluster.is_some() { skip(format!("not on Citus: {why}")) } else { Ok(()) }
}

/// Number of consecutive timeouts after which the remaining operations are skipped.
const MAX_TIMEOUTS: u32 = 10;

/// Runs the operations that `only` selects, and all operations of the groups `store` and `worker`. Reports their outcomes.
pub(super) async fn all(world: &World, groups: &[&OperationGroup], (bound, only): (Duration, &[String]), report: &mut Report) {
    let mut timeouts = 0;
    for group in groups {
        // On a cluster, creating a store takes longer, because it executes many statements on every node.
        let makes = matches!(group.name, "store" | "stores");
        let slower = if makes && world.setup.cluster.is_some() { 4 } else { 1 };
        for operation in group.operations {
            let name = format!("{}: {}", group.name, operation.name);
            let is_selected =
                only.is_empty() || only.iter().any(|only| name.contains(only.as_str())) || matches!(group.name, "store" | "worker");
            if !is_selected {
                continue;
            }
            let began = Instant::now();
            let lacking = if timeouts < MAX_TIMEOUTS {
                world.missing_requirement(group.needs)
            } else {
                Some(format!("{MAX_TIMEOUTS} consecutive operations timed out"))
            };
            let limit = bound * slower;
            let outcome = match lacking {
                Some(why) => Outcome::Skipped(why),
                None => one(world, operation, limit).await,
            };
            timeouts = if began.elapsed() >= limit || timeouts >= MAX_TIMEOUTS { timeouts + 1 } else { 0 };
            report.add(name, outcome, began.elapsed());
        }
    }
}

async fn one(world: &World, operation: &Operation, bound: Duration) -> Outcome {
    match timeout(bound, AssertUnwindSafe((operation.play)(world)).catch_unwind()).await {
        Ok(Ok(Ok(()))) => Outcome::Ok,
        Ok(Ok(Err(error))) => Outcome::of(&error),
        Ok(Err(panic)) => Outcome::Failed(format!("panicked: {}", panic_message(&*panic))),
        Err(_) => Outcome::Failed(format!("did not finish within {bound:?}")),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with a payload that is not a string")
}

/// Minimum time limit of the cleanup, which also suffices for slow servers.
const REMOVAL: Duration = Duration::from_mins(2);

/// Stops the worker, and removes everything that the run has created.
pub(super) async fn end(world: World, report: &mut Report, bound: Duration) {
    let began = Instant::now();
    let stopped = timeout(bound, world.stop()).await.unwrap_or_else(|_| Err(anyhow::anyhow!("did not finish within {bound:?}")));
    if let Some(outcome) = stopped.map_or_else(|error| Some(Outcome::of(&error)), |ran| ran.then_some(Outcome::Ok)) {
        report.add("worker: shut down".to_owned(), outcome, began.elapsed());
    }
    let began = Instant::now();
    // The cleanup has at least twice the time limit of an operation.
    let most = REMOVAL.max(bound * 2);
    let late = |_| Err(anyhow::anyhow!("not finished within {most:?}: look for schemas and roles called {}..", world.store.schema()));
    let removed = timeout(most, world.remove()).await.unwrap_or_else(late);
    let outcome = removed.map_or_else(|error| Outcome::of(&error), |()| Outcome::Ok);
    report.add("store: drop all that was made".to_owned(), outcome, began.elapsed());
    world.close().await;
}

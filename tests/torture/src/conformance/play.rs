//! Plays operations one after the other, each by itself and within its bound: one that hangs, panics or fails stops no other.

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
pub(super) struct Room {
    pub(super) name: &'static str,
    pub(super) needs: Need,
    pub(super) operations: &'static [Operation],
}

/// What must be there before an operation means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Store,
    Worker,
}

/// One thing that a user of the queue does, and what has to be seen then.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) play: for<'w> fn(&'w World) -> Playing<'w>,
}

pub(super) type Playing<'w> = Pin<Box<dyn Future<Output = Result<()>> + 'w>>;

/// A room's operations: what each is called, and the function that plays it.
macro_rules! operations {
    ($($name:literal => $play:expr,)*) => {
        &[$($crate::conformance::play::Operation { name: $name, play: |world| Box::pin(($play)(world)) },)*]
    };
}
pub(super) use operations;

/// That an operation is not for this setup.
#[derive(Debug)]
pub(super) struct Skip(pub(super) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Skip {}

/// That an operation is not for this setup, and why.
pub(super) fn skip<T>(why: impl Into<String>) -> Result<T> {
    Err(Skip(why.into()).into())
}

/// That an operation is not for distributed stores, and why; goes on if stores are no such.
pub(super) fn not_on_citus(world: &World, why: &str) -> Result<()> {
    if world.setup.cluster.is_some() { skip(format!("not on Citus: {why}")) } else { Ok(()) }
}

/// After so many that hang, one after the other, nothing is learnt from more.
const MOST_HUNG: u32 = 10;

/// Plays them all.
pub(super) async fn all(world: &World, rooms: &[&Room], (bound, only): (Duration, &[String]), report: &mut Report) {
    let mut hung = 0;
    for room in rooms {
        // A cluster makes a store in many statements, each of which is for all nodes.
        let makes = matches!(room.name, "store" | "stores");
        let slower = if makes && world.setup.cluster.is_some() { 4 } else { 1 };
        for operation in room.operations {
            let name = format!("{}: {}", room.name, operation.name);
            let is_wanted =
                only.is_empty() || only.iter().any(|only| name.contains(only.as_str())) || matches!(room.name, "store" | "worker");
            if !is_wanted {
                continue;
            }
            let began = Instant::now();
            let lacking =
                if hung < MOST_HUNG { world.lacks(room.needs) } else { Some(format!("{MOST_HUNG} in a row were not over in time")) };
            let outcome = match lacking {
                Some(why) => Outcome::Skipped(why),
                None => one(world, operation, bound * slower).await,
            };
            hung = if began.elapsed() >= bound || hung >= MOST_HUNG { hung + 1 } else { 0 };
            report.add(name, outcome, began.elapsed());
        }
    }
}

async fn one(world: &World, operation: &Operation, bound: Duration) -> Outcome {
    match timeout(bound, AssertUnwindSafe((operation.play)(world)).catch_unwind()).await {
        Ok(Ok(Ok(()))) => Outcome::Ok,
        Ok(Ok(Err(error))) => Outcome::of(&error),
        Ok(Err(panic)) => Outcome::Failed(format!("panicked: {}", said(&*panic))),
        Err(_) => Outcome::Failed(format!("not over within {bound:?}")),
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with a payload that is not a string")
}

/// So long a removal may take, on a slow server too.
const REMOVAL: Duration = Duration::from_mins(2);

/// Ends the worker, and removes all that was made.
pub(super) async fn end(world: World, report: &mut Report, bound: Duration) {
    let began = Instant::now();
    let stopped = timeout(bound, world.stop()).await.unwrap_or_else(|_| Err(anyhow::anyhow!("not over within {bound:?}")));
    if let Some(outcome) = stopped.map_or_else(|error| Some(Outcome::of(&error)), |ran| ran.then_some(Outcome::Ok)) {
        report.add("worker: shut down".to_owned(), outcome, began.elapsed());
    }
    let began = Instant::now();
    // Whatever an operation may take.
    let most = REMOVAL.max(bound * 2);
    let late = |_| Err(anyhow::anyhow!("not over within {most:?}: look for schemas and roles called {}..", world.store.schema()));
    let removed = timeout(most, world.remove()).await.unwrap_or_else(late);
    let outcome = removed.map_or_else(|error| Outcome::of(&error), |()| Outcome::Ok);
    report.add("store: drop all that was made".to_owned(), outcome, began.elapsed());
    world.close().await;
}

//! A node that is many jobs: a durable job of ours, which waits until they are over and returns how many came to what.

use queue_macros::job;
use serde::{Deserialize, Serialize};

use crate::{
    context::{Durable, Handler},
    define::{JobResult, JobType, TerminalExt as _},
    enqueue::{hooks::call_hooks, options::EnqueueOptions, row::Encoded},
    error::Error,
};

/// Its gather is called so, and the step that says how many they are.
const JOBS: &str = "jobs";

/// The job of a node that is many jobs; see [`Flow::add_all`](crate::Flow::add_all). Every worker runs it.
#[job(name = "queue:gather", durable, output = Counts)]
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gather {}

/// How many jobs there were, and what they came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// How many there were.
    pub total: u64,
    /// How many completed.
    pub completed: u64,
    /// How many were dead letters.
    pub dead: u64,
    /// How many were cancelled, or had expired.
    pub cancelled: u64,
}

// Nobody who lacks a handler of its own is told of this one.
#[diagnostic::do_not_recommend]
impl Handler for Gather {
    async fn run(self, cx: &Durable) -> JobResult<Counts> {
        let open = sqlx::query(cx.shared().store.sql(include_str!("../../../sql/open_gather.sql"))).bind(cx.id());
        cx.step_tx("open", async |tx| open.execute(tx).await.map(drop)).await?;
        let (name, total) = cx.journaled_map(JOBS.into())?;
        let total = total.ok_or("its jobs are not known any more; requeue them instead of it").terminal()?;
        let look = cx.wait_for_map(&name).await?;
        let [total, completed, dead, cancelled] = [total, look.completed, look.dead, look.cancelled].map(i64::unsigned_abs);
        Ok(Counts { total, completed, dead, cancelled })
    }
}

/// Many jobs, and what is said of all of them.
pub(super) struct Many {
    pub(super) jobs: Box<dyn Iterator<Item = Result<Encoded, Error>> + Send>,
    pub(super) options: EnqueueOptions,
    pub(super) in_flight: Option<u32>,
}

impl Many {
    pub(super) fn of<J: JobType>(jobs: impl Iterator<Item = J> + Send + 'static) -> Self {
        let mut options = EnqueueOptions::of::<J>();
        call_hooks(&mut options);
        Self { jobs: Box::new(jobs.map(|job| Encoded::of(&job))), options, in_flight: None }
    }
}

//! Flow nodes with many jobs. Each such node is itself a job of a built-in durable type. The job waits until the node's many jobs have
//! finished, and returns the number of jobs with each outcome.

use queue_macros::job;
use serde::{Deserialize, Serialize};

use crate::{
    context::{Durable, Handler},
    define::{JobResult, JobType, TerminalExt as _},
    enqueue::{hooks::call_hooks, options::EnqueueOptions, row::EncodedJob},
    error::Error,
};

/// Name of the gather that counts the node's jobs, and of the step that journals their total number.
const GATHER_NAME: &str = "jobs";

/// Job that counts the jobs of a node by outcome; see [`Flow::add_all`](crate::flow::Flow::add_all). Every worker runs this type.
///
/// ```
/// use queue_core::{
///     flow::{Flow, Gather, Node},
///     job,
/// };
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct ImportRow { row: u64 }
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Mail;
///
/// let mut flow = Flow::new("import");
/// let rows: Node<Gather> = flow.add_all("rows", (0..1000).map(|row| ImportRow { row }));
/// flow.add("done", Mail).after(&rows); // after all rows
/// ```
#[job(name = "queue:gather", durable, output = Counts)]
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gather {}

/// Job counts of a node with many jobs, by outcome.
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, flow::{Counts, NodeOutput}, job};
/// # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Report { rows: NodeOutput<Counts> }
/// impl Handler for Report {
///     async fn run(self, _: &Context) -> JobResult {
///         let rows = self.rows.value()?;
///         println!("{} of {} rows imported, {} dead", rows.completed, rows.total, rows.dead);
///         Ok(())
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Total number of jobs.
    pub total: u64,
    /// Number of jobs that completed.
    pub completed: u64,
    /// Number of jobs that became dead letters.
    pub dead: u64,
    /// Number of jobs that were cancelled or expired.
    pub cancelled: u64,
}

// `do_not_recommend` keeps the type out of the compiler's suggestions for types without a handler.
#[diagnostic::do_not_recommend]
impl Handler for Gather {
    async fn run(self, cx: &Durable) -> JobResult<Counts> {
        let open = sqlx::query(cx.shared().store.sql(include_str!("../../../sql/open_gather.sql"))).bind(cx.id());
        cx.step_tx("open", async |tx| open.execute(tx).await.map(drop)).await?;
        let (name, total) = cx.journaled_map(GATHER_NAME.into())?;
        let total = total.ok_or("the record of its jobs is gone; requeue those jobs instead of this one").terminal()?;
        let counts = cx.wait_for_map(&name).await?;
        let [total, completed, dead, cancelled] = [total, counts.completed, counts.dead, counts.cancelled].map(i64::unsigned_abs);
        Ok(Counts { total, completed, dead, cancelled })
    }
}

/// Jobs that [`Flow::add_all`](crate::flow::Flow::add_all) adds as one node, with their options.
pub(super) struct ManyJobs {
    pub(super) jobs: Box<dyn Iterator<Item = Result<EncodedJob, Error>> + Send>,
    pub(super) options: EnqueueOptions,
    pub(super) in_flight: Option<u32>,
}

impl ManyJobs {
    pub(super) fn new<J: JobType>(jobs: impl Iterator<Item = J> + Send + 'static) -> Self {
        let mut options = EnqueueOptions::for_type::<J>();
        call_hooks(&mut options);
        Self { jobs: Box::new(jobs.map(|job| EncodedJob::encode(&job))), options, in_flight: None }
    }
}

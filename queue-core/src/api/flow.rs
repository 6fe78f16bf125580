//! Flows: sets of jobs that are enqueued together and depend on each other.
//!
//! [`Flow::add`] adds a job as a node. A node waits for the nodes whose [`output`](Node::output) its payload contains, and for the nodes
//! passed to [`after`](Node::after). [`Flow::add_all`] adds any number of jobs as one node, which ends once all its jobs have ended.
//! [`IfDead`] defines the effect of a dead letter on the nodes that wait for it.
//!
//! ```no_run
//! use queue_core::{
//!     Context, Handler, JobResult,
//!     flow::{Flow, NodeOutput},
//!     job,
//! };
//! use serde::{Deserialize, Serialize};
//!
//! #[job(output = String)]
//! #[derive(Serialize, Deserialize)]
//! struct Fetch {
//!     url: String,
//! }
//!
//! #[job]
//! #[derive(Serialize, Deserialize)]
//! struct Parse {
//!     page: NodeOutput<String>,
//! }
//!
//! # impl Handler for Fetch { async fn run(self, _: &Context) -> JobResult<String> { Ok(self.url) } }
//! impl Handler for Parse {
//!     async fn run(self, _: &Context) -> JobResult {
//!         println!("{} bytes", self.page.value()?.len());
//!         Ok(())
//!     }
//! }
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
//! let mut flow = Flow::new("import");
//! let fetch = flow.add("fetch", Fetch { url: "https://example.org".into() });
//! flow.add("parse", Parse { page: fetch.output() }); // starts once `fetch` has completed
//! flow.enqueue(&pool).await?;
//! # Ok(()) }
//! ```
//!
//! `docs/FLOWS.md` describes the rules. If only code can express how steps depend on each other's values, write a [durable
//! job](crate::durable) instead.

pub use crate::{
    define::NodeOutput,
    enqueue::{Counts, Flow, FlowHandle, Gather, IfDead, Nested, Node, Source, Then},
};

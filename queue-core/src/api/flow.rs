//! Flows: jobs that are enqueued together, some of which wait until others have ended.
//!
//! [`Flow::add`] adds a job as a node. A node waits for the nodes whose [`output`](Node::output) its payload contains, and for those given
//! by [`after`](Node::after). [`Flow::add_all`] adds any number of jobs as one node; a node that waits for it starts once all of them have
//! ended. [`IfDead`] defines what happens to a node if a node that it waits for becomes a dead letter.
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
//! `docs/FLOWS.md` has the rules. If the steps depend on each other's values in a way that only code can express, write a
//! [durable job](crate::durable) instead.

pub use crate::{
    define::NodeOutput,
    enqueue::{Counts, Flow, FlowHandle, Gather, IfDead, Nested, Node, Source, Then},
};

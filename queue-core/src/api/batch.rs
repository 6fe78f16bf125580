//! Handlers that run many jobs in one call, for example to insert a thousand rows with one statement.
//!
//! `#[job(batch = 500)]` sets the maximum number of jobs per call, and `batch_wait = "200ms"` the maximum time for which an incomplete
//! batch waits for further jobs. The handler is an `impl` of [`BatchHandler`], or a function with [`handler`](macro@crate::handler). Each
//! job of the batch has its own attempt, so the handler can complete or fail each job separately.
//!
//! ```
//! use queue_core::{
//!     JobResult,
//!     batch::{BatchContext, BatchHandler, JobBatch},
//!     job,
//! };
//! use serde::{Deserialize, Serialize};
//!
//! /// Records one page view.
//! #[job(batch = 500, batch_wait = "200ms")]
//! #[derive(Serialize, Deserialize)]
//! struct PageView {
//!     url: String,
//! }
//!
//! impl BatchHandler for PageView {
//!     async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
//!         let urls: Vec<&str> = batch.iter().map(|view| view.payload().url.as_str()).collect();
//!         sqlx::query("insert into page_view (url) select unnest($1::text[])").bind(urls).execute(cx.pool()).await?;
//!         Ok(()) // all jobs are completed; after an error, all are retried
//!     }
//! }
//! ```
//!
//! To enqueue many jobs with one statement, see [`EnqueueAll`](crate::EnqueueAll) and [`Batch`](crate::Batch); the jobs need no batch
//! handler. `docs/BATCHES.md` describes how batches are formed and how a failed batch is retried.

pub use crate::{
    context::{BatchContext, BatchHandler, BatchJob, JobBatch},
    define::most_together,
};

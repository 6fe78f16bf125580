//! Types that wait for the output or failure of a job, and that read the progress of a running job.
//!
//! To wait for a job by its id, call [`queue.job(id).wait::<T>()`](crate::operate::QueueJob::wait). To wait with the handle of an
//! enqueued job, call [`handle.wait(&queue)`](crate::JobHandle::wait). The waiting process needs no worker. All waits of a
//! [`Queue`](crate::Queue) and its clones share one connection, so a web server can wait for thousands of jobs.
//!
//! ```no_run
//! use queue_core::{JobId, Queue, job, wait::WaitError};
//! use std::time::Duration;
//!
//! /// Adds two numbers, in another process.
//! #[job(send_only, output = i64)]
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Add(i64, i64);
//!
//! /// Answers a request that carries a job's id.
//! async fn answer(queue: &Queue, id: JobId) -> String {
//!     match queue.job(id).wait::<Add>().timeout(Duration::from_secs(20)).await {
//!         Ok(sum) => sum.to_string(),
//!         Err(WaitError::Timeout { .. }) => "ask again later".to_owned(),
//!         Err(error) => error.to_string(),
//!     }
//! }
//! ```
//!
//! `docs/RESULTS.md` lists what a wait returns in each case.

pub use crate::results::{JobStatus, Progress, Wait, WaitError, Watch};

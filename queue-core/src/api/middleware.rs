//! Code that runs around every attempt and before every enqueue, for example for tenancy, tracing and error reports.
//!
//! [`Middleware`] surrounds the attempts of a worker. [`on_enqueue`] registers a hook that runs before each enqueue in this process. The
//! hook runs once for all jobs of an `enqueue_all`.
//!
//! ```
//! use queue_core::{
//!     Context, Failure,
//!     middleware::{AttemptOutput, Middleware, Next, async_trait, on_enqueue},
//! };
//!
//! /// Logs each failed attempt. Register it with `Worker::middleware`.
//! struct LogFailures;
//!
//! #[async_trait]
//! impl Middleware for LogFailures {
//!     async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
//!         let result = next.run().await;
//!         if let Err(failure) = &result {
//!             eprintln!("job {}: {failure}", cx.id());
//!         }
//!         result
//!     }
//! }
//!
//! on_enqueue(|job| {
//!     job.meta("region", "eu");
//! });
//! ```

/// Attribute for implementations of [`Middleware`], re-exported from the crate `async_trait`.
pub use async_trait::async_trait;

pub use crate::{
    context::{AttemptOutput, Middleware, Next},
    enqueue::{PendingEnqueue, on_enqueue},
};

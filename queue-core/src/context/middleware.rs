//! Middleware around handlers, for example for tracing, tenancy and error reports.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::{Context, Durable, HandlerFuture, Registration};
use crate::define::{Failure, JobId};

/// Middleware around every attempt of a worker, for all job types. Register middleware with `Worker::middleware`, or in tests with
/// `.middleware(..)`.
///
/// Code before [`Next::run`] runs before the handler, in the task and span of the handler. Code after [`Next::run`] sees the handler's
/// result. The first middleware is the outermost. Middleware is part of the attempt: it counts towards the timeout and is dropped with
/// the handler. An error or panic in middleware fails the attempt. The final outcome, such as a dead letter, is reported to the worker's
/// `on_outcome`.
///
/// For a batch, middleware runs once per job, with that job's context. The middleware of every job runs up to its `next.run()`. Then the
/// handler runs once, and the middleware of each job continues with the result of that job. A failure or panic in the middleware of a job
/// fails only that job. After a failure before `next.run()`, the job is excluded from the batch. Task-locals that middleware sets are not
/// available in the handler of a batch; use `job.meta()` instead.
///
/// ```
/// use queue_core::{
///     Context, Failure,
///     middleware::{AttemptOutput, Middleware, Next, async_trait},
/// };
///
/// tokio::task_local! { static TENANT: String; }
///
/// /// Provides the job's tenant to handlers in `TENANT`.
/// struct Tenancy;
///
/// #[async_trait]
/// impl Middleware for Tenancy {
///     async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
///         let tenant = cx.meta().get("tenant").and_then(|tenant| tenant.as_str()).unwrap_or("default");
///         TENANT.scope(tenant.to_owned(), next.run()).await
///     }
/// }
/// ```
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Runs around one attempt. Call [`next.run()`](Next::run) to run the handler, or return a [`Failure`] to end the attempt without
    /// running the handler.
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure>;
}

/// Remainder of an attempt: the inner middleware and the handler. Passed to [`Middleware::attempt`].
///
/// ```
/// use queue_core::{
///     Context, Failure,
///     middleware::{AttemptOutput, Middleware, Next, async_trait},
/// };
///
/// struct Stopwatch;
///
/// #[async_trait]
/// impl Middleware for Stopwatch {
///     async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
///         let started = std::time::Instant::now();
///         let result = next.run().await;
///         println!("job {} took {:?}", cx.id(), started.elapsed());
///         result
///     }
/// }
/// ```
#[must_use = "the handler does not run until `run` is awaited"]
pub struct Next<'a> {
    rest: &'a [Arc<dyn Middleware>],
    target: NextTarget<'a>,
    cx: &'a Context,
}

/// Action of `next.run()` in the innermost middleware: run the handler, or wait for the handler of the batch.
enum NextTarget<'a> {
    Handler(&'a Registration, &'a str, &'a Durable),
    Batch(BatchBarrier),
}

/// Barrier for the middleware of one attempt in a batch. The middleware waits here until the handler of the batch has returned.
pub(crate) struct BatchBarrier {
    /// Sender of the attempt's index. The index is sent when all middleware of the attempt has called `next.run()`.
    pub(crate) arrivals: UnboundedSender<usize>,
    /// Index of the attempt within the batch.
    pub(crate) index: usize,
    /// Receiver of the job's result. The channel is closed if the batch ended without a result for the job.
    pub(crate) result: oneshot::Receiver<Result<Option<String>, Failure>>,
}

impl BatchBarrier {
    async fn wait(self) -> Result<Option<String>, Failure> {
        // The send fails only if the batch was dropped. This future is then dropped as well.
        let _ = self.arrivals.send(self.index);
        match self.result.await {
            Ok(result) => result,
            // The batch ended without a result for the job, and drops this future. Outside a batch, a panic or a timeout of the handler
            // drops the middleware as well.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Output of a handler. Middleware can obtain an output only by running the attempt's handler, so it cannot complete an attempt without
/// the handler.
///
/// ```
/// use queue_core::{
///     Context, Failure,
///     middleware::{AttemptOutput, Middleware, Next, async_trait},
/// };
///
/// struct LogFailures;
///
/// #[async_trait]
/// impl Middleware for LogFailures {
///     async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
///         let result = next.run().await;
///         if let Err(failure) = &result {
///             println!("job {} failed: {failure}", cx.id());
///         }
///         result
///     }
/// }
/// ```
pub struct AttemptOutput {
    attempt: (JobId, u32),
    text: Option<String>,
}

impl<'a> Next<'a> {
    /// Runs the middleware of one attempt in a batch. The innermost middleware waits for the handler of the batch.
    pub(crate) async fn run_in_batch(barrier: BatchBarrier, cx: &'a Context) -> Result<Option<String>, Failure> {
        let next = Self { rest: &cx.shared.middleware, target: NextTarget::Batch(barrier), cx };
        next.run().await?.into_text(cx)
    }
}

impl Next<'_> {
    /// Runs the inner middleware and the handler.
    ///
    /// # Errors
    /// Returns the failure of the handler or of an inner middleware.
    pub async fn run(self) -> Result<AttemptOutput, Failure> {
        let Self { rest, target, cx } = self;
        let result = match (rest.split_first(), target) {
            (Some((first, rest)), target) => return first.attempt(cx, Next { rest, target, cx }).await,
            (None, NextTarget::Handler(registration, payload, cx)) => registration.run(payload, cx).await,
            (None, NextTarget::Batch(barrier)) => barrier.wait().await,
        };
        result.map(|text| AttemptOutput { attempt: attempt_id(cx), text })
    }
}

/// Runs the handler inside the worker's middleware.
pub(crate) fn run_with_middleware<'a>(registration: &'a Registration, payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    let rest = &*cx.shared().middleware;
    if rest.is_empty() {
        return registration.run(payload, cx);
    }
    Box::pin(async move { Next { rest, target: NextTarget::Handler(registration, payload, cx), cx }.run().await?.into_text(cx) })
}

impl AttemptOutput {
    /// Returns the output as JSON text. Fails if the output belongs to another attempt.
    fn into_text(self, cx: &Context) -> Result<Option<String>, Failure> {
        let Self { attempt: (job, attempt), text } = self;
        if (job, attempt) == attempt_id(cx) {
            return Ok(text);
        }
        Err(format!(
            "a middleware returned the output of attempt {attempt} of job {job}; it must return the output of its own `next.run()`"
        )
        .into())
    }
}

/// Returns the job id and attempt number that identify an attempt.
fn attempt_id(cx: &Context) -> (JobId, u32) {
    (cx.id(), cx.attempt())
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("middleware", &self.rest.len()).field("job", &self.cx.id()).finish_non_exhaustive()
    }
}

impl fmt::Debug for AttemptOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttemptOutput")
    }
}

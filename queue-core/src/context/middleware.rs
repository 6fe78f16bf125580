//! Middleware around handlers, for example for tracing, tenancy and error reports.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::{Context, Durable, HandlerFuture, Registration};
use crate::define::{Failure, JobId};

/// Middleware around every attempt of a worker, for all job types. Register it with `Worker::middleware`; in tests with `.middleware(..)`.
///
/// Code before [`Next::run`] runs before the handler, in its task and span; code after it sees the handler's result. The first middleware
/// is the outermost. Middleware is part of the attempt: it counts towards the timeout and is dropped with the handler, and its error or
/// panic is the attempt's. The final outcome, such as a dead letter, is reported to the worker's `on_outcome`.
///
/// For a batch, middleware runs once per job, with that job's context. All of them run up to their `next.run()`, then the handler runs
/// once, then each continues with the result of its job. A failure or panic fails only that job, and before `next.run()` it excludes the
/// job from the batch. Since one handler runs for all jobs, it does not see their task-locals; use `job.meta()` instead.
///
/// ```
/// use queue_core::{AttemptOutput, Context, Failure, Middleware, Next, async_trait};
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
    /// Runs around one attempt. Calls [`next.run()`](Next::run) to run the handler, or returns a [`Failure`] to end the attempt without it.
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure>;
}

/// Remainder of an attempt: the inner middleware and the handler.
#[must_use = "the handler does not run until `run` is awaited"]
pub struct Next<'a> {
    rest: &'a [Arc<dyn Middleware>],
    target: NextTarget<'a>,
    cx: &'a Context,
}

/// Target inside all middleware.
enum NextTarget<'a> {
    Handler(&'a Registration, &'a str, &'a Durable),
    Batch(BatchBarrier),
}

/// Barrier at which the attempts of a batch wait for the handler.
pub(crate) struct BatchBarrier {
    /// Receives the attempt's index once all its middleware has called `next.run()`.
    pub(crate) arrivals: UnboundedSender<usize>,
    /// Index of the attempt in the batch.
    pub(crate) index: usize,
    /// Result of the job; closed if the batch ended otherwise.
    pub(crate) result: oneshot::Receiver<Result<Option<String>, Failure>>,
}

impl BatchBarrier {
    async fn wait(self) -> Result<Option<String>, Failure> {
        // Fails only if the batch is gone, and this future with it.
        let _ = self.arrivals.send(self.index);
        match self.result.await {
            Ok(result) => result,
            // The batch drops this future, as a panic or a timeout drops the middleware around a handler.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Output of a handler. Only running the handler of the same attempt creates one, so middleware cannot complete an attempt without it.
pub struct AttemptOutput {
    attempt: (JobId, u32),
    text: Option<String>,
}

impl<'a> Next<'a> {
    /// Runs the middleware of an attempt of a batch, up to the batch's handler and back.
    pub(crate) async fn run_in_batch(barrier: BatchBarrier, cx: &'a Context) -> Result<Option<String>, Failure> {
        let next = Self { rest: &cx.shared.middleware, target: NextTarget::Batch(barrier), cx };
        next.run().await?.into_text(cx)
    }
}

impl Next<'_> {
    /// Runs the inner middleware and the handler.
    ///
    /// # Errors
    /// The failure of the handler or of an inner middleware.
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
    /// Returns the output, if it belongs to this attempt.
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

/// Returns the identity of an attempt.
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

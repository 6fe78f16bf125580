//! What runs around the handler of every job: tracing, tenancy, reports of errors.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::{Context, Durable, HandlerFuture, Registration};
use crate::define::{Failure, JobId};

/// Runs around each attempt of a worker, whatever the job's type. A worker is given it with `Worker::middleware`, a test with `.middleware(..)`.
///
/// What stands before [`Next::run`] happens before the handler, on its task and in its span; what stands after it knows what the handler
/// returned. The first middleware is the outermost. All of it is part of the attempt: it counts towards the timeout, is dropped with the handler,
/// and its error or panic is the attempt's. What became of the attempt, as a dead letter, the worker's `on_outcome` tells.
///
/// Of a batch it runs around the attempt of each job, with that job's context: all of them up to their `next.run()`, then the handler once for
/// those that came so far, then the rest of each, with what was said of its job. Its failure or panic is that job's alone, and leaves it out of
/// the batch if it comes before `next.run()`. One handler runs for all of them, so it finds no task-local of any: it asks `job.meta()`.
///
/// ```
/// use queue_core::{AttemptOutput, Context, Failure, Middleware, Next, async_trait};
///
/// tokio::task_local! { static TENANT: String; }
///
/// /// Handlers find the tenant that the job was enqueued for in `TENANT`.
/// struct Tenancy;
///
/// #[async_trait]
/// impl Middleware for Tenancy {
///     async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
///         let tenant = cx.meta().get("tenant").and_then(|tenant| tenant.as_str()).unwrap_or("nobody");
///         TENANT.scope(tenant.to_owned(), next.run()).await
///     }
/// }
/// ```
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Around one attempt. It runs the handler with [`next.run()`](Next::run), or ends the attempt without it by a [`Failure`].
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure>;
}

/// The rest of an attempt: further middleware, then the handler.
#[must_use = "the handler does not run until `run` is awaited"]
pub struct Next<'a> {
    rest: &'a [Arc<dyn Middleware>],
    inner: Inner<'a>,
    cx: &'a Context,
}

/// What all middleware runs around.
enum Inner<'a> {
    Handler(&'a Registration, &'a str, &'a Durable),
    Batch(Place),
}

/// An attempt's place in a batch.
pub(crate) struct Place {
    /// Told once all middleware has let the attempt through.
    pub(crate) arrive: UnboundedSender<usize>,
    /// Its number.
    pub(crate) at: usize,
    /// What the handler said of the job; dropped if it ended otherwise.
    pub(crate) said: oneshot::Receiver<Result<Option<String>, Failure>>,
}

impl Place {
    async fn wait(self) -> Result<Option<String>, Failure> {
        // Fails only when the batch is gone, and this with it.
        let _ = self.arrive.send(self.at);
        match self.said.await {
            Ok(said) => said,
            // Whoever runs the batch drops this, as a panic or a timeout drops what is around a handler.
            Err(_) => std::future::pending().await,
        }
    }
}

/// What a handler returned. Only a handler makes one, so an attempt completes only if its handler did: that of another attempt is refused.
pub struct AttemptOutput {
    of: (JobId, u32),
    text: Option<String>,
}

impl<'a> Next<'a> {
    /// All of it, around an attempt's place in a batch.
    pub(crate) async fn around(place: Place, cx: &'a Context) -> Result<Option<String>, Failure> {
        let next = Self { rest: &cx.shared.middleware, inner: Inner::Batch(place), cx };
        next.run().await?.own(cx)
    }
}

impl Next<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// The handler's, or that of a middleware further in.
    pub async fn run(self) -> Result<AttemptOutput, Failure> {
        let Self { rest, inner, cx } = self;
        let ran = match (rest.split_first(), inner) {
            (Some((first, rest)), inner) => return first.attempt(cx, Next { rest, inner, cx }).await,
            (None, Inner::Handler(registration, payload, cx)) => registration.run(payload, cx).await,
            (None, Inner::Batch(place)) => place.wait().await,
        };
        ran.map(|text| AttemptOutput { of: attempt_of(cx), text })
    }
}

/// The handler, within the middleware of its worker.
pub(crate) fn run_within<'a>(registration: &'a Registration, payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    let rest = &*cx.shared().middleware;
    if rest.is_empty() {
        return registration.run(payload, cx);
    }
    Box::pin(async move { Next { rest, inner: Inner::Handler(registration, payload, cx), cx }.run().await?.own(cx) })
}

impl AttemptOutput {
    /// What the handler of this attempt returned; that of another is refused.
    fn own(self, cx: &Context) -> Result<Option<String>, Failure> {
        let Self { of: (job, attempt), text } = self;
        if (job, attempt) == attempt_of(cx) {
            return Ok(text);
        }
        Err(format!("a middleware returned the output of attempt {attempt} of job {job}; it is to return what its own `next.run()` does")
            .into())
    }
}

/// What tells one attempt from all others.
fn attempt_of(cx: &Context) -> (JobId, u32) {
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

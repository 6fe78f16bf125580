//! Cancellation of attempts: the token, the reason, and the stop request of a worker.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use tokio_util::sync::CancellationToken;

use super::Context;

/// Reason why an attempt must end.
///
/// ```
/// use queue_core::{CancelReason, Context};
///
/// # fn example(cx: &Context) {
/// match cx.cancelled().reason() {
///     Some(CancelReason::Cancelled) => println!("job cancelled: undoing the work"),
///     Some(reason) => println!("attempt interrupted: {reason:?}"),
///     None => {}
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// An operator or the application cancelled the job. The job is not retried. If this attempt still completes the job, the cancellation
    /// has no effect.
    Cancelled,
    /// The grace period of the worker's shutdown has ended. An attempt that now ends without completing the job is not charged, and the job
    /// runs again on another worker.
    Shutdown,
    /// The worker lost its lease, so another worker may run the job. The result of this attempt is discarded.
    LeaseLost,
}

/// Cancellation token of an attempt or of a batch. Dereferences to a [`CancellationToken`] and also reports the [`reason`](Self::reason).
///
/// ```
/// use queue_core::{CancelReason, Context, Failure};
///
/// # async fn step() {}
/// # async fn example(cx: &Context) -> Result<(), Failure> {
/// tokio::select! {
///     () = step() => Ok(()),
///     () = cx.cancelled().cancelled() => {
///         if cx.cancelled().reason() == Some(CancelReason::Cancelled) {
///             println!("job cancelled: undoing the work");
///         }
///         Err("not finished".into())
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cancelled {
    token: CancellationToken,
    request: Arc<StopRequest>,
    /// Whether the job was cancelled. For a batch, whether all of its jobs were cancelled.
    job_cancellation: Arc<AtomicBool>,
}

impl Cancelled {
    pub(super) fn child_of(request: &Arc<StopRequest>) -> Self {
        Self { token: request.token.child_token(), request: Arc::clone(request), job_cancellation: Arc::default() }
    }

    /// Returns the reason for the cancellation, or `None` if the token is not cancelled. A lost lease takes precedence over a cancelled
    /// job, and a cancelled job over a shutdown.
    pub fn reason(&self) -> Option<CancelReason> {
        if self.request.lost.load(Acquire) {
            Some(CancelReason::LeaseLost)
        } else if self.job_cancellation.load(Acquire) {
            Some(CancelReason::Cancelled)
        } else {
            self.request.is_requested().then_some(CancelReason::Shutdown)
        }
    }

    /// Marks the job as cancelled and cancels the token.
    pub(crate) fn cancel_job(&self) {
        self.job_cancellation.store(true, Release);
        self.token.cancel();
    }
}

impl Deref for Cancelled {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.token
    }
}

impl Context {
    /// Returns a token that is cancelled when the worker begins to shut down. The handler may continue during the grace period. A handler
    /// that can resume later should return immediately.
    ///
    /// Once a handler has called this method, an error returned during a shutdown is not charged as an attempt, and the job runs again on
    /// another worker. An error of any other handler counts as a failure until the grace period has ended.
    ///
    /// ```
    /// use queue_core::{Context, Failure};
    ///
    /// # async fn copy_page(page: u32) {}
    /// # async fn example(cx: &Context) -> Result<(), Failure> {
    /// for page in cx.last_checkpoint().await?.unwrap_or(0)..1000 {
    ///     if cx.shutting_down().is_cancelled() {
    ///         cx.checkpoint(&page).await?;
    ///         return Err("shutting down".into());
    ///     }
    ///     copy_page(page).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutting_down(&self) -> &CancellationToken {
        self.observes_shutdown.store(true, Relaxed);
        &self.shared.shutting_down
    }

    /// Returns whether a stop of the attempt was requested. If the handler observes shutdowns, the start of a shutdown counts as a request.
    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop.is_requested() || self.observes_shutdown.load(Relaxed) && self.shared.shutting_down.is_cancelled()
    }
}

/// Stop request to the handlers that a worker runs for one queue.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct StopRequest {
    token: CancellationToken,
    lost: AtomicBool,
}

impl StopRequest {
    /// Requests a stop of the handlers because the worker is shutting down.
    pub fn shut_down(&self) {
        self.token.cancel();
    }

    /// Requests a stop of the handlers because the worker lost its leases.
    pub fn lose_lease(&self) {
        self.lost.store(true, Release);
        self.token.cancel();
    }

    /// Returns whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }
}

//! How a handler learns that its attempt must end now, and why.

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

/// Why an attempt must end now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// Somebody cancelled the job: it is not tried again, unless this attempt completes it.
    Cancelled,
    /// The worker stops, and its grace period has ended. An attempt that ends now without having completed is not counted, and the job runs again elsewhere.
    Shutdown,
    /// The worker has lost its right to the job, so others have it: whatever this attempt makes of it is not written.
    LeaseLost,
}

/// Fires when an attempt must end now, and says why: a [`CancellationToken`] of this attempt alone, with a [`reason`](Self::reason).
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
///             println!("nobody wants it any more: undo what was done");
///         }
///         Err("not finished".into())
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cancelled {
    token: CancellationToken,
    all: Arc<Ask>,
    /// This job was cancelled, whatever becomes of the others.
    single: Arc<AtomicBool>,
}

impl Cancelled {
    pub(super) fn under(all: &Arc<Ask>) -> Self {
        Self { token: all.token.child_token(), all: Arc::clone(all), single: Arc::default() }
    }

    /// Why it fired; `None` as long as it has not. If there are several reasons, a lost lease goes before a cancelled job, and that before a
    /// shutdown.
    pub fn reason(&self) -> Option<CancelReason> {
        if self.all.lost.load(Acquire) {
            Some(CancelReason::LeaseLost)
        } else if self.single.load(Acquire) {
            Some(CancelReason::Cancelled)
        } else {
            self.all.is_asked().then_some(CancelReason::Shutdown)
        }
    }

    /// The job was cancelled.
    pub(crate) fn cancel_job(&self) {
        self.single.store(true, Release);
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
    /// Fires when the worker begins to shut down. The handler may go on for the grace period; one that can resume elsewhere leaves at once.
    ///
    /// A handler that has called this leaves with any error: after the shutdown has begun it counts as no attempt, and the job runs again
    /// elsewhere. An error of a handler that never called it is a failure until the grace period has ended.
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
        self.heeds_shutdown.store(true, Relaxed);
        &self.shared.shutting_down
    }

    /// Whether the handler was asked to end, or leaves since its worker's shutdown has begun.
    pub(crate) fn is_asked(&self) -> bool {
        self.ask.is_asked() || self.heeds_shutdown.load(Relaxed) && self.shared.shutting_down.is_cancelled()
    }
}

/// Asks all handlers of a queue to end.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Ask {
    token: CancellationToken,
    lost: AtomicBool,
}

impl Ask {
    /// For the worker stops.
    pub fn shut_down(&self) {
        self.token.cancel();
    }

    /// For others have their jobs.
    pub fn lose(&self) {
        self.lost.store(true, Release);
        self.token.cancel();
    }

    /// Whether it has.
    pub fn is_asked(&self) -> bool {
        self.token.is_cancelled()
    }
}

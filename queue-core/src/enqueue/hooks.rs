//! What this process says of every job that it enqueues.

use std::{
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use serde::Serialize;

use super::options::EnqueueOptions;

/// A job that is being enqueued, as a hook of [`on_enqueue`] sees it.
pub struct Enqueuing<'a>(&'a mut EnqueueOptions);

type Hook = Arc<dyn Fn(&mut Enqueuing<'_>) + Send + Sync>;

/// Most programs have none, and then this is empty.
static HOOKS: OnceLock<RwLock<Vec<Hook>>> = OnceLock::new();

/// From now on calls `hook` for each job that this process enqueues by the methods of [`Job`](crate::Job) and [`Batch`](crate::Batch): to add
/// metadata, such as a tenant or the context of a trace, for its handler or for a [`Middleware`](crate::Middleware) to read.
///
/// It is called when an enqueue is awaited, so it sees the task-locals and the span of who awaits it; of
/// [`Job::enqueue_all`](crate::Job::enqueue_all) once for all, of a batch when a job is added. Hooks are called in the order in which they came, and
/// stay for the life of the process. An enqueue in SQL knows nothing of them. A job with metadata takes the way of options, which is some 10 us of
/// the server's time longer.
///
/// ```
/// use queue_core::on_enqueue;
///
/// tokio::task_local! { static TENANT: String; }
///
/// on_enqueue(|job| {
///     if let Ok(tenant) = TENANT.try_with(String::clone) {
///         job.meta("tenant", tenant);
///     }
/// });
/// ```
pub fn on_enqueue(hook: impl Fn(&mut Enqueuing<'_>) + Send + Sync + 'static) {
    let hooks = HOOKS.get_or_init(RwLock::default);
    hooks.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(hook));
}

/// Lets the hooks of this process say what they say of a job.
pub(super) fn call_hooks(options: &mut EnqueueOptions) {
    let Some(hooks) = HOOKS.get() else { return };
    // A copy, so that a hook may add another.
    let hooks = hooks.read().unwrap_or_else(PoisonError::into_inner).clone();
    for hook in hooks {
        hook(&mut Enqueuing(options));
    }
}

impl Enqueuing<'_> {
    /// The name of its type.
    pub fn job_type(&self) -> &'static str {
        self.0.job_type
    }

    /// The queue that it goes to.
    pub fn queue(&self) -> &str {
        &self.0.queue
    }

    /// Adds this to its metadata, unless that has the key already: what the caller says wins. Values that cannot be stored fail the enqueue, as those of
    /// [`Enqueue::meta`](crate::Enqueue::meta) do.
    pub fn meta(&mut self, key: impl Into<String>, value: impl Serialize) -> &mut Self {
        let key = key.into();
        if !self.0.has_meta(&key) {
            self.0.add_meta(key, &value);
        }
        self
    }
}

/// Without the metadata, which may be secret.
impl fmt::Debug for Enqueuing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueuing").field("job_type", &self.job_type()).field("queue", &self.queue()).finish_non_exhaustive()
    }
}

//! Enqueue hooks: functions that add metadata to every job that the process enqueues.

use std::{
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use serde::Serialize;

use super::options::EnqueueOptions;

/// Job that is being enqueued, as passed to a hook. See [`on_enqueue`].
///
/// ```
/// use queue_core::middleware::{PendingEnqueue, on_enqueue};
///
/// fn add_region(job: &mut PendingEnqueue<'_>) {
///     if job.queue() == "mail" {
///         job.meta("region", "eu");
///     }
/// }
/// on_enqueue(add_region);
/// ```
pub struct PendingEnqueue<'a>(&'a mut EnqueueOptions);

type Hook = Arc<dyn Fn(&mut PendingEnqueue<'_>) + Send + Sync>;

/// Registered hooks. The cell is empty in programs without hooks.
static HOOKS: OnceLock<RwLock<Vec<Hook>>> = OnceLock::new();

/// Registers a hook for all jobs that this process enqueues with [`Job`](crate::Job), [`Batch`](crate::Batch),
/// [`Flow`](crate::flow::Flow) and [`Durable`](crate::durable::Durable).
///
/// A hook adds metadata, such as a tenant or a trace context, for the handler or a [`Middleware`](crate::middleware::Middleware). The hook
/// is called when an enqueue is awaited, so it sees the task-locals and the span of the awaiting task. For
/// [`Job::enqueue_all`](crate::Job::enqueue_all) the hook is called once for all jobs. For a batch or a flow, the hook is called whenever a
/// job is added.
///
/// Hooks are called in registration order and stay registered until the process ends. Enqueues in SQL do not call hooks. Metadata costs
/// the database server about 10 microseconds per job.
///
/// ```
/// use queue_core::middleware::on_enqueue;
///
/// tokio::task_local! { static TENANT: String; }
///
/// on_enqueue(|job| {
///     if let Ok(tenant) = TENANT.try_with(String::clone) {
///         job.meta("tenant", tenant);
///     }
/// });
/// ```
pub fn on_enqueue(hook: impl Fn(&mut PendingEnqueue<'_>) + Send + Sync + 'static) {
    let hooks = HOOKS.get_or_init(RwLock::default);
    hooks.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(hook));
}

/// Calls the hooks of this process for a job.
pub(super) fn call_hooks(options: &mut EnqueueOptions) {
    let Some(hooks) = HOOKS.get() else { return };
    // The list is cloned, so that the lock is not held while a hook runs. A hook may register another hook, which takes the lock for
    // writing.
    let hooks = hooks.read().unwrap_or_else(PoisonError::into_inner).clone();
    for hook in hooks {
        hook(&mut PendingEnqueue(options));
    }
}

impl PendingEnqueue<'_> {
    /// Returns the name of the job type.
    pub fn job_type(&self) -> &'static str {
        self.0.job_type
    }

    /// Returns the queue of the job.
    pub fn queue(&self) -> &str {
        &self.0.queue
    }

    /// Adds a value to the job's metadata, unless the caller has already set the key. If the value cannot be stored, the enqueue fails, as
    /// with [`Enqueue::meta`](crate::Enqueue::meta).
    pub fn meta(&mut self, key: impl Into<String>, value: impl Serialize) -> &mut Self {
        let key = key.into();
        if !self.0.has_meta(&key) {
            self.0.add_meta(key, &value);
        }
        self
    }
}

/// Omits the metadata because it may be secret.
impl fmt::Debug for PendingEnqueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingEnqueue").field("job_type", &self.job_type()).field("queue", &self.queue()).finish_non_exhaustive()
    }
}

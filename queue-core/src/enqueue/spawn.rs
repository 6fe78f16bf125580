//! Children of a durable job: the builder for a child, and the spawned child.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
};

use tracing::Instrument as _;

use super::{
    JobHandle,
    hooks::call_hooks,
    options::{EnqueueOptions, option_methods},
    row::{EncodedJob, EnqueueRow},
    store_error,
};
use crate::{
    connect::JobRef,
    context::{ChildRequest, Durable, StepName},
    define::{Failure, JobId, JobResult, JobType},
    trace,
};

impl Durable {
    /// Spawns a child: a separate job that runs in parallel with this job, on any worker that serves its queue.
    ///
    /// The step with this name and the enqueue of the child commit together. A name therefore never has two children, regardless of how an
    /// attempt ends. Override options of the child's type on the builder, then await the builder. Wait for the result of the returned
    /// [`Child`] with [`join`](Child::join).
    ///
    /// A child runs even if its parent fails or becomes a dead letter. Cancelling the parent cancels the child. An expired or dead child
    /// counts as finished for its parent, and requeuing the child has no effect on the parent.
    ///
    /// # Errors
    /// Fails terminally if the name was already used in this attempt, is journaled as a step of another kind, or exceeds 193 bytes. Returns
    /// [`Error::AtCapacity`](crate::Error::AtCapacity), [`Error::Payload`](crate::Error::Payload) and
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) under the same conditions as an enqueue. Returns
    /// [`Error::Database`](crate::Error::Database) if a job that is not a child of this job holds the child's uniqueness key. Returns
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) if another worker has claimed this job, or this job was cancelled.
    ///
    /// ```
    /// # use queue_core::{JobResult, durable::Durable, job};
    /// #[job(send_only, output = String)]
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Bill {
    ///     user: i64,
    /// }
    ///
    /// # async fn example(cx: &Durable) -> JobResult {
    /// let bill = cx.spawn("bill", Bill { user: 7 }).queue("billing").await?;
    /// let number: String = bill.join().await?; // holds no slot meanwhile
    /// # Ok(()) }
    /// ```
    pub fn spawn<J: JobType>(&self, name: impl Into<StepName>, job: J) -> Spawn<'_, J> {
        Spawn { cx: self, name: name.into(), job, options: EnqueueOptions::for_type::<J>() }
    }
}

/// Builder for a child that a durable job spawns. Created by [`Durable::spawn`].
///
/// ```
/// # use queue_core::{JobResult, durable::Durable, job};
/// # #[job(send_only, output = String)] #[derive(serde::Serialize, serde::Deserialize)] struct Bill { user: i64 }
/// # async fn example(cx: &Durable) -> JobResult {
/// let bill = cx.spawn("bill", Bill { user: 7 })
///     .queue("billing")
///     .max_attempts(5)
///     .await?;
/// # bill.join().await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is spawned until this is awaited"]
pub struct Spawn<'c, J> {
    cx: &'c Durable,
    name: StepName,
    job: J,
    options: EnqueueOptions,
}

impl<'c, J: JobType> Spawn<'c, J> {
    option_methods!((mut self) -> Self, self);

    fn options_mut(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    async fn run(self) -> JobResult<Child<'c, J>> {
        let Self { cx, name, job, mut options } = self;
        let (name, known) = cx.journaled_child(name)?;
        let id = if let Some(id) = known {
            id
        } else {
            call_hooks(&mut options);
            let span = trace::enqueue_span(Some(&options.queue), Some(options.job_type));
            options.add_trace(trace::current_context(&span).as_ref());
            let written = write(cx, &name, job, &options).instrument(span.clone()).await;
            trace::record_enqueue(&span, written.as_ref().map(|id| Some(id as &dyn fmt::Display)));
            written?
        };
        Ok(Child { cx, name, id, job: PhantomData })
    }
}

async fn write<J: JobType>(cx: &Durable, name: &str, job: J, options: &EnqueueOptions) -> Result<JobId, Failure> {
    let store = cx.shared().store;
    let child = {
        options.check()?;
        let row = EnqueueRow::for_store(store, Cow::Owned(EncodedJob::encode(&job)?), options, 0)?;
        drop(job);
        let (payload, options_json) = (row.payload().to_owned(), row.options_json(options)?.into_owned());
        ChildRequest { job_type: options.job_type, payload, options: options_json }
    };
    Ok(cx.spawn_child(name, child).await?.map_err(|error| store_error(error, store))?)
}

impl<'c, J: JobType> IntoFuture for Spawn<'c, J> {
    type Output = JobResult<Child<'c, J>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<J> fmt::Debug for Spawn<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("name", &self.name.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Child that a durable job has spawned. Returned by awaiting [`Durable::spawn`].
///
/// ```
/// # use queue_core::{JobResult, durable::Durable, job};
/// # #[job(send_only, output = String)] #[derive(serde::Serialize, serde::Deserialize)] struct Bill { user: i64 }
/// # async fn example(cx: &Durable) -> JobResult {
/// let bill = cx.spawn("bill", Bill { user: 7 }).await?;
/// println!("billed by job {}", bill.id());
/// let number = bill.join().await?; // waits until the child has finished
/// println!("bill {number}");
/// # Ok(()) }
/// ```
pub struct Child<'c, J> {
    pub(crate) cx: &'c Durable,
    pub(crate) name: String,
    id: JobId,
    job: PhantomData<fn() -> J>,
}

impl<J> Child<'_, J> {
    /// Returns the child's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns a handle to the child. Other code can use the handle to signal, cancel or await the child.
    pub fn handle(&self) -> JobHandle<J> {
        JobHandle::enqueued(JobRef::from_id(self.id).in_store(self.cx.shared().store.anywhere()), crate::define::EnqueueOutcome::New)
    }
}

impl<J> fmt::Debug for Child<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

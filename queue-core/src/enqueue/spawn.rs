//! A child of a durable job about to be enqueued, and the child once it is.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
};

use tracing::Instrument as _;

use super::{
    JobHandle, explain,
    hooks::call_hooks,
    options::{EnqueueOptions, option_methods},
    row::{Encoded, Row},
};
use crate::{
    connect::JobRef,
    context::{ChildRequest, Durable, StepName},
    define::{Failure, JobId, JobResult, JobType},
    trace,
};

impl Durable {
    /// Spawns a child: a job of its own, which runs wherever its queue is served, beside this one. The step of this name and the child's enqueue are one
    /// commit: whatever ends an attempt, a name has one child. Say what differs from its type's options, then await it; the
    /// [`Child`] is waited for with [`join`](Child::join).
    ///
    /// A child runs even if its parent fails or dies; cancelling the parent cancels it. Once it has expired or is a dead letter it is over for
    /// its parent: requeueing it changes nothing there.
    ///
    /// # Errors
    /// Terminal: a name that this attempt has asked for already, that is journaled as another step, or that has more than 193 bytes. As of an enqueue:
    /// [`Error::AtCapacity`](crate::Error::AtCapacity), [`Error::Payload`](crate::Error::Payload), [`Error::OutOfRange`](crate::Error::OutOfRange); and [`Error::Database`](crate::Error::Database) if another job holds the child's uniqueness key, which is
    /// nobody's child. [`Error::LeaseLost`](crate::Error::LeaseLost) when others have the job, or somebody cancels it.
    ///
    /// ```
    /// # use queue_core::{Durable, JobResult, job};
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
        Spawn { cx: self, name: name.into(), job, options: EnqueueOptions::of::<J>() }
    }
}

/// A child that a durable job is about to spawn; from [`Durable::spawn`].
#[must_use = "nothing is spawned until this is awaited"]
pub struct Spawn<'c, J> {
    cx: &'c Durable,
    name: StepName,
    job: J,
    options: EnqueueOptions,
}

impl<'c, J: JobType> Spawn<'c, J> {
    option_methods!((mut self) -> Self, self);

    fn said(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    async fn go(self) -> JobResult<Child<'c, J>> {
        let Self { cx, name, job, mut options } = self;
        let (name, known) = cx.journaled_child(name)?;
        let id = if let Some(id) = known {
            id
        } else {
            call_hooks(&mut options);
            let span = trace::enqueue_span(Some(&options.queue), Some(options.job_type));
            options.carry(trace::current_context(&span).as_ref());
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
        let row = Row::to(store, Cow::Owned(Encoded::of(&job)?), options, 0)?;
        drop(job);
        let (payload, said) = (row.payload().to_owned(), row.carried(options)?.into_owned());
        ChildRequest { job_type: options.job_type, payload, options: said }
    };
    Ok(cx.spawn_child(name, child).await?.map_err(|error| explain(error, store))?)
}

impl<'c, J: JobType> IntoFuture for Spawn<'c, J> {
    type Output = JobResult<Child<'c, J>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

impl<J> fmt::Debug for Spawn<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("name", &self.name.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// A child of a durable job; from [`Durable::spawn`].
pub struct Child<'c, J> {
    pub(crate) cx: &'c Durable,
    pub(crate) name: String,
    id: JobId,
    job: PhantomData<fn() -> J>,
}

impl<J> Child<'_, J> {
    /// The child's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The child as any job is seen: to be signalled, cancelled, or waited for elsewhere.
    pub fn handle(&self) -> JobHandle<J> {
        JobHandle::enqueued(JobRef::from_id(self.id).in_store(self.cx.shared().store.anywhere()), crate::define::Enqueued::New)
    }
}

impl<J> fmt::Debug for Child<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

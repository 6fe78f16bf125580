//! Code revisions of durable jobs, and requests to restart a job.

use super::{StepName, durable::Durable};
use crate::define::{Failure, JobResult, RestartPayload};

impl Durable {
    /// Returns the code revision that this job follows. The first attempt that calls this method with a name journals `current`. In later
    /// attempts, the method returns the journaled number. A release can therefore keep an old code path for jobs that started on it.
    ///
    /// The revision is journaled as a step named `name` and counts as a step. Increase `current` in each release that changes the code
    /// after the call. Add the call in the first release of the handler. If the call is added later, jobs that have already passed this
    /// point journal `current`, although they ran older code. To detect such jobs, use [`journaled`](Self::journaled).
    ///
    /// Most changes need no revision. A release can add, remove and reorder steps, and can rename a step whose effect changes.
    ///
    /// ```
    /// # use queue_core::durable::Durable;
    /// # async fn charge() -> Result<u64, std::io::Error> { Ok(1) }
    /// # async fn reserve() -> Result<u64, std::io::Error> { Ok(1) }
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// match cx.revision("checkout", 2).await? {
    ///     1 => drop(cx.step("charge", charge()).await?), // jobs that started before the step `reserve` existed
    ///     _ => {
    ///         cx.step("reserve", reserve()).await?;
    ///         cx.step("charge", charge()).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`step`](Self::step). If the journaled revision exceeds `current`, for example after a rollback of a
    /// release, the attempt fails. The job is retried until it runs on a release that knows the revision.
    pub async fn revision(&self, name: impl Into<StepName>, current: u32) -> JobResult<u32> {
        let name = name.into();
        let journaled: u32 = self.step(name.clone(), async move { Ok::<_, Failure>(current) }).await?;
        if journaled > current {
            let why = format!("the job started with revision {journaled}, but this release supports revisions up to {current}");
            return Err(self.journal().step_error(&name.name, &why).into());
        }
        Ok(journaled)
    }

    /// Returns the stored name of the job type, which may be an alias.
    pub(crate) fn type_name(&self) -> &'static str {
        self.job_type
    }

    /// Requests a restart of the job. The attempt then exits early.
    pub(crate) fn request_restart(&self, restart: RestartPayload) {
        self.journal().restart(restart);
    }

    /// Aborts the attempt with `failure` because the job cannot be restarted.
    pub(crate) fn reject_restart(&self, failure: Failure) {
        self.journal().abort(failure);
    }
}

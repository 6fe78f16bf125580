//! What tells a release how a durable job began: for changes that a name of a step alone does not carry, and how an attempt is left for good.

use super::{StepName, durable::Durable};
use crate::define::{Anew, Failure, JobResult};

impl Durable {
    /// Which revision of the code the job is under: the first attempt that asks for this name journals `current`, and every later one is given that,
    /// whatever `current` is by then. So a release can do it another way and keep the old way for jobs that are on it.
    ///
    /// It is a step of this name, and counts as one. Raise the number in each release that changes what comes after, and ask in the first release
    /// already: jobs that had come further before anybody asked are given the number that is current when they first do; tell these by
    /// [`journaled`](Self::journaled). Most changes need no revision: steps may be added, removed and reordered freely, and one that does something
    /// else takes a new name.
    ///
    /// ```
    /// # use queue_core::Durable;
    /// # async fn charge() -> Result<u64, std::io::Error> { Ok(1) }
    /// # async fn reserve() -> Result<u64, std::io::Error> { Ok(1) }
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// match cx.revision("checkout", 2).await? {
    ///     1 => drop(cx.step("charge", charge()).await?), // jobs that began before we reserved first
    ///     _ => {
    ///         cx.step("reserve", reserve()).await?;
    ///         cx.step("charge", charge()).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As of a [`step`](Self::step). A job that began under a later revision than `current`, because a release was rolled back, is an error of the
    /// attempt, tried again until one runs that knows it.
    pub async fn revision(&self, name: impl Into<StepName>, current: u32) -> JobResult<u32> {
        let name = name.into();
        let journaled: u32 = self.step(name.clone(), async move { Ok::<_, Failure>(current) }).await?;
        if journaled > current {
            let why = format!("the job began under revision {journaled}, and this release knows it up to {current}");
            return Err(self.journal().wrong(&name.name, &why).into());
        }
        Ok(journaled)
    }

    /// The name of the job's type, which may be an alias.
    pub(crate) fn type_name(&self) -> &'static str {
        self.job_type
    }

    /// That the attempt is left, and the job begins anew.
    pub(crate) fn begin_anew(&self, anew: Anew) {
        self.journal().restart(anew);
    }

    /// That it cannot: the attempt is left with this.
    pub(crate) fn fail_to_begin_anew(&self, failure: Failure) {
        self.journal().break_off(failure);
    }
}

//! Restart of a durable job with another payload, which is encoded and sealed as in an enqueue.

use std::future::pending;

use super::sealing::Sealing;
use crate::{
    context::Durable,
    define::{Failure, JobType, RestartPayload, TerminalExt as _, stored_type},
    error::Error,
    payload,
    seal::Nonce,
};

impl Durable {
    /// Ends this attempt and restarts the job with `payload`. The job keeps its id and gets an empty journal. With restarts, a job that
    /// runs for years stays below the maximum number of steps.
    ///
    /// This method never returns, so neither `?` nor `ok()` nor middleware can treat a restart as a failure. The handler's future,
    /// including other branches of a `join!`, is dropped after the current poll. One commit under the lease writes the new payload,
    /// deletes the old journal and moves the job to the end of its lane. If the process ends before the commit, this attempt is repeated.
    /// A cancellation that is requested before the commit takes precedence.
    ///
    /// A restart discards steps, sleeps, received signals, the checkpoint and the progress. The counts of attempts and crashes restart at
    /// zero, so a job that restarts every night has the full number of attempts each night. The expiry is discarded as well, because the
    /// job has started.
    ///
    /// A restart keeps the id, metadata, queue, priority, `max_attempts`, failures, logs and unreceived signals. The ordering, fairness
    /// and uniqueness keys of the enqueue are kept as well, even if the new payload would have different keys. Children of the job keep
    /// running without a parent, so [`join`](crate::durable::Child::join) a child before the restart if its result matters. A signal
    /// whose `receive` was dropped in a `select!` may already have been received. In this case the signal is discarded with the journal.
    ///
    /// The payload is stored in the same way as in an enqueue, with the type's `version` and `seal`. The attempt fails terminally if the
    /// payload cannot be stored or is not of the job's type.
    ///
    /// ```
    /// # use queue_core::{Handler, JobResult, durable::Durable, job};
    /// # use serde::{Deserialize, Serialize};
    /// #[job(durable)]
    /// #[derive(Serialize, Deserialize)]
    /// struct Crawl {
    ///     page: u64,
    /// }
    ///
    /// # async fn fetch(page: u64) -> Result<bool, std::io::Error> { Ok(page < 3) }
    /// impl Handler for Crawl {
    ///     async fn run(self, cx: &Durable) -> JobResult {
    ///         let more: bool = cx.step("fetch", fetch(self.page)).await?;
    ///         if more {
    ///             cx.restart(Self { page: self.page + 1 }).await;
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    pub async fn restart<J: JobType>(&self, payload: J) -> ! {
        match prepare_restart(self, &payload) {
            Ok(restart) => self.request_restart(restart),
            Err(failure) => self.reject_restart(failure),
        }
        // The worker ends the attempt after this poll and drops the future.
        pending().await
    }
}

fn prepare_restart<J: JobType>(cx: &Durable, job: &J) -> Result<RestartPayload, Failure> {
    let options = J::OPTIONS;
    let name = cx.type_name();
    if options.name != name && !options.aliases.contains(&name) {
        return Err(Failure::terminal(format!("a job of the type `{name}` cannot restart as a job of the type `{}`", options.name)));
    }
    let clear = payload::encode(job.as_serde(), payload::DEFAULT_LIMIT)
        .map_err(|source| Error::Payload { job_type: options.name, source })
        .terminal()?;
    let payload = match Sealing::for_type::<J>() {
        Some(sealing) => sealing.seal(&clear, cx.shared().store, Nonce::Random).terminal()?,
        None => clear,
    };
    Ok(RestartPayload { stored: stored_type(options.name, options.version).into_owned(), payload })
}

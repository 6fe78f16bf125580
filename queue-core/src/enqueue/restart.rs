//! Restart of a durable job with another payload, which is encoded and sealed as by an enqueue.

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
    /// Ends this attempt and restarts the job with this payload: the same job with the same id and an empty journal. A job that runs for years
    /// thereby stays below the maximum number of steps.
    ///
    /// This method never returns, so no `?`, no `ok()` and no middleware can take it for a failure. Once the handler has nothing else to do at
    /// that moment, its future is dropped, including what runs concurrently in a `join!`. The new payload, the end of the old journal and the
    /// job's new place at the end of its lane are one commit under the lease. If the process ends, either all of it has happened or none, and in
    /// the latter case this attempt is repeated. A cancellation requested meanwhile takes precedence.
    ///
    /// Discarded: steps, sleeps, received signals, checkpoint and progress, and the counts of attempts and crashes, which restart at zero. A job
    /// that restarts every night has all its attempts each night. An expiry is discarded too, because the job has begun.
    ///
    /// Kept: id, metadata, queue, priority, `max_attempts`, the ordering, fair and uniqueness keys of its enqueue (even if the new payload would
    /// result in others), signals that were sent and not received, failures and logs. Its children keep running without a parent:
    /// [`join`](crate::Child::join) those whose result matters before. A signal whose `receive` was dropped in a `select!` may have been received
    /// already, and is discarded with the journal.
    ///
    /// The payload is stored as this release would enqueue it, with the type's `version` and `seal`. A payload that cannot be stored, or of
    /// another type than the job's, is a terminal failure of the attempt.
    ///
    /// ```
    /// # use queue_core::{Durable, Handler, JobResult, job};
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
        // The attempt ends here.
        pending().await
    }
}

fn prepare_restart<J: JobType>(cx: &Durable, job: &J) -> Result<RestartPayload, Failure> {
    let options = J::OPTIONS;
    let name = cx.type_name();
    if options.name != name && !options.aliases.contains(&name) {
        return Err(Failure::terminal(format!("a job of the type `{name}` cannot restart as a job of the type `{}`", options.name)));
    }
    let clear =
        payload::encode(job, payload::DEFAULT_LIMIT).map_err(|source| Error::Payload { job_type: options.name, source }).terminal()?;
    let payload = match Sealing::for_type::<J>() {
        Some(sealing) => sealing.seal(&clear, cx.shared().store, Nonce::Random).terminal()?,
        None => clear,
    };
    Ok(RestartPayload { stored: stored_type(options.name, options.version).into_owned(), payload })
}

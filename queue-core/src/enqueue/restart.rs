//! How a durable job begins anew: with another payload, which goes to the store as that of an enqueue does.

use std::future::pending;

use super::sealing::Sealing;
use crate::{
    context::Durable,
    define::{Anew, Failure, JobType, TerminalExt as _, stored_type},
    error::Error,
    payload,
    seal::Nonce,
};

impl Durable {
    /// Ends this attempt, and begins the job anew with this payload: the same job with the same id, and an empty journal, so that what goes on for years
    /// does not come to the most steps that a job may have.
    ///
    /// It is never returned from, as a wait that holds the job for ever: no `?`, no `ok()` and no middleware takes it for a failure. Once the handler
    /// has nothing else to do at that moment its future is dropped, and what runs beside it in a `join!` as well. The new payload, the end of the old
    /// journal and the job's new place at the end of its lane are one commit, under the lease: whatever ends the process, all of it happened or none,
    /// and then this attempt is done again. Somebody who has cancelled the job meanwhile has cancelled it.
    ///
    /// What goes: steps, sleeps, received signals, checkpoint and progress, and the numbers of attempts and crashes, which begin at zero: a job that
    /// begins anew every night has as many attempts each night. A time to expire at goes, for the job has begun. What stays: id, metadata, queue,
    /// priority, `max_attempts`, the ordering, fair and uniqueness keys of its enqueue, also if the new payload would make others, signals that
    /// were sent and not received, and failures and logs. Its children go on and are nobody's: [`join`](crate::Child::join) those that count before.
    /// A signal whose `receive` was dropped in a `select!` may have been received already, and goes with the journal.
    ///
    /// The payload is stored as an enqueue of this release stores it, with the type's `version` and `seal`. One that cannot be stored, or of another
    /// type than the job's, is a terminal failure of the attempt.
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
        match anew(self, &payload) {
            Ok(anew) => self.request_restart(anew),
            Err(failure) => self.reject_restart(failure),
        }
        // The attempt ends here.
        pending().await
    }
}

fn anew<J: JobType>(cx: &Durable, job: &J) -> Result<Anew, Failure> {
    let options = J::OPTIONS;
    let name = cx.type_name();
    if options.name != name && !options.aliases.contains(&name) {
        return Err(Failure::terminal(format!("a job of the type `{name}` cannot begin anew as one of `{}`", options.name)));
    }
    let clear =
        payload::encode(job, payload::DEFAULT_LIMIT).map_err(|source| Error::Payload { job_type: options.name, source }).terminal()?;
    let payload = match Sealing::of::<J>() {
        Some(sealing) => sealing.seal(&clear, cx.shared().store, Nonce::Random).terminal()?,
        None => clear,
    };
    Ok(Anew { stored: stored_type(options.name, options.version).into_owned(), payload })
}

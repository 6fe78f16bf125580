//! Children of durable jobs: a step spawns a child, and the handler waits for the child's result. The `enqueue` module defines the
//! options of a child.
//!
//! One statement journals the step and enqueues the child. The result of a finished child is immutable, so every attempt reads the same
//! result without journaling it.

use std::time::Duration;

use super::{
    ChildEntry, ChildStatus, StepName,
    durable::{Durable, MAX_NAME_BYTES, checked_name},
    journal::{JOIN_SUFFIX, StepResult, Wait},
};
use crate::{
    define::{Failure, JobId},
    error::Error,
};

/// Initial interval between polls for the completion of a child or a map, while other steps keep the attempt running. Doubles up to
/// [`MAX_POLL_INTERVAL`].
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum interval between polls for the completion of a child or a map.
pub(super) const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// Journal entry of a step that spawned a child: the id of the child.
#[derive(serde::Deserialize)]
struct ChildStep {
    child: JobId,
}

/// Child to enqueue.
pub(crate) struct ChildRequest {
    pub(crate) job_type: &'static str,
    /// Payload as JSON text.
    pub(crate) payload: String,
    /// Options as JSON text.
    pub(crate) options: String,
}

impl Durable {
    /// Checks the step name, which each attempt may use only once. Returns the name, and the id of the child if an earlier attempt has
    /// spawned the child.
    pub(crate) fn journaled_child(&self, name: StepName) -> Result<(String, Option<JobId>), Failure> {
        let (journal, name) = (self.journal(), checked_name(self, name)?);
        if name.len() + JOIN_SUFFIX.len() > MAX_NAME_BYTES {
            return Err(Failure::terminal(journal.step_error(&name, "the name of a child step is limited to 193 bytes")));
        }
        let mismatch = || journal.step_error(&name, "it is journaled as a different kind of step, not as a child; use another name");
        let child = match journal.look_up(&name)? {
            None => None,
            Some(StepResult::Step(Some(text))) => Some(serde_json::from_str::<ChildStep>(&text).map_err(|_| mismatch())?.child),
            Some(StepResult::Step(None) | StepResult::Sleep(_)) => return Err(mismatch().into()),
        };
        Ok((name, child))
    }

    /// Enqueues the child of the step `name` and journals the step, in one commit. The outer error is a failure of the attempt, such as a
    /// lost lease. The inner error is the database error of the enqueue.
    pub(crate) async fn spawn_child(&self, name: &str, child: ChildRequest) -> Result<sqlx::Result<JobId>, Failure> {
        let journal = self.journal();
        let _in_flight = journal.begin_step();
        let ChildRequest { job_type, payload, options } = child;
        journal.spawn(ChildEntry { fence: journal.fence(), name: name.to_owned(), job_type, payload, options }).await
    }

    /// Waits until the child spawned by the step has ended, and returns the child's result.
    pub(crate) async fn wait_for_child(&self, name: &str) -> Result<ChildStatus, Failure> {
        let (journal, mut interval) = (self.journal(), POLL_INTERVAL);
        loop {
            {
                let _in_flight = journal.begin_step();
                let found = self.shared().backend.child(self.id(), name).await.map_err(Error::Database)?;
                let child = found.ok_or_else(|| journal.step_error(name, "the spawned child does not exist"))?;
                if child.state.is_some() {
                    return Ok(child);
                }
            }
            let _waiting = journal.start_wait(Wait { until: None, signal: Some(format!("{name}{JOIN_SUFFIX}")) });
            tokio::time::sleep(interval).await;
            interval = (2 * interval).min(MAX_POLL_INTERVAL);
        }
    }
}

//! Maps of durable jobs: a step spawns many jobs in batches and waits for all of them. The `enqueue` module defines the options of the
//! jobs.
//!
//! One transaction writes the jobs of a batch and, as its last statement, the fenced record of the batch. The next attempt continues after
//! the last recorded batch.

use std::sync::Arc;

use super::{
    ChildStatus, ChunkEntry, CloseEntry, MapProgress, OwnedTransaction, StepName,
    children::{MAX_POLL_INTERVAL, POLL_INTERVAL},
    durable::{Durable, MAX_NAME_BYTES, checked_name},
    fence::WrittenStep,
    journal::{JOIN_SUFFIX, StepResult, Wait},
};
use crate::{
    define::{Failure, JobId},
    error::Error,
};

/// Journal entry of a map step: the total number of jobs.
#[derive(serde::Deserialize)]
struct MapStep {
    map: i64,
}

/// Number and position of a batch, and the map's concurrency limit.
pub(crate) struct ChunkPosition {
    pub(crate) chunk: i32,
    /// Position of the batch's first job within the map.
    pub(crate) first: i64,
    /// Maximum number of the map's jobs that are ready or running at the same time; `None` for no limit.
    pub(crate) most: Option<i32>,
}

impl Durable {
    /// Checks the step name, which each attempt may use only once. Returns the name, and the number of jobs if an earlier attempt has
    /// spawned all jobs of the map.
    pub(crate) fn journaled_map(&self, name: StepName) -> Result<(String, Option<i64>), Failure> {
        let (journal, name) = (self.journal(), checked_name(self, name)?);
        if name.len() + JOIN_SUFFIX.len() > MAX_NAME_BYTES {
            return Err(Failure::terminal(journal.step_error(&name, "the name of a map step is limited to 193 bytes")));
        }
        let mismatch = || journal.step_error(&name, "it is journaled as a different kind of step, not as a map; use another name");
        let total = match journal.look_up(&name)? {
            None => None,
            Some(StepResult::Step(Some(text))) => Some(serde_json::from_str::<MapStep>(&text).map_err(|_| mismatch())?.map),
            Some(StepResult::Step(None) | StepResult::Sleep(_)) => return Err(mismatch().into()),
        };
        Ok((name, total))
    }

    /// Counts the caller as a running step until the returned guard is dropped. While a step is running, the attempt is not suspended.
    pub(crate) fn hold_attempt(&self) -> impl Drop + Send + use<> {
        self.journal().begin_step()
    }

    /// Loads the progress of a map. The progress is empty if no earlier attempt has begun to spawn the map's jobs.
    pub(crate) async fn load_map_progress(&self, name: &str) -> Result<MapProgress, Failure> {
        Ok(self.shared().backend.gather(self.id(), name, true).await.map_err(Error::Database)?.unwrap_or_default())
    }

    /// Spawns a batch of jobs. `enqueue` receives the backend's transaction, in which it writes the jobs. If the backend uses no
    /// transaction, `enqueue` receives `None`. The batch is committed on return. The write continues if this future is dropped.
    pub(crate) async fn add_chunk<W>(
        &self,
        name: &str,
        position: ChunkPosition,
        enqueue: impl FnOnce(Option<OwnedTransaction>) -> W + Send + 'static,
    ) -> Result<(), Failure>
    where
        W: Future<Output = Result<(Option<OwnedTransaction>, Vec<JobId>), Failure>> + Send + 'static,
    {
        let (journal, job) = (self.journal(), self.id());
        let (fence, backend, step) = (journal.fence(), Arc::clone(&self.shared().backend), name.to_owned());
        let ChunkPosition { chunk, first, most } = position;
        let work = async move {
            let (tx, ids) = enqueue(backend.begin_chunk(job).await?).await?;
            let entry = ChunkEntry { fence, name: step, chunk, first, ids, most };
            Ok::<_, Failure>(backend.add_chunk(tx, entry).await.map_err(Error::Database)?)
        };
        match journal.run_detached(work).await?? {
            Some(true) => Ok(()),
            Some(false) => Err(journal.step_error(name, "an earlier attempt has just spawned this chunk").into()),
            None => Err(journal.lease_lost().into()),
        }
    }

    /// Records that all jobs of the map have been spawned.
    pub(crate) async fn close_map(&self, name: &str, total: i64) -> Result<(), Failure> {
        let (journal, backend) = (self.journal(), Arc::clone(&self.shared().backend));
        let entry = CloseEntry { fence: journal.fence(), name: name.to_owned(), total };
        let (attempt, recording, step) = (entry.fence.attempt, Arc::clone(journal), name.to_owned());
        let closed = journal.run_detached(async move {
            let closed = backend.close_gather(entry).await;
            if matches!(closed, Ok(Some(true))) {
                recording.record(WrittenStep { attempt, name: step, output: Some(format!("{{\"map\":{total}}}")), wait: None });
            }
            closed
        });
        match closed.await?.map_err(Error::Database)? {
            Some(true) => Ok(()),
            Some(false) => Err(self.map_mismatch(name)),
            None => Err(journal.lease_lost().into()),
        }
    }

    /// Returns the failure for a map whose jobs differ from the jobs spawned by an earlier attempt.
    pub(crate) fn map_mismatch(&self, name: &str) -> Failure {
        let why = "an earlier attempt spawned a different number of jobs: the mapped jobs must be the same in each attempt";
        Failure::terminal(self.journal().step_error(name, why))
    }

    /// Waits until all jobs of the map have finished. Returns the number of jobs for each outcome.
    pub(crate) async fn wait_for_map(&self, name: &str) -> Result<MapProgress, Failure> {
        let (journal, mut interval) = (self.journal(), POLL_INTERVAL);
        loop {
            {
                let _in_flight = journal.begin_step();
                let found = self.shared().backend.gather(self.id(), name, false).await.map_err(Error::Database)?;
                let found = found.ok_or_else(|| journal.step_error(name, "the spawned map does not exist"))?;
                if found.need == 0 {
                    return Ok(found);
                }
            }
            let _waiting = journal.start_wait(Wait { until: None, signal: Some(format!("{name}{JOIN_SUFFIX}")) });
            tokio::time::sleep(interval).await;
            interval = (2 * interval).min(MAX_POLL_INTERVAL);
        }
    }

    /// Loads the results of the jobs in a batch.
    pub(crate) async fn load_map_chunk(&self, name: &str, chunk: i32) -> Result<Vec<ChildStatus>, Failure> {
        let _in_flight = self.journal().begin_step();
        Ok(self.shared().backend.parts(self.id(), name, chunk).await.map_err(Error::Database)?)
    }
}

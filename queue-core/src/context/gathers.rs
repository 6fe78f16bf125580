//! Maps of a durable job: how a step spawns many jobs, a chunk at a time, and how the end of all is waited for. What they are enqueued with is
//! `enqueue`'s part.
//!
//! A chunk's entries and the note of them are one transaction, with the fence as its last statement: the next attempt goes on after the last chunk
//! that is there.

use std::sync::Arc;

use super::{
    ChildLook, ChunkEntry, CloseEntry, GatherLook, OwnTransaction, StepName,
    children::{LONGEST_LOOK, LOOK},
    durable::{Durable, LONGEST_NAME, checked},
    fence::Finished,
    journal::{Done, JOIN, Wait},
};
use crate::{
    define::{Failure, JobId},
    error::Error,
};

/// What a step that has mapped is journaled with.
#[derive(serde::Deserialize)]
struct Mapped {
    map: i64,
}

/// Where a chunk goes.
pub(crate) struct NewChunk {
    pub(crate) chunk: i32,
    /// The place of its first job.
    pub(crate) first: i64,
    /// How many may run at once.
    pub(crate) most: Option<i32>,
}

impl Durable {
    /// Its name, and how many jobs the step of that name has spawned; none if they are to be spawned. A name is asked for once an attempt.
    pub(crate) fn mapped(&self, name: StepName) -> Result<(String, Option<i64>), Failure> {
        let (journal, name) = (self.journal(), checked(self, name)?);
        if name.len() + JOIN.len() > LONGEST_NAME {
            return Err(Failure::terminal(journal.wrong(&name, "the name of a map has at most 193 bytes")));
        }
        let wrong = || journal.wrong(&name, "it is journaled as another step, and this is a map; give it another name");
        let known = match journal.ask(&name)? {
            None => None,
            Some(Done::Step(Some(text))) => Some(serde_json::from_str::<Mapped>(&text).map_err(|_| wrong())?.map),
            Some(Done::Step(None) | Done::Sleep(_)) => return Err(wrong().into()),
        };
        Ok((name, known))
    }

    /// Counts what it does as a step that is on its way: the attempt is not left meanwhile.
    pub(crate) fn hold(&self) -> impl Drop + Send + use<> {
        self.journal().begin()
    }

    /// How far an earlier attempt has come.
    pub(crate) async fn spawned_so_far(&self, name: &str) -> Result<GatherLook, Failure> {
        Ok(self.shared().backend.gather(self.id(), name, true).await.map_err(Error::Database)?.unwrap_or_default())
    }

    /// Spawns a chunk, which `enqueue` writes to the transaction, if there is one; committed when this returns. It goes on when this is dropped.
    pub(crate) async fn add_chunk<W>(
        &self,
        name: &str,
        at: NewChunk,
        enqueue: impl FnOnce(Option<OwnTransaction>) -> W + Send + 'static,
    ) -> Result<(), Failure>
    where
        W: Future<Output = Result<(Option<OwnTransaction>, Vec<JobId>), Failure>> + Send + 'static,
    {
        let (journal, job) = (self.journal(), self.id());
        let (fence, backend, owned) = (journal.fence(), Arc::clone(&self.shared().backend), name.to_owned());
        let NewChunk { chunk, first, most } = at;
        let work = async move {
            let (tx, ids) = enqueue(backend.begin_chunk(job).await?).await?;
            let entry = ChunkEntry { fence, name: owned, chunk, first, ids, most };
            Ok::<_, Failure>(backend.add_chunk(tx, entry).await.map_err(Error::Database)?)
        };
        match journal.beside(work).await?? {
            Some(true) => Ok(()),
            Some(false) => Err(journal.wrong(name, "an earlier attempt has spawned this part of it just now").into()),
            None => Err(journal.lost().into()),
        }
    }

    /// Says that all is spawned.
    pub(crate) async fn close_map(&self, name: &str, total: i64) -> Result<(), Failure> {
        let (journal, backend) = (self.journal(), Arc::clone(&self.shared().backend));
        let entry = CloseEntry { fence: journal.fence(), name: name.to_owned(), total };
        let (attempt, noting, owned) = (entry.fence.attempt, Arc::clone(journal), name.to_owned());
        let closed = journal.beside(async move {
            let closed = backend.close_gather(entry).await;
            if matches!(closed, Ok(Some(true))) {
                noting.note(Finished { attempt, name: owned, output: Some(format!("{{\"map\":{total}}}")), wait: None });
            }
            closed
        });
        match closed.await?.map_err(Error::Database)? {
            Some(true) => Ok(()),
            Some(false) => Err(self.differs(name)),
            None => Err(journal.lost().into()),
        }
    }

    /// That the jobs are not those that an earlier attempt has begun to spawn.
    pub(crate) fn differs(&self, name: &str) -> Failure {
        let why = "an earlier attempt has spawned another number of jobs: what is mapped has to be the same in each attempt";
        Failure::terminal(self.journal().wrong(name, why))
    }

    /// Waits until all the jobs of this step are over, and says how many came to what.
    pub(crate) async fn map_over(&self, name: &str) -> Result<GatherLook, Failure> {
        let (journal, mut look) = (self.journal(), LOOK);
        loop {
            {
                let _under_way = journal.begin();
                let found = self.shared().backend.gather(self.id(), name, false).await.map_err(Error::Database)?;
                let found = found.ok_or_else(|| journal.wrong(name, "what it has spawned is not there"))?;
                if found.need == 0 {
                    return Ok(found);
                }
            }
            let _waiting = journal.waiting(Wait { until: None, signal: Some(format!("{name}{JOIN}")) });
            tokio::time::sleep(look).await;
            look = (2 * look).min(LONGEST_LOOK);
        }
    }

    /// What the jobs of a chunk came to.
    pub(crate) async fn map_parts(&self, name: &str, chunk: i32) -> Result<Vec<ChildLook>, Failure> {
        let _under_way = self.journal().begin();
        Ok(self.shared().backend.parts(self.id(), name, chunk).await.map_err(Error::Database)?)
    }
}

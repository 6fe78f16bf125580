//! Children of a durable job: how a step spawns one, and how their ends are waited for. What a child is enqueued with is `enqueue`'s part.
//!
//! The step and the child's entry are one statement's writes. What a child came to is told once, after its end, so that every attempt reads the
//! same; it is no step.

use std::time::Duration;

use super::{
    ChildEntry, ChildLook, StepName,
    durable::{Durable, LONGEST_NAME, checked},
    journal::{Done, JOIN, Wait},
};
use crate::{
    define::{Failure, JobId},
    error::Error,
};

/// While an attempt goes on beside its wait, it looks for the end: after this time first, then after twice as long, up to the longest.
pub(super) const LOOK: Duration = Duration::from_secs(1);
pub(super) const LONGEST_LOOK: Duration = Duration::from_mins(1);

/// What a step that has spawned a child is journaled with.
#[derive(serde::Deserialize)]
struct Spawned {
    child: JobId,
}

/// What is to be spawned.
pub(crate) struct NewChild {
    pub(crate) job_type: &'static str,
    /// JSON texts.
    pub(crate) payload: String,
    pub(crate) options: String,
}

impl Durable {
    /// Its name, and the child that a step of that name has spawned; none if it is to be spawned. A name is asked for once an attempt.
    pub(crate) fn spawned(&self, name: StepName) -> Result<(String, Option<JobId>), Failure> {
        let (journal, name) = (self.journal(), checked(self, name)?);
        if name.len() + JOIN.len() > LONGEST_NAME {
            return Err(Failure::terminal(journal.wrong(&name, "the name of a child has at most 193 bytes")));
        }
        let wrong = || journal.wrong(&name, "it is journaled as another step, and this spawns a child; give it another name");
        let known = match journal.ask(&name)? {
            None => None,
            Some(Done::Step(Some(text))) => Some(serde_json::from_str::<Spawned>(&text).map_err(|_| wrong())?.child),
            Some(Done::Step(None) | Done::Sleep(_)) => return Err(wrong().into()),
        };
        Ok((name, known))
    }

    /// Spawns it, unless the answer to that was lost before; committed when this returns. The inner error is the database's.
    pub(crate) async fn spawn_new(&self, name: &str, child: NewChild) -> Result<sqlx::Result<JobId>, Failure> {
        let journal = self.journal();
        let _under_way = journal.begin();
        let NewChild { job_type, payload, options } = child;
        journal.spawn(ChildEntry { fence: journal.fence(), name: name.to_owned(), job_type, payload, options }).await
    }

    /// Waits until the child of this step is over, and says what it came to.
    pub(crate) async fn child_over(&self, name: &str) -> Result<ChildLook, Failure> {
        let (journal, mut look) = (self.journal(), LOOK);
        loop {
            {
                let _under_way = journal.begin();
                let found = self.shared().backend.child(self.id(), name).await.map_err(Error::Database)?;
                let child = found.ok_or_else(|| journal.wrong(name, "the child that it has spawned is not there"))?;
                if child.state.is_some() {
                    return Ok(child);
                }
            }
            let _waiting = journal.waiting(Wait { until: None, signal: Some(format!("{name}{JOIN}")) });
            tokio::time::sleep(look).await;
            look = (2 * look).min(LONGEST_LOOK);
        }
    }
}

//! Chains of jobs that run one after the other.

use std::{collections::BTreeSet, fmt};

use super::{builder::Flow, handle::FlowHandle, node::Node};
use crate::{
    connect::IntoConnection,
    define::{Durability, JobType, NodeOutput},
    error::Error,
    schema::Store,
};

/// Chain of jobs. Each job runs after the previous job has completed. Created by [`Job::then`](crate::Job::then).
///
/// ```no_run
/// # use queue_core::{Job as _, flow::NodeOutput, job};
/// # #[job(send_only, output = String)] #[derive(serde::Serialize, serde::Deserialize)] struct Fetch { url: String }
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Parse { page: NodeOutput<String> }
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Mail;
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let fetch = Fetch { url: "https://example.org".into() };
/// let flow = fetch.then(|page| Parse { page }).then(|_| Mail).enqueue(pool).await?;
/// println!("flow {} has {} jobs", flow.id(), flow.jobs().count());
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until `enqueue` is awaited"]
pub struct Then<J> {
    flow: Flow,
    last: Node<J>,
    names: BTreeSet<String>,
}

impl<J: JobType> Then<J> {
    pub(in crate::enqueue) fn first(job: J) -> Self {
        let name = J::OPTIONS.name;
        let mut flow = Flow::new(name);
        Self { last: flow.add(name, job), flow, names: BTreeSet::from([name.to_owned()]) }
    }

    /// Adds the next job. The next job's payload may contain the output of the previous job.
    pub fn then<N: JobType>(self, next: impl FnOnce(NodeOutput<J::Output>) -> N) -> Then<N> {
        let Self { mut flow, last, mut names } = self;
        let name = N::OPTIONS.name;
        let free = (2..).map(|nr| format!("{name}-{nr}"));
        let name = std::iter::once(name.to_owned()).chain(free).find(|name| names.insert(name.clone())).unwrap_or_default();
        let next = flow.add(name, next(last.output())).after(&last);
        Then { flow, last: next, names }
    }

    /// Sets the store into which the jobs are enqueued, instead of the default store.
    pub fn store(self, store: Store) -> Self {
        Self { flow: self.flow.store(store), ..self }
    }

    /// Sets the durability of the enqueue; see [`Flow::durability`].
    pub fn durability(self, durability: Durability) -> Self {
        Self { flow: self.flow.durability(durability), ..self }
    }

    /// Enqueues all jobs as a [`Flow`]. Each node is named after its job type, with a number appended to a repeated name.
    ///
    /// # Errors
    /// Returns the errors of [`Flow::enqueue`].
    pub async fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Result<FlowHandle, Error> {
        self.flow.enqueue(on).await
    }
}

impl<J> fmt::Debug for Then<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Then").field("jobs", &self.names).finish_non_exhaustive()
    }
}

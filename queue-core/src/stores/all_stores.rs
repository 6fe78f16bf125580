//! Queries and operations on all stores. Several stores are queried concurrently, and an error in one store does not affect the other
//! stores.

use std::{collections::VecDeque, future::Future, time::Duration};

use serde::Serialize;
use tokio::task::JoinSet;

use super::{
    job::StoreJob,
    roster::{Member, Roster},
};
use crate::{
    connect::JobRef,
    define::JobState,
    error::Error,
    operate::{self, BulkOutcome, Filter, JobRecord, Operation, StateCount, Why},
};

/// Result of a query or an operation in one of several stores.
///
/// ```no_run
/// # async fn example(roster: &queue_core::stores::Roster) {
/// use queue_core::operate::Filter;
///
/// for found in roster.list(&Filter::default()).await {
///     match found.answer {
///         Ok(page) => println!("{}: {} jobs", found.member.name(), page.jobs.len()),
///         Err(error) => println!("{}: {error}", found.member.name()),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct InStore<T> {
    /// Store that was queried or changed.
    pub member: Member,
    /// Result that the store returned, or an error.
    pub answer: Result<T, Error>,
}

/// Number of jobs by state in one store. Counting stops after a few thousand rows per state. [`StateCount::partial`] marks lower bounds.
///
/// ```no_run
/// # async fn example(roster: &queue_core::stores::Roster) -> Result<(), queue_core::Error> {
/// use queue_core::JobState;
///
/// for found in roster.counts().await {
///     let counts = found.answer?;
///     println!("{}: {} dead letters", found.member.name(), counts.of(JobState::Dead));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StoreCounts {
    /// Number of jobs for each state.
    pub totals: Vec<StateCount>,
}

/// Maximum number of stores that are queried concurrently.
const CONCURRENCY: usize = 8;

/// Timeout for a query to a store or to the home database. A timeout is reported as an error, so an unresponsive store cannot block the
/// results of other stores.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

impl Roster {
    /// Calls `ask` for each store and returns the results, sorted by store name.
    pub async fn each<T, F>(&self, ask: impl Fn(Member) -> F) -> Vec<InStore<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut left: VecDeque<Member> = self.all().iter().cloned().collect();
        let (mut asking, mut answers) = (JoinSet::new(), Vec::with_capacity(left.len()));
        loop {
            while asking.len() < CONCURRENCY
                && let Some(member) = left.pop_front()
            {
                let query = ask(member.clone());
                asking.spawn(async move { InStore { member, answer: query.await } });
            }
            match asking.join_next().await {
                Some(Ok(answer)) => answers.push(answer),
                // A task ends without a result only if the future returned by `ask` panicked. The results then have no entry for the
                // store.
                Some(Err(_)) => {}
                None => break,
            }
        }
        answers.sort_by(|one: &InStore<T>, other| one.member.name().cmp(other.member.name()));
        answers
    }

    /// Returns the number of jobs by state for each store.
    pub async fn counts(&self) -> Vec<InStore<StoreCounts>> {
        self.each(|member| {
            with_timeout(async move {
                let busiest = member.queue().busiest(1).await?;
                Ok(StoreCounts { totals: busiest.totals })
            })
        })
        .await
    }

    /// Returns the first page of jobs that match `filter`, for each store.
    pub async fn list(&self, filter: &Filter) -> Vec<InStore<operate::Page>> {
        self.each(|member| {
            let filter = filter.clone();
            with_timeout(async move { member.queue().jobs().matching(&filter).list().await })
        })
        .await
    }

    /// Applies `operation` to all jobs that match `filter` in all stores, without a timeout.
    pub async fn apply(&self, filter: &Filter, operation: Operation) -> Vec<InStore<BulkOutcome>> {
        self.each(|member| {
            let filter = filter.clone();
            async move { member.queue().jobs().matching(&filter).apply(operation).await }
        })
        .await
    }

    /// Returns a job from one of the stores.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if this process does not know the store, and [`Error::NotFound`] if the job does not exist. Returns an
    /// error if the query fails.
    pub async fn find(&self, job: &StoreJob) -> Result<JobRecord, Error> {
        let member = self.member_of(job)?;
        JobRef::from_id(job.id()).in_store(member.store()).find(member.pool()).await
    }

    /// Explains why a job in one of the stores is not running. A job that does not exist is reported as a cause, not as an error.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if this process does not know the store, and an error if the query fails.
    pub async fn why(&self, job: &StoreJob) -> Result<Why, Error> {
        let member = self.member_of(job)?;
        member.queue().job(job.id()).why().await
    }

    /// Returns the store that contains the job.
    ///
    /// # Errors
    /// Returns [`Error::NoStore`] if this process does not know the store.
    pub fn member_of(&self, job: &StoreJob) -> Result<Member, Error> {
        self.get(job.store()).ok_or_else(|| Error::NoStore { name: job.store().to_owned() })
    }
}

impl StoreCounts {
    /// Returns the number of jobs in a state. The number is a lower bound if counting stopped at a limit.
    pub fn of(&self, state: JobState) -> i64 {
        self.totals.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
    }
}

/// Applies the query timeout to a future, which must be cancel safe.
pub(super) async fn with_timeout<T>(query: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(QUERY_TIMEOUT, query).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

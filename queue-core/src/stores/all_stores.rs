//! Queries and operations over all stores. Several stores are queried concurrently; the error of one does not affect the others.

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
    operate::{self, Act, Filter, JobRecord, StateCount, Swept, Why},
};

/// Result from one store.
#[derive(Debug)]
pub struct Of<T> {
    /// The store.
    pub member: Member,
    /// Its result or error.
    pub answer: Result<T, Error>,
}

/// Number of a store's jobs by state, each counted up to a few thousand.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StoreCounts {
    /// Counts by state.
    pub totals: Vec<StateCount>,
}

/// Number of stores queried concurrently.
const CONCURRENCY: usize = 8;

/// Timeout for a query of a store or of the home database. It is reported as a failure, so that one unresponsive store does not delay others.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

impl Roster {
    /// Calls `ask` for each store; the results are in the order of the stores' names.
    pub async fn each<T, F>(&self, ask: impl Fn(Member) -> F) -> Vec<Of<T>>
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
                let asked = ask(member.clone());
                asking.spawn(async move { Of { member, answer: asked.await } });
            }
            match asking.join_next().await {
                Some(Ok(answer)) => answers.push(answer),
                // Only a panic in the caller's future ends a task without a result.
                Some(Err(_)) => {}
                None => break,
            }
        }
        answers.sort_by(|one: &Of<T>, other| one.member.name().cmp(other.member.name()));
        answers
    }

    /// Returns the number of jobs of each store by state.
    pub async fn counts(&self) -> Vec<Of<StoreCounts>> {
        self.each(|member| {
            with_timeout(async move {
                let busiest = operate::busiest(member.pool(), member.store(), 1).await?;
                Ok(StoreCounts { totals: busiest.totals })
            })
        })
        .await
    }

    /// Returns one page of each store's jobs that match `filter`.
    pub async fn list(&self, filter: &Filter) -> Vec<Of<operate::Page>> {
        self.each(|member| {
            let filter = filter.clone();
            with_timeout(async move { operate::list(member.pool(), member.store(), &filter).await })
        })
        .await
    }

    /// Applies `act` to all jobs of all stores that match `filter`. There is no timeout.
    pub async fn act_all(&self, filter: &Filter, act: Act) -> Vec<Of<Swept>> {
        self.each(|member| {
            let filter = filter.clone();
            async move { operate::act_all(member.pool(), member.store(), &filter, act).await }
        })
        .await
    }

    /// Returns a job of one of the stores.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotFound`], [`Error::Database`].
    pub async fn find(&self, job: &StoreJob) -> Result<JobRecord, Error> {
        let member = self.member_of(job)?;
        JobRef::from_id(job.id()).in_store(member.store()).find(member.pool()).await
    }

    /// Returns why a job of one of the stores is not running.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotFound`], [`Error::Database`].
    pub async fn why(&self, job: &StoreJob) -> Result<Why, Error> {
        let member = self.member_of(job)?;
        operate::why(member.pool(), member.store(), job.id()).await
    }

    /// Returns the store of a job.
    ///
    /// # Errors
    /// [`Error::NoStore`].
    pub fn member_of(&self, job: &StoreJob) -> Result<Member, Error> {
        self.get(job.store()).ok_or_else(|| Error::NoStore { name: job.store().to_owned() })
    }
}

impl StoreCounts {
    /// Returns the number of jobs in a state; a lower bound if the count was limited.
    pub fn of(&self, state: JobState) -> i64 {
        self.totals.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
    }
}

/// Applies the timeout. Only for futures that can be dropped half-way without effect.
pub(super) async fn with_timeout<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(QUERY_TIMEOUT, asked).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

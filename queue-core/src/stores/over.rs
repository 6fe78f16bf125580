//! What is asked of all stores at once, or done in all. Several are asked at a time; one that fails or does not answer is told of, and spoils nothing.

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

/// What one store has answered.
#[derive(Debug)]
pub struct Of<T> {
    /// The store.
    pub member: Member,
    /// What it said, or why it did not.
    pub answer: Result<T, Error>,
}

/// How many jobs a store has in each state, counted up to a few thousand.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StoreCounts {
    /// By state.
    pub totals: Vec<StateCount>,
}

/// So many stores are asked at a time.
const TOGETHER: usize = 8;

/// A store, or the home, that does not answer for so long is told of as one that fails: nobody waits for it behind whoever asked first.
const PATIENCE: Duration = Duration::from_secs(10);

impl Roster {
    /// Asks each store; the answers are in the order of names.
    pub async fn each<T, F>(&self, ask: impl Fn(Member) -> F) -> Vec<Of<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut left: VecDeque<Member> = self.all().iter().cloned().collect();
        let (mut asking, mut answers) = (JoinSet::new(), Vec::with_capacity(left.len()));
        loop {
            while asking.len() < TOGETHER
                && let Some(member) = left.pop_front()
            {
                let asked = ask(member.clone());
                asking.spawn(async move { Of { member, answer: asked.await } });
            }
            match asking.join_next().await {
                Some(Ok(answer)) => answers.push(answer),
                // Only by a panic in what was asked: that is the caller's.
                Some(Err(_)) => {}
                None => break,
            }
        }
        answers.sort_by(|one: &Of<T>, other| one.member.name().cmp(other.member.name()));
        answers
    }

    /// How many jobs each store has in each state.
    pub async fn counts(&self) -> Vec<Of<StoreCounts>> {
        self.each(|member| {
            patiently(async move {
                let busiest = operate::busiest(member.pool(), member.store(), 1).await?;
                Ok(StoreCounts { totals: busiest.totals })
            })
        })
        .await
    }

    /// The jobs that `filter` means, of each store a page.
    pub async fn list(&self, filter: &Filter) -> Vec<Of<operate::Page>> {
        self.each(|member| {
            let filter = filter.clone();
            patiently(async move { operate::list(member.pool(), member.store(), &filter).await })
        })
        .await
    }

    /// Does `act` to all jobs that `filter` means, in every store. However long that takes.
    pub async fn act_all(&self, filter: &Filter, act: Act) -> Vec<Of<Swept>> {
        self.each(|member| {
            let filter = filter.clone();
            async move { operate::act_all(member.pool(), member.store(), &filter, act).await }
        })
        .await
    }

    /// A job of one of the stores.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotFound`]; the database's.
    pub async fn find(&self, job: &StoreJob) -> Result<JobRecord, Error> {
        let member = self.member_of(job)?;
        JobRef::from_id(job.id()).in_store(member.store()).find(member.pool()).await
    }

    /// Why a job of one of the stores is not running.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::NotFound`]; the database's.
    pub async fn why(&self, job: &StoreJob) -> Result<Why, Error> {
        let member = self.member_of(job)?;
        operate::why(member.pool(), member.store(), job.id()).await
    }

    /// The store that a job names.
    ///
    /// # Errors
    /// [`Error::NoStore`].
    pub fn member_of(&self, job: &StoreJob) -> Result<Member, Error> {
        self.get(job.store()).ok_or_else(|| Error::NoStore { name: job.store().to_owned() })
    }
}

impl StoreCounts {
    /// How many are in this state; at least so many if there may be more.
    pub fn of(&self, state: JobState) -> i64 {
        self.totals.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
    }
}

/// Only for what a drop half-way leaves as it was.
pub(super) async fn patiently<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut)))
}

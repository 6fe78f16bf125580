//! All jobs that a filter means, in batches: what is done to them, or only how many there are.

use std::{
    fmt,
    future::{Future, IntoFuture, pending},
    pin::Pin,
    time::{Duration, Instant},
};

use serde::Serialize;

use sqlx::PgConnection;

use super::{
    act::{Act, Acted},
    audit::{self, Note},
    filter::Filter,
    refusal::explain,
    walk::Walk,
};
use crate::{
    connect::IntoConnection,
    define::JobId,
    error::Error,
    schema::{Connection, Session, Store},
};

/// An act on all jobs of a filter, to be awaited; from [`act_all`] and its likes.
///
/// It takes jobs that were there when it began, each once, in batches of at most 1000, each a transaction of its own unless there is one
/// already. On a pool, a batch takes no longer than a minute and waits no longer than ten seconds for a lock, and is an error otherwise. Jobs that
/// are claimed or locked by others meanwhile are left as they are and not counted. Ended half-way, what was done stays done,
/// and the same act goes on from there. The filter's `limit` and `before` are not looked at.
///
/// ```no_run
/// # use queue_core::{Store, operate::{self, Filter}};
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let mails = Filter { queue: Some("mail".into()), ..Filter::default() };
/// let swept = operate::requeue_all(&pool, Store::default(), &mails).rate(50.0).await?;
/// println!("{} dead letters are tried again", swept.done);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::OutOfRange`] for a state in which this cannot be done, or a rate below 0.001 jobs a second; [`Error::InvalidName`] for a filter's
/// name outside the grammar; the database's.
#[must_use = "nothing is done until this is awaited"]
pub struct ActAll<'c> {
    on: Connection<'c>,
    store: Store,
    filter: Filter,
    act: Act,
    rate: Option<f64>,
    at_most: u64,
    stop: Pin<Box<dyn Future<Output = ()> + Send + 'c>>,
    /// These instead of the filter's.
    ids: Option<Vec<JobId>>,
    note: Option<Note>,
}

/// Does this to every job of the filter.
pub fn act_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, act: Act) -> ActAll<'c> {
    ActAll {
        on: on.into_connection(),
        store,
        filter: filter.clone(),
        act,
        rate: None,
        at_most: u64::MAX,
        stop: Box::pin(pending()),
        ids: None,
        note: None,
    }
}

/// Does this to each of these jobs whose state allows it, in the order given; the others are left as they are.
pub fn act_on<'c>(on: impl IntoConnection<'c>, store: Store, ids: Vec<JobId>, act: Act) -> ActAll<'c> {
    ActAll { ids: Some(ids), ..act_all(on, store, &Filter::default(), act) }
}

/// How many jobs were changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Swept {
    /// To how many it was done.
    pub done: u64,
    /// How many were running, and are cancelling.
    pub cancelling: u64,
}

/// To how many jobs [`act_all`] would do it now.
///
/// # Errors
/// As [`ActAll`].
pub async fn count_matching(on: impl IntoConnection<'_>, store: Store, filter: &Filter, act: Act) -> Result<u64, Error> {
    count_matching_up_to(on, store, filter, act, u64::MAX).await
}

/// As [`count_matching`], but counted no further than this, and a few more: for whoever wants to know whether they are many.
///
/// # Errors
/// As [`ActAll`].
pub async fn count_matching_up_to(on: impl IntoConnection<'_>, store: Store, filter: &Filter, act: Act, most: u64) -> Result<u64, Error> {
    let mut session = Session::reading(on.into_connection()).await?;
    let mut walk = match Walk::begin(session.connection(), store, filter, act).await {
        Ok(walk) => walk,
        Err(error) => {
            session.roll_back().await;
            return Err(error);
        }
    };
    let found = count(session.connection(), &mut walk, most).await;
    session.end(found).await.map_err(|error| explain(error, store))
}

async fn count(connection: &mut PgConnection, walk: &mut Walk<'_>, most: u64) -> sqlx::Result<u64> {
    let mut found = 0;
    while let Some(ids) = walk.next(connection, COUNTED).await? {
        found += ids.len() as u64;
        if found > most {
            break;
        }
    }
    Ok(found)
}

/// The most jobs of one statement that only counts.
const COUNTED: i64 = 10_001;

/// The most jobs of one statement.
const BATCH: i64 = 1000;

/// A slower rate is more likely a mistake.
const SLOWEST: f64 = 0.001;

impl<'c> ActAll<'c> {
    /// So many jobs a second at most. Default: as fast as it goes.
    pub fn rate(mut self, jobs_a_second: f64) -> Self {
        self.rate = Some(jobs_a_second);
        self
    }

    /// To so many jobs at most. Default: to all.
    pub fn at_most(mut self, jobs: u64) -> Self {
        self.at_most = jobs;
        self
    }

    /// Only until this completes: it ends after the batch that is on its way.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'c) -> Self {
        self.stop = Box::pin(stop);
        self
    }

    /// Notes who does it, in [`audit`](super::audit()): each batch is counted there in its own transaction. Default: it is not noted.
    pub fn noted(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }

    async fn send(self) -> Result<Swept, Error> {
        let Self { mut on, store, filter, act, rate, at_most, mut stop, ids, note } = self;
        if let Some(rate) = rate.filter(|rate| !rate.is_finite() || *rate < SLOWEST) {
            return Err(Error::OutOfRange { what: "the rate", value: rate.to_string(), range: "at least 0.001 a second" });
        }
        // Ten batches a second, if that makes batches of one at least.
        let most = rate.map_or(BATCH, |rate| ((rate / 10.0) as i64).clamp(1, BATCH));
        let mut source = Source::begin(&mut *on.acquire().await?, store, &filter, act, ids).await?;
        let (began, mut met, mut swept, mut noted) = (Instant::now(), 0_usize, Swept::default(), None);
        let explained = |error| explain(error, store);
        while let left @ 1.. = at_most.saturating_sub(met as u64) {
            let most = most.min(i64::try_from(left).unwrap_or(most));
            // Of a pool, a connection is held for one batch, not while this waits.
            let mut session = Session::bounded(&mut on).await.map_err(explained)?;
            let Some(ids) = source.next(session.connection(), most).await.map_err(explained)? else {
                session.roll_back().await;
                break;
            };
            let acted = match &note {
                Some(note) => act_noted(session.connection(), store, act, &ids, note, &mut noted).await,
                None => act.on_all(session.connection(), store, &ids).await,
            };
            let acted = acted.map_err(explained)?;
            session.commit().await.map_err(explained)?;
            swept.add(&acted);
            met += ids.len();
            let due = rate.map_or(began, |rate| began + Duration::from_secs_f64(met as f64 / rate));
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
        Ok(swept)
    }
}

impl Swept {
    fn add(&mut self, acted: &[Acted]) {
        for acted in acted {
            match acted {
                Acted::Done => self.done += 1,
                Acted::Cancelling => self.cancelling += 1,
            }
        }
    }
}

/// Where the jobs come from.
enum Source<'f> {
    Walk(Walk<'f>),
    Ids(std::vec::IntoIter<JobId>),
}

impl<'f> Source<'f> {
    async fn begin(
        connection: &mut PgConnection,
        store: Store,
        filter: &'f Filter,
        act: Act,
        ids: Option<Vec<JobId>>,
    ) -> Result<Self, Error> {
        match ids {
            Some(ids) => act.check().map(|()| Self::Ids(ids.into_iter())),
            None => Walk::begin(connection, store, filter, act).await.map(Self::Walk),
        }
    }

    async fn next(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Option<Vec<JobId>>> {
        match self {
            Self::Walk(walk) => walk.next(connection, most).await,
            Self::Ids(ids) => Ok(Some(ids.take(most as usize).collect()).filter(|ids: &Vec<JobId>| !ids.is_empty())),
        }
    }
}

/// A batch and its note, both or neither.
async fn act_noted(
    connection: &mut PgConnection,
    store: Store,
    act: Act,
    ids: &[JobId],
    note: &Note,
    number: &mut Option<i64>,
) -> sqlx::Result<Vec<Acted>> {
    let mut session = Session::on(connection).await?;
    let acted = act.on_all(session.connection(), store, ids).await?;
    let jobs = acted.len() as u64;
    let noted = match *number {
        Some(number) => audit::count_more(session.connection(), store, number, jobs).await.map(|()| number)?,
        None => audit::noted(session.connection(), store, note, jobs).await?,
    };
    session.commit().await?;
    *number = Some(noted);
    Ok(acted)
}

impl<'c> IntoFuture for ActAll<'c> {
    type Output = Result<Swept, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for ActAll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActAll").field("act", &self.act).field("filter", &self.filter).field("rate", &self.rate).finish_non_exhaustive()
    }
}

//! What an operator may do to a job that no worker holds. Each statement is fenced by the row that it takes the job from.

use std::time::{Duration, Instant};

use queue_core::{JobId, JobState, Store};
use sqlx::{PgConnection, postgres::PgDatabaseError};

use super::{
    control::{Control, Controlled, control},
    look::Filter,
    sweep::{BATCH, dead_letters},
};
use crate::error::Error;

/// Brings a dead, completed or cancelled job back: it becomes ready at the end of its lane, with all attempts before it. Its failures are
/// kept, its output is not. With an ordering key it goes to the end of that; only a dead letter that holds up its key keeps its place there.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] when it is waiting or running; the database's.
pub async fn requeue(connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
    Act::Requeue.on(connection, store, id).await
}

/// Calls off a job: one that waits will not run, and its ordering key goes on without it; the handler of one that runs is asked to end, see
/// [`Controlled::Asked`].
///
/// # Errors
/// As [`control`].
pub async fn cancel(connection: &mut PgConnection, store: Store, id: JobId) -> Result<Controlled, Error> {
    control(connection, store, id, Control::Cancel).await
}

/// Deletes a dead letter with its payload and history. Nothing of it is left, and an ordering key that it held up goes on.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] when it is not dead; the database's.
pub async fn discard(connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
    Act::Discard.on(connection, store, id).await
}

/// Requeues the dead letters that the filter means, each once; returns how many. Ended half-way, what was done stays done.
///
/// # Errors
/// [`queue_core::Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn requeue_all(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<u64, Error> {
    requeue_at(connection, store, filter, None, std::future::pending()).await
}

/// As [`requeue_all`], so many jobs a second at most, and only until `stop` completes, between two batches.
///
/// # Errors
/// As [`requeue_all`]; [`Error::Config`] for a rate that is no number above zero.
pub async fn requeue_at(
    connection: &mut PgConnection,
    store: Store,
    filter: &Filter,
    rate: Option<f64>,
    stop: impl Future<Output = ()>,
) -> Result<u64, Error> {
    filter.check()?;
    if let Some(rate) = rate.filter(|rate| !rate.is_finite() || *rate < SLOWEST) {
        return Err(Error::Config { key: "rate", value: rate.to_string(), range: "at least 0.001 a second" });
    }
    // Ten batches a second, if that makes batches of one at least.
    let most = rate.map_or(BATCH, |rate| ((rate / 10.0) as i64).clamp(1, BATCH));
    let mut stop = std::pin::pin!(stop);
    let (began, mut met, mut requeued, mut after) = (Instant::now(), 0, 0, None);
    while let Some(ids) = dead_letters(connection, store, filter, &mut after, most).await? {
        requeued += batch(connection, store.sql(REQUEUE), &ids).await?;
        met += ids.len();
        let due = rate.map_or(began, |rate| began + Duration::from_secs_f64(met as f64 / rate));
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = tokio::time::sleep_until(due.into()) => {}
        }
    }
    Ok(requeued)
}

/// A slower rate is more likely a mistake.
const SLOWEST: f64 = 0.001;

/// Discards the dead letters that the filter means; returns how many. Ended half-way, what was done stays done.
///
/// # Errors
/// [`queue_core::Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn discard_all(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<u64, Error> {
    filter.check()?;
    let mut discarded = 0;
    let mut after = None;
    while let Some(ids) = dead_letters(connection, store, filter, &mut after, BATCH).await? {
        discarded += batch(connection, store.sql(DISCARD), &ids).await?;
    }
    Ok(discarded)
}

const DISCARD: &str = include_str!("../../../queue-core/sql/discard.sql");
const REQUEUE: &str = include_str!("../../../queue-core/sql/requeue.sql");

/// What was asked for.
#[derive(Clone, Copy)]
enum Act {
    Requeue,
    Discard,
}

impl Act {
    async fn on(self, connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
        let act = match self {
            Self::Requeue => include_str!("../../../queue-core/sql/requeue_one.sql"),
            Self::Discard => include_str!("../../../queue-core/sql/discard_one.sql"),
        };
        let done = sqlx::query(store.sql(act)).bind(id).persistent(false).execute(connection).await;
        done.map(drop).map_err(|error| self.refused(id, error))
    }

    /// The refusal of the SQL function, as its SQLSTATE and its DETAIL have it.
    fn refused(self, id: JobId, error: sqlx::Error) -> Error {
        let db = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        let refusal = db.and_then(|db| Some((db.code(), serde_json::from_str::<Refusal>(db.detail()?).ok()?)));
        let (wanted, done) = self.words();
        match refusal {
            Some(("P0002", _)) => Error::NotFound(id),
            Some(("55000", Refusal { state: Some(state) })) => Error::WrongState { id, state, wanted, done },
            Some(("55P03", Refusal { state: Some(state) })) => Error::Held { id, state },
            _ => error.into(),
        }
    }

    /// The states in which it can be done, and the participle.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Requeue => ("dead, completed or cancelled", "requeued"),
            Self::Discard => ("dead", "discarded"),
        }
    }
}

/// What the DETAIL of a refusal says.
#[derive(serde::Deserialize)]
struct Refusal {
    state: Option<JobState>,
}

/// Runs a statement that returns the ids of `ids` that it changed; returns how many.
async fn batch(connection: &mut PgConnection, statement: &'static str, ids: &[JobId]) -> sqlx::Result<u64> {
    let changed: Vec<JobId> = sqlx::query_scalar(statement).bind(ids).persistent(false).fetch_all(connection).await?;
    Ok(changed.len() as u64)
}

//! Why an act was refused, read from what the SQL functions raise: SQLSTATE, and JSON in DETAIL.

use serde::Deserialize;
use sqlx::postgres::PgDatabaseError;

use crate::{
    define::{JobId, JobState},
    enqueue,
    error::Error,
    schema::Store,
};

/// The DETAIL of a refusal. It is read, never shown.
#[derive(Deserialize)]
struct Refusal {
    job: JobId,
    /// None if there is no such job.
    state: Option<JobState>,
    wanted: Vec<JobState>,
    done: String,
    /// Of its uniqueness key.
    holder: Option<JobId>,
}

/// The error that a caller can tell apart. Without such a DETAIL it is the database's own: a lock timeout has the same SQLSTATE.
pub(super) fn explain(error: sqlx::Error, store: Store) -> Error {
    refusal(&error).unwrap_or_else(|| enqueue::explain(error, store))
}

fn refusal(error: &sqlx::Error) -> Option<Error> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    let Refusal { job, state, wanted, done, holder } = serde_json::from_str(error.detail()?).ok()?;
    match (error.code(), state, holder) {
        ("P0002", ..) => Some(Error::NotFound { job }),
        ("55000", _, Some(holder)) => Some(Error::KeyTaken { job, holder }),
        ("55000", Some(state), None) => Some(Error::WrongState { job, state, wanted, done }),
        ("55P03", Some(state), _) => Some(Error::Locked { job, state }),
        _ => None,
    }
}

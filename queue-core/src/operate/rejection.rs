//! Errors for rejected operations, parsed from the SQLSTATE and the JSON `DETAIL` that the SQL functions raise.

use serde::Deserialize;
use sqlx::postgres::PgDatabaseError;

use crate::{
    define::{JobId, JobState},
    enqueue,
    error::Error,
    schema::Store,
};

/// JSON object in the `DETAIL` of the database error that rejects an operation. Parsed, never displayed.
#[derive(Deserialize)]
struct RejectionDetail {
    job: JobId,
    /// State of the job; `None` if the job does not exist.
    state: Option<JobState>,
    wanted: Vec<JobState>,
    done: String,
    /// Job that holds the uniqueness key needed for a requeue; `None` if the operation was rejected for another reason.
    holder: Option<JobId>,
}

/// Converts a database error to an [`Error`]. An error without a JSON `DETAIL` is not a rejection. For example, a lock timeout has the same
/// SQLSTATE as a rejection, but no JSON `DETAIL`.
pub(super) fn explain(error: sqlx::Error, store: Store) -> Error {
    parse_rejection(&error).unwrap_or_else(|| enqueue::store_error(error, store))
}

fn parse_rejection(error: &sqlx::Error) -> Option<Error> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    let RejectionDetail { job, state, wanted, done, holder } = serde_json::from_str(error.detail()?).ok()?;
    match (error.code(), state, holder) {
        ("P0002", ..) => Some(Error::NotFound { job }),
        ("55000", _, Some(holder)) => Some(Error::KeyTaken { job, holder }),
        ("55000", Some(state), None) => Some(Error::WrongState { job, state, wanted, done }),
        ("55P03", Some(state), _) => Some(Error::Locked { job, state }),
        _ => None,
    }
}

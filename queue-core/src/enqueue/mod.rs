//! Enqueue builders, which accept any kind of connection. The module `one` enqueues a single job. The modules `all` and `batch` enqueue
//! many jobs, which `bulk` writes.
//!
//! Every path writes an `EnqueueRow`: an encoded job and its `EnqueueOptions`.

mod all;
mod batch;
mod bulk;
mod copy;
mod each;
mod expiry;
mod flow;
mod handle;
mod hooks;
mod insert;
mod job;
mod map;
mod one;
mod options;
mod places;
mod render;
mod restart;
mod row;
mod start_time;
mod sealing;
mod spawn;
mod system;

use std::borrow::Cow;

use self::row::{EncodedJob, EnqueueRow};
pub(crate) use self::sealing::Sealing;
pub use self::{
    all::EnqueueAll,
    batch::Batch,
    flow::{Counts, Flow, FlowHandle, Gather, IfDead, Nested, Node, Source, Then},
    handle::JobHandle,
    hooks::{PendingEnqueue, on_enqueue},
    job::Job,
    map::{Map, Parts},
    one::Enqueue,
    options::EnqueueOptions,
    render::{Rendered, Statement},
    spawn::{Child, Spawn},
};
use crate::{define::JobType, error::Error, schema::Store};

/// Name and capacity of a full queue, parsed from the `DETAIL` of the error that `queue.take_capacity` raises.
#[derive(serde::Deserialize)]
struct CapacityDetail {
    queue: String,
    capacity: u64,
}

fn capacity_detail(error: &sqlx::Error) -> Option<CapacityDetail> {
    let detail = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.detail()?;
    serde_json::from_str(detail).ok()
}

/// Converts a database error. An error about a missing function, table or schema becomes [`Error::NotMigrated`], and an error about a full
/// queue becomes [`Error::AtCapacity`].
pub(crate) fn store_error(error: sqlx::Error, store: Store) -> Error {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("42883" | "42P01" | "3F000") => Error::NotMigrated { schema: store.schema().to_owned() },
        Some("QCAPA") => match capacity_detail(&error) {
            Some(CapacityDetail { queue, capacity }) => Error::AtCapacity { queue, capacity },
            None => Error::Database(error),
        },
        _ => Error::Database(error),
    }
}

/// Encodes a job that a schedule enqueues later. Returns the unsealed payload and the options as JSON text, and the settings
/// for sealing the payload, or `None` if it is not sealed. Fails if the options set a start time or an absolute expiry time.
pub(crate) fn encode_deferred<J: JobType>(job: &J, options: &EnqueueOptions) -> Result<(String, String, Option<Sealing>), Error> {
    options.check()?;
    options.check_without_time()?;
    let job = EncodedJob::encode(job)?;
    let payload = job.payload().to_owned();
    let options_json = EnqueueRow::new(Cow::Owned(job), options, 0)?.options_json(options)?.into_owned();
    Ok((payload, options_json, options.sealing()))
}

//! Enqueuing: builders that are awaited, over any kind of connection. One job in `one`, many in `all` and `batch`, which `bulk` writes.
//!
//! What an enqueue carries is a `Row`, whichever way it goes: a job, encoded, and its `EnqueueOptions`.

mod all;
mod batch;
mod bulk;
mod copy;
mod each;
mod expires;
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
mod run;
mod sealing;
mod spawn;
mod system;

use std::borrow::Cow;

use self::row::{Encoded, Row};
pub(crate) use self::sealing::Sealing;
pub use self::{
    all::EnqueueAll,
    batch::Batch,
    flow::{Counts, Flow, FlowHandle, Gather, IfDead, Nested, Node, Source, Then},
    handle::JobHandle,
    hooks::{Enqueuing, on_enqueue},
    job::Job,
    map::{Map, Parts},
    one::Enqueue,
    options::EnqueueOptions,
    render::{Rendered, Statement},
    spawn::{Child, Spawn},
};
use crate::{define::JobType, error::Error, schema::Store};

/// A queue at its capacity, as `queue.take_capacity` describes it in its DETAIL.
#[derive(serde::Deserialize)]
struct AtCapacity {
    queue: String,
    capacity: u64,
}

fn at_capacity(error: &sqlx::Error) -> Option<AtCapacity> {
    let detail = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.detail()?;
    serde_json::from_str(detail).ok()
}

/// A missing function or schema means that nobody migrated; everything else is the database's own error.
pub(crate) fn explain(error: sqlx::Error, store: Store) -> Error {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("42883" | "42P01" | "3F000") => Error::NotMigrated { schema: store.schema().to_owned() },
        Some("QCAPA") => match at_capacity(&error) {
            Some(AtCapacity { queue, capacity }) => Error::AtCapacity { queue, capacity },
            None => Error::Database(error),
        },
        _ => Error::Database(error),
    }
}

/// A job that is to be enqueued later, as JSON texts: its payload in clear, and all that is said of it but when; and how the payload is sealed.
pub(crate) fn carried<J: JobType>(job: &J, options: &EnqueueOptions) -> Result<(String, String, Option<Sealing>), Error> {
    options.check()?;
    options.check_now()?;
    let job = Encoded::of(job)?;
    let payload = job.payload().to_owned();
    let said = Row::new(Cow::Owned(job), options, 0)?.carried(options)?.into_owned();
    Ok((payload, said, options.sealing()))
}

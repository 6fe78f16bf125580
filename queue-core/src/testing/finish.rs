//! The ending of a job whose entry in `ready` the test's transaction holds.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use crate::{attempt::ClaimedJob, define::Ending, schema::Store};

/// Ends the job whose entry stands at the place `seq` of its lane; returns a row unless the entry is gone.
pub(super) fn finish_one<'q>(store: Store, job: &ClaimedJob, seq: i64, ending: &'q Ending) -> Query<'q, Postgres, PgArguments> {
    if ending.is_forgotten() {
        let statement = sqlx::query(store.sql(include_str!("../../testing/finish_forgotten.sql")));
        return statement.bind(job.lane).bind(seq).bind(job.id).bind(ending.freed());
    }
    sqlx::query(store.sql(include_str!("../../testing/finish_one.sql")))
        .bind(job.lane)
        .bind(seq)
        .bind(job.id)
        .bind(ending.word())
        .bind(ending.attempt())
        .bind(job.crashes)
        .bind(ending.wait_ms())
        .bind(ending.ran_ms())
        .bind(ending.output())
        .bind(ending.error())
        .bind(ending.freed())
}

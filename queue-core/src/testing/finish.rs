//! Records the verdict of a job whose row in `ready` is locked by the test's transaction.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use crate::{
    attempt::ClaimedJob,
    define::{Ending, SettlePath},
    schema::Store,
};

/// Returns the statement that records the verdict `ending` for the job with the sequence number `seq` in its lane. The statement returns
/// a row if the job is still in `ready`.
pub(super) fn finish_one<'q>(store: Store, job: &ClaimedJob, seq: i64, ending: &'q Ending) -> Query<'q, Postgres, PgArguments> {
    if ending.path() == SettlePath::Forget {
        let statement = sqlx::query(store.sql(include_str!("../../testing/finish_forgotten.sql")));
        return statement.bind(job.lane).bind(seq).bind(job.id).bind(ending.released_key());
    }
    sqlx::query(store.sql(include_str!("../../testing/finish_one.sql")))
        .bind(job.lane)
        .bind(seq)
        .bind(job.id)
        .bind(ending.verdict_name())
        .bind(ending.attempt())
        .bind(job.crashes)
        .bind(ending.wait_ms())
        .bind(ending.ran_ms())
        .bind(ending.output())
        .bind(ending.error())
        .bind(ending.released_key())
}

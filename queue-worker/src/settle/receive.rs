//! What a durable job receives: the next signal of a name, or the end of the wait for it, journaled under the lease's fence.
//!
//! A statement an ask, on the pool that handlers have. While the database is away nothing is known: the attempt asks again, or its job is put off.
//! It is not parked, for its signal may be journaled by a statement whose answer was lost, and then no hint leads to it.

use queue_core::{
    Store,
    runner::{Heard, SignalEntry},
};
use sqlx::PgPool;

use super::send::is_refusal;
use crate::{error::complain, live::bounded};

/// What was journaled: whether the wait was over, the payload, and whether anything was.
type Row = (bool, Option<String>, bool);

pub(super) async fn receive(pool: &PgPool, store: Store, ask: &SignalEntry) -> Heard {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/receive.sql")))
        .bind(ask.fence.token)
        .bind(ask.fence.id)
        .bind(&ask.name)
        .bind(ask.fence.attempt)
        .bind(&ask.signal)
        .bind(&ask.end);
    let asked: sqlx::Result<Option<Row>> = bounded(statement.fetch_optional(pool)).await;
    match asked {
        Ok(None) => Heard::Refused,
        Ok(Some((_, _, false))) => Heard::Nothing,
        Ok(Some((true, ..))) => Heard::Over,
        Ok(Some((false, payload, true))) => Heard::Signal(payload),
        Err(error) if is_refusal(&error) => Heard::Failed(queue_core::message(&error)),
        Err(error) => {
            complain(&error, "cannot ask for a signal; its job is put off, and asks again");
            Heard::Unknown
        }
    }
}

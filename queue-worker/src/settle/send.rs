//! The statements of a settle, what a refusal of theirs is about, and what others are told after them. Tries nothing again.

use std::{collections::HashMap, time::Duration};

use queue_core::{JobId, Store};
use sqlx::{Connection as _, PgConnection};
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::{children::note_ends, settlement::Settlement};
use crate::{
    error::transient,
    live::{Bell, Link, bounded},
    tally::Tallies,
};

/// The state of what all completed.
const COMPLETED: Option<&str> = Some("completed");

/// A lease, and the verdicts on all its jobs.
pub(super) type Whole = (Uuid, Vec<Settlement>);

/// What others are to be told once verdicts are written.
pub(super) struct News {
    due: Option<Duration>,
    released: Vec<i64>,
    frees: bool,
}

impl News {
    pub(super) fn of(verdicts: &[Settlement], whole: &[Whole]) -> Self {
        Self {
            due: verdicts.iter().filter_map(|one| one.ending.wait()).min(),
            released: verdicts.iter().filter(|one| one.ending.is_release()).map(|one| one.lane).collect(),
            // What is parked is left a hint as well, and the parent of what is over.
            frees: verdicts.iter().any(|one| one.ending.freed().is_some() || one.ending.is_park() || one.ending.is_child())
                || whole.iter().any(|(_, jobs)| has_parts(jobs)),
        }
    }

    pub(super) async fn tell(self, link: &mut Link, store: Store, bell: &Bell) {
        if !self.released.is_empty() {
            // Without it they are found by a poll.
            let _ = wake_released(link, store, &self.released).await;
        }
        if self.frees {
            bell.tell_keys();
        }
        bell.note_over();
        if let Some(wait) = self.due {
            bell.due_in(wait);
        }
    }
}

/// Whether the server cannot hold a value, such as a text that is no JSON or too large.
pub(super) fn is_about_data(error: &sqlx::Error) -> bool {
    is_of_class(error, &["22", "54"])
}

/// Whether the server is there and answers no, for a reason that waiting does not change.
pub(super) fn is_refusal(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !transient(error)
}

/// Whether the server's code is of one of these classes.
pub(super) fn is_of_class(error: &sqlx::Error, classes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
}

/// Writes one verdict in a transaction of the caller's; false if it was refused.
pub(super) async fn settle_within(connection: &mut PgConnection, store: Store, one: &Settlement) -> sqlx::Result<bool> {
    let refused =
        if one.ending.is_forgotten() { forget(connection, store, &[one]).await? } else { write(connection, store, &[one]).await? };
    let is_written = refused.is_empty();
    if is_written && one.ending.is_child() {
        note_ends(connection, store, &[one.id], None).await?;
    }
    Ok(is_written)
}

/// Whether a gather counts any of these.
pub(super) fn has_parts(jobs: &[Settlement]) -> bool {
    jobs.iter().any(|one| one.ending.completes_part())
}

/// Whole leases; returns what was refused. Those with parts are written in a transaction that counts these.
pub(super) async fn send_leases(link: &mut Link, store: Store, whole: &[Whole]) -> sqlx::Result<Vec<Uuid>> {
    let span = settle_span(whole.len());
    let sent = async {
        let connection = link.get().await?;
        if whole.iter().any(|(_, jobs)| has_parts(jobs)) {
            let mut tx = bounded(connection.begin()).await?;
            let lost = write_leases(&mut tx, store, whole).await?;
            let written = whole.iter().filter(|(token, _)| !lost.contains(token)).flat_map(|(_, jobs)| jobs);
            let parts: Vec<JobId> = written.filter(|one| one.ending.completes_part()).map(|one| one.id).collect();
            note_ends(&mut tx, store, &parts, COMPLETED).await?;
            bounded(tx.commit()).await?;
            Ok(lost)
        } else {
            write_leases(connection, store, whole).await
        }
    };
    let lost = sent.instrument(span.clone()).await;
    told(&span, link.note(lost))
}

async fn write_leases(connection: &mut PgConnection, store: Store, whole: &[Whole]) -> sqlx::Result<Vec<Uuid>> {
    let tokens: Vec<Uuid> = whole.iter().map(|(token, _)| *token).collect();
    // A lease names its lane if it was of one when it was claimed.
    let may_be_of_many = |jobs: &[Settlement]| jobs.iter().any(|one| one.lane != jobs[0].lane || jobs.len() < one.batch);
    let of_many = whole.iter().filter(|(_, jobs)| may_be_of_many(jobs)).flat_map(|(_, jobs)| jobs);
    let (ids, lanes): (Vec<i64>, Vec<i64>) = of_many.map(|one| (one.id.0, one.lane)).unzip();
    let counts: Vec<i32> = whole.iter().map(|(_, jobs)| i32::try_from(jobs.len()).unwrap_or(i32::MAX)).collect();
    let statement =
        sqlx::query_scalar(store.sql(include_str!("../../sql/settle_leases.sql"))).bind(tokens).bind(ids).bind(lanes).bind(counts);
    bounded(statement.fetch_all(connection)).await
}

/// The span of one statement that settles so many jobs, or leases.
fn settle_span(count: usize) -> Span {
    tracing::debug_span!(
        target: "queue_worker::settle",
        "settle",
        otel.kind = "client",
        otel.status_description = Empty,
        messaging.system = "postgresql",
        messaging.operation.name = "settle",
        messaging.operation.type = "settle",
        messaging.batch.message_count = count,
    )
}

fn told<T>(span: &Span, sent: sqlx::Result<T>) -> sqlx::Result<T> {
    if let Err(error) = &sent {
        span.record("otel.status_description", queue_core::message(error));
    }
    sent
}

/// Tells others of jobs that went back to these lanes.
async fn wake_released(link: &mut Link, store: Store, lanes: &[i64]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/wake_released.sql"))).bind(lanes);
    let woken = bounded(statement.execute(link.get().await?)).await;
    link.note(woken).map(drop)
}

pub(super) type Refused = (Uuid, JobId);

/// One statement, and others for jobs that leave no record, were not begun in time, are parked, or begin anew; returns what was refused. Sent again,
/// what was written is refused.
pub(super) async fn send(link: &mut Link, store: Store, tallies: &Tallies, verdicts: &[Settlement]) -> sqlx::Result<Vec<Refused>> {
    let span = settle_span(verdicts.len());
    let sent = async {
        let connection = link.get().await?;
        let (children, others): (Vec<&Settlement>, Vec<_>) = verdicts.iter().partition(|one| one.ending.is_child());
        let mut lost = send_each(connection, store, tallies, &others).await?;
        if !children.is_empty() {
            lost.extend(send_children(connection, store, tallies, &children).await?);
        }
        Ok(lost)
    };
    let sent = sent.instrument(span.clone()).await;
    told(&span, link.note(sent))
}

/// Of children: their parents are told what they came to in the transaction that writes it.
async fn send_children(
    connection: &mut PgConnection,
    store: Store,
    tallies: &Tallies,
    children: &[&Settlement],
) -> sqlx::Result<Vec<Refused>> {
    let mut tx = bounded(connection.begin()).await?;
    let lost = send_each(&mut tx, store, tallies, children).await?;
    // Of what is said twice, or was refused, it is not known here what it came to.
    let mut said: HashMap<JobId, usize> = HashMap::new();
    for one in children {
        *said.entry(one.id).or_default() += 1;
    }
    let is_known = |one: &&&Settlement| one.ending.completes_part() && said[&one.id] == 1 && !lost.contains(&(one.token, one.id));
    let (parts, others): (Vec<&&Settlement>, Vec<_>) = children.iter().partition(is_known);
    let ids = |jobs: Vec<&&Settlement>| jobs.iter().map(|one| one.id).collect::<Vec<_>>();
    note_ends(&mut tx, store, &ids(parts), COMPLETED).await?;
    note_ends(&mut tx, store, &ids(others), None).await?;
    bounded(tx.commit()).await?;
    Ok(lost)
}

async fn send_each(connection: &mut PgConnection, store: Store, tallies: &Tallies, verdicts: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let of = |kind: Statement| -> Vec<&Settlement> { verdicts.iter().filter(|one| Statement::by(one) == kind).copied().collect() };
    let late = of(Statement::Expire);
    let mut lost = if late.is_empty() { Vec::new() } else { expire(connection, store, tallies, &late).await? };
    let parked = of(Statement::Park);
    if !parked.is_empty() {
        lost.extend(park(connection, store, &parked).await?);
    }
    let anew = of(Statement::Restart);
    if !anew.is_empty() {
        lost.extend(restart(connection, store, &anew).await?);
    }
    let forgotten = of(Statement::Forget);
    if !forgotten.is_empty() {
        lost.extend(forget(connection, store, &forgotten).await?);
    }
    let others = of(Statement::Settle);
    if !others.is_empty() {
        lost.extend(write(connection, store, &others).await?);
    }
    Ok(lost)
}

/// Tables that every verdict is written to, and those that only some are.
const EACH: [&str; 9] = ["lease", "done", "done_many", "dead", "failure", "ready", "scheduled", "active_key", "key_hint"];
const RARELY: [&str; 13] = [
    "job",
    "parked",
    "signal",
    "signal_hint",
    "end_hint",
    "step",
    "progress",
    "expiry",
    "child",
    "gather",
    "brood",
    "gather_part",
    "gather_hint",
];

/// By which statement a verdict is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Statement {
    Expire,
    Park,
    Restart,
    Forget,
    Settle,
    /// Any of these, in a transaction with what its parent is told.
    OfChild,
}

impl Statement {
    pub(super) const ALL: [Self; 6] = [Self::Expire, Self::Park, Self::Restart, Self::Forget, Self::Settle, Self::OfChild];

    /// What is written together.
    pub(super) fn of(one: &Settlement) -> Self {
        if one.ending.is_child() { Self::OfChild } else { Self::by(one) }
    }

    /// Whether it writes to this table, or to that of which this is a part.
    pub(super) fn writes_to(self, table: &str) -> bool {
        let is = |name: &&str| table.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        EACH.iter().any(is) || (self != Self::Settle && RARELY.iter().any(is))
    }

    /// Whether it may wait for more rows of this job than that of its lease.
    pub(super) fn touches_job(one: &Settlement) -> bool {
        one.ending.has_key() || matches!(Self::by(one), Self::Forget | Self::Restart | Self::Park | Self::Expire)
    }

    fn by(one: &Settlement) -> Self {
        if one.ending.is_expiry() {
            Self::Expire
        } else if one.ending.is_park() {
            Self::Park
        } else if one.ending.is_restart() {
            Self::Restart
        } else if one.ending.is_forgotten() {
            Self::Forget
        } else {
            Self::Settle
        }
    }
}

/// Those that wait for signals; returns what was refused.
async fn park(connection: &mut PgConnection, store: Store, parked: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/park_held.sql")))
        .bind(parked.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.id.0).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.lane).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.ending.attempt()).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.ending.wait().map(|wait| wait.as_secs_f64() * 1000.0)).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| serde_json::json!(one.ending.signals()).to_string()).collect::<Vec<_>>());
    bounded(statement.fetch_all(connection)).await
}

/// Those that begin anew; returns what was refused.
async fn restart(connection: &mut PgConnection, store: Store, anew: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let with = || anew.iter().map(|one| one.ending.anew());
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/restart.sql")))
        .bind(anew.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(anew.iter().map(|one| one.id.0).collect::<Vec<_>>())
        .bind(anew.iter().map(|one| one.ending.attempt()).collect::<Vec<_>>())
        .bind(with().map(|anew| anew.map(|anew| anew.stored.as_str())).collect::<Vec<_>>())
        .bind(with().map(|anew| anew.map(|anew| anew.payload.as_str())).collect::<Vec<_>>());
    bounded(statement.fetch_all(connection)).await
}

/// Those of which the database's clock says so are over; the others go back. Returns what was refused.
async fn expire(connection: &mut PgConnection, store: Store, tallies: &Tallies, late: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/expire_held.sql")))
        .bind(late.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(late.iter().map(|one| one.id.0).collect::<Vec<_>>());
    let became: Vec<(Uuid, JobId, Option<bool>)> = bounded(statement.fetch_all(connection)).await?;
    tallies.tell_expired(&became.iter().filter(|(.., expired)| *expired == Some(true)).map(|(_, id, _)| *id).collect::<Vec<_>>());
    Ok(became.into_iter().filter(|(.., expired)| expired.is_none()).map(|(token, id, _)| (token, id)).collect())
}

/// Those that completed and leave no record; returns what was refused.
async fn forget(connection: &mut PgConnection, store: Store, forgotten: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let ids = || forgotten.iter().map(|one| one.id.0);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/settle_forgotten.sql")))
        .bind(forgotten.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(ids().collect::<Vec<_>>())
        .bind(forgotten.iter().map(|one| one.ending.freed()).collect::<Vec<_>>())
        .bind(ids().min())
        .bind(ids().max());
    bounded(statement.fetch_all(connection)).await
}

/// All others; returns what was refused.
async fn write(connection: &mut PgConnection, store: Store, batch: &[&Settlement]) -> sqlx::Result<Vec<Refused>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/settle.sql")))
        .bind(batch.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.word()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.lane).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.attempt()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.crashes).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.wait_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.ran_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.output()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.error()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.key()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.freed().is_some()).collect::<Vec<_>>());
    bounded(statement.fetch_all(connection)).await
}

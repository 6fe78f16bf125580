//! Says every ten seconds what came of the attempts that ended in this process; a process in which none did says nothing.
//!
//! What could not be written is said again under its number, and is written once whatever became of the first try. Nothing of a job waits for
//! this, and what fails here stops none.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use queue_core::{JobId, Registry, Store};
use sqlx::{postgres::PgArguments, query::QueryScalar};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    book::Tallies,
    counts::{Counts, REST, Row},
    fold::fold,
    roll_up::roll_up,
};
use crate::{
    error::complain,
    live::{Link, bounded},
};

/// Interval between two writes of the counts.
pub(crate) const TALLY_INTERVAL: Duration = Duration::from_secs(10);

/// So many ten seconds are kept apart while nothing can be written. What comes after that is one.
const KEPT: usize = 6;

/// What is older is not said again: by then the server may have forgotten that it was.
const OLDEST: Duration = Duration::from_hours(12);

/// What came of some ten seconds, under its number.
struct Batch {
    number: i64,
    /// The middle of the time that it is about.
    at: Instant,
    rows: Vec<Row>,
}

struct Speaker {
    tallies: Tallies,
    link: Link,
    store: Store,
    /// Names this process.
    source: Uuid,
    number: i64,
    /// Since when has been counted what was not taken yet.
    since: Instant,
    unsaid: VecDeque<Batch>,
    /// Knows the present names of types.
    registry: Registry,
}

/// Writes the counts each `interval` until `closing` fires, and then the rest.
pub(crate) async fn say_tallies(
    tallies: Tallies,
    link: Link,
    store: Store,
    registry: Registry,
    interval: Duration,
    closing: CancellationToken,
) {
    let (source, since, unsaid) = (Uuid::new_v4(), Instant::now(), VecDeque::new());
    let mut speaker = Speaker { tallies, link, store, source, number: 0, since, unsaid, registry };
    // Processes that were started together do not speak together.
    let mut pause = interval.mul_f64(0.5 + 0.5 * fastrand::f64());
    while tokio::time::timeout(pause, closing.cancelled()).await.is_err() {
        pause = interval;
        if speaker.say().await {
            speaker.add_up().await;
        }
    }
    speaker.say().await;
    speaker.link.close().await;
}

impl Speaker {
    /// Returns whether there was anything, and it is written.
    async fn say(&mut self) -> bool {
        if self.unsaid.len() < KEPT {
            self.take().await;
        }
        let mut any = false;
        while let Some(batch) = self.unsaid.front() {
            if batch.at.elapsed() > OLDEST {
                tracing::error!(rows = batch.rows.len(), "figures that could not be written for half a day are lost");
            } else if let Err(error) = self.send().await {
                if !is_about_data(&error) {
                    complain(&error, "cannot write what came of attempts, for `history`; they are kept, and written later");
                    return false;
                }
                tracing::error!(error = queue_core::message(&error), "figures that the server refuses are lost");
            }
            any = true;
            self.unsaid.pop_front();
        }
        any
    }

    /// What was counted since the last time becomes a batch.
    async fn take(&mut self) {
        let (mut taken, now) = (self.tallies.take(), Instant::now());
        let at = self.since + now.saturating_duration_since(self.since) / 2;
        self.since = now;
        if !taken.expired.is_empty() {
            let rows = self.types_of(&taken.expired).await;
            self.tallies.note_late(&rows);
            taken.rows.extend(rows);
        }
        if !taken.rows.is_empty() {
            self.number += 1;
            self.unsaid.push_back(Batch { number: self.number, at, rows: fold(merge(taken.rows)) });
        }
    }

    /// A row for each queue and type of these jobs, which have expired; those of which that cannot be found out have none of their own.
    async fn types_of(&mut self, expired: &[JobId]) -> Vec<Row> {
        let row = |queue: String, job_type: String, expired| Row { queue, job_type, counts: Counts { expired, ..Counts::default() } };
        let found = match self.link.get().await {
            Ok(connection) => {
                let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/types_of.sql"))).bind(expired);
                bounded(statement.fetch_all(connection)).await
            }
            Err(error) => Err(error),
        };
        let found: Vec<(String, String, i64)> = self.link.note(found).unwrap_or_else(|error| {
            complain(&error, "cannot see now of which types the jobs are that have expired, for `history`: they are counted under `*`");
            Vec::new()
        });
        let present = |stored: String| self.registry.get(&stored).map_or(stored, |known| known.options().name.to_owned());
        let known: i64 = found.iter().map(|(.., jobs)| jobs).sum();
        let unknown = expired.len() as i64 - known;
        let rest = (unknown > 0).then(|| row(REST.to_owned(), REST.to_owned(), unknown));
        found.into_iter().map(|(queue, job_type, jobs)| row(queue, present(job_type), jobs)).chain(rest).collect()
    }

    /// The first batch, once.
    async fn send(&mut self) -> sqlx::Result<()> {
        let Some(batch) = self.unsaid.front() else { return Ok(()) };
        let statement = bind(self.store.sql(include_str!("../../sql/tally.sql")), self.source, batch);
        let written = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        self.link.note(written).map(drop)
    }

    async fn add_up(&mut self) {
        let added = match self.link.get().await {
            Ok(connection) => roll_up(connection, self.store).await,
            Err(error) => Err(error),
        };
        if let Err(error) = self.link.note(added) {
            complain(&error, "cannot add up what came of attempts now; trying again");
        }
    }
}

/// Whether the server cannot hold a value, which no further try mends.
fn is_about_data(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

/// One row for each queue and type.
fn merge(rows: Vec<Row>) -> Vec<Row> {
    let mut merged: HashMap<(String, String), Counts> = HashMap::with_capacity(rows.len());
    for Row { queue, job_type, counts } in rows {
        merged.entry((queue, job_type)).or_default().add_all(&counts);
    }
    merged.into_iter().map(|((queue, job_type), counts)| Row { queue, job_type, counts }).collect()
}

fn bind(statement: &'static str, source: Uuid, batch: &Batch) -> QueryScalar<'static, sqlx::Postgres, i64, PgArguments> {
    let each = |count: fn(&Counts) -> i64| batch.rows.iter().map(|row| count(&row.counts)).collect::<Vec<_>>();
    sqlx::query_scalar(statement)
        .bind(source)
        .bind(batch.number)
        .bind(batch.at.elapsed().as_secs_f64() * 1000.0)
        .bind(batch.rows.iter().map(|row| row.queue.clone()).collect::<Vec<_>>())
        .bind(batch.rows.iter().map(|row| row.job_type.clone()).collect::<Vec<_>>())
        .bind(each(|counts| counts.completed))
        .bind(each(|counts| counts.retried))
        .bind(each(|counts| counts.dead))
        .bind(each(|counts| counts.cancelled))
        .bind(each(|counts| counts.snoozed))
        .bind(each(|counts| counts.released))
        .bind(each(|counts| counts.expired))
        .bind(each(|counts| counts.lease_lost))
        .bind(each(|counts| counts.timed_out))
        .bind(each(|counts| counts.panicked))
        .bind(each(|counts| counts.crashed))
        .bind(batch.rows.iter().map(|row| row.counts.run.lengths.packed()).collect::<Vec<_>>())
        .bind(batch.rows.iter().map(|row| row.counts.start.lengths.packed()).collect::<Vec<_>>())
}

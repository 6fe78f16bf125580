//! A claim under limits: one round trip that takes permits with the jobs, and one that waits until that is on the disk. Nothing begins before, but
//! the next claim may be sent.

use std::time::{Duration, Instant};

use queue_core::Store;
use sqlx::{PgConnection, Row as _, error::DatabaseError, postgres::PgRow};

use super::{
    claim::{Request, Rows, narrow},
    large::{self, LARGEST},
    room::{Asked, Room, Start},
};
use crate::live::{after_ms, bounded};

/// The first round trip.
pub(super) async fn take(
    connection: &mut PgConnection,
    store: Store,
    request: &Request,
    asked: &Asked,
    is_new: bool,
) -> sqlx::Result<Taken> {
    let text = if asked.keyed { include_str!("../../sql/claim_keyed.sql") } else { include_str!("../../sql/claim_limited.sql") };
    let statement = sqlx::query(store.sql(text))
        .bind(request.token())
        .bind(request.worker)
        .bind(&asked.gates[..])
        .bind(request.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
        .bind(&request.begins)
        .bind(&request.in_lines)
        .bind(request.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
        .bind(narrow(request.most))
        .bind(&asked.freed)
        .bind(i64::try_from(asked.slack.as_millis()).unwrap_or(i64::MAX))
        // Another server may have given out other places.
        .bind(asked.floors.as_deref().filter(|_| !is_new));
    let rows = match bounded(statement.fetch_all(&mut *connection)).await {
        Ok(rows) => rows,
        Err(error) if error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "55P03") => {
            return Ok(Taken { room: Room::Locked, ..Taken::default() });
        }
        Err(error) => return Err(error),
    };
    let mut taken = Taken::default();
    let mut in_lines = Vec::new();
    for row in &rows {
        if row.try_get::<Option<i64>, _>("id")?.is_some() {
            in_lines.extend(taken.push(row)?);
        } else if let Some(lane) = row.try_get::<Option<i64>, _>("lane")? {
            taken.reached.push((lane, row.try_get("line")?));
        } else {
            taken.room = room_in(row)?;
            taken.floors = row.try_get("permit_floors")?;
            taken.began = row.try_get::<Option<i64>, _>("at_ms")?.zip(row.try_get::<Option<i64>, _>("within_ms")?);
        }
    }
    in_lines.sort_unstable_by_key(|(turn, ..)| *turn);
    taken.in_lines = in_lines.into_iter().map(|(_, lane, line, place)| (lane, line, place)).collect();
    Ok(taken)
}

/// What is left for a handler to come to its first line once the clock was looked at: others may have the processor meanwhile. And for what the
/// clocks are rounded by.
fn margin(within: Duration) -> Duration {
    (within / 2).clamp(Duration::from_millis(2), Duration::from_millis(50))
}

fn room_in(row: &PgRow) -> sqlx::Result<Room> {
    let wait = row.try_get::<Option<f64>, _>("wait_ms")?.unwrap_or(0.0);
    Ok(match row.try_get::<Option<&str>, _>("closed")? {
        None => Room::Open,
        Some("lines") => Room::Keys(row.try_get::<Option<f64>, _>("wait_ms")?.map(after_ms)),
        Some("more") => Room::More,
        Some("rate") => Room::Later(Duration::from_secs_f64(wait.clamp(0.0, 1e9) / 1000.0)),
        Some("unknown") => Room::Unknown,
        Some("gone") => Room::Gone,
        Some(_) => Room::Full,
    })
}

/// What the first round trip took.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) lanes: Vec<i64>,
    places: Vec<i64>,
    ids: Vec<i64>,
    attempts: Vec<i16>,
    crashes: Vec<i16>,
    /// Of what stood in lines, in the order of their turns: the plain lane, the line, and the place in that.
    pub(super) in_lines: Vec<(i64, i64, i64)>,
    /// After which line each lane goes on.
    pub(super) reached: Vec<(i64, i64)>,
    pub(super) room: Room,
    floors: Option<Vec<i64>>,
    /// When it was, by the database's clock, and within how many ms its jobs begin, if there is a rate.
    began: Option<(i64, i64)>,
}

impl Taken {
    /// Of what stood in a line: its turn, and what is noted of it.
    fn push(&mut self, row: &PgRow) -> sqlx::Result<Option<(i64, i64, i64, i64)>> {
        let (lane, seq, turn): (i64, i64, i64) = (row.try_get("lane")?, row.try_get("seq")?, row.try_get("turn")?);
        // Of a line the turn is what it is sorted by.
        let line: Option<i64> = row.try_get("line")?;
        self.lanes.push(lane);
        self.places.push(if line.is_some() { turn } else { seq });
        self.ids.push(row.try_get("id")?);
        self.attempts.push(row.try_get("attempts")?);
        self.crashes.push(row.try_get("crashes")?);
        Ok(line.map(|line| (turn, lane, line, seq)))
    }

    /// The second round trip, if there is anything to wait for.
    pub(super) async fn confirm(self, connection: &mut PgConnection, store: Store, request: &Request) -> sqlx::Result<Rows> {
        if self.ids.is_empty() {
            return Ok(Rows { in_lines: self.in_lines, reached: self.reached, room: self.room, ..Rows::default() });
        }
        let sent = Instant::now();
        let statement = sqlx::query(store.sql(include_str!("../../sql/confirm.sql")))
            .bind(request.token())
            .bind(&self.lanes)
            .bind(&self.places)
            .bind(&self.ids)
            .bind(&self.attempts)
            .bind(&self.crashes)
            .bind(narrow(LARGEST / request.most.max(1)));
        let jobs = bounded(statement.fetch_all(&mut *connection)).await?;
        let now: Option<i64> = jobs.first().map(|row| row.try_get("now_ms")).transpose()?;
        let large = large::read(connection, store, &jobs).await?;
        let start = self.began.zip(now).map(|((at, within), now)| {
            let within = Duration::from_millis(u64::try_from(within).unwrap_or(0));
            // By the database's clock: how long since the claim. Ours says only how long since we asked for that.
            let before = u64::try_from(now - at).map_or(within, Duration::from_millis);
            Start { until: sent + within.saturating_sub(before + margin(within)), spent: before + sent.elapsed() }
        });
        // What is not on the disk a crash takes back, and gives out again.
        let floors = self.floors.filter(|_| !jobs.is_empty());
        Ok(Rows { jobs, large, in_lines: self.in_lines, reached: self.reached, room: self.room, start, floors, is_noted: false })
    }
}

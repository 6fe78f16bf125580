//! A claim under limits: one round trip that takes permits with the jobs, and one that waits until that is on the disk. Nothing begins before, but
//! the next claim may be sent.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _, error::DatabaseError, postgres::PgRow};

use super::{
    claim::{Request, Rows, narrow},
    left_out::{self, LARGEST},
    room::{Asked, Room, Start},
};
use crate::live::{after_ms, bounded};

/// The first round trip.
pub(super) async fn take(
    connection: &mut PgConnection,
    store: Store,
    request: &Request,
    asked: &Asked,
    since: Instant,
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
        .bind(asked.floors.as_ref().filter(|(_, learned)| since < *learned).map(|(floors, _)| &floors[..]));
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
            taken.room = room_in(row, request, &taken.reached)?;
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

fn room_in(row: &PgRow, request: &Request, reached: &[(i64, i64)]) -> sqlx::Result<Room> {
    let wait = row.try_get::<Option<f64>, _>("wait_ms")?.unwrap_or(0.0);
    Ok(match row.try_get::<Option<&str>, _>("closed")? {
        None => Room::Open,
        Some("lines") => Room::Keys(row.try_get::<Option<f64>, _>("wait_ms")?.map(after_ms)),
        Some("more") => Room::More(part(request, reached)),
        Some("rate") => Room::Later(Duration::from_secs_f64(wait.clamp(0.0, 1e9) / 1000.0)),
        Some("unknown") => Room::Unknown,
        Some("gone") => Room::Gone,
        Some(_) => Room::Full,
    })
}

/// How far round a claim has looked in each of its lanes: in the one in which it has come least far.
fn part(request: &Request, reached: &[(i64, i64)]) -> u64 {
    let begun: HashMap<i64, i64> = request.shares.iter().map(|share| share.lane).zip(request.begins.iter().copied()).collect();
    let parts = reached.iter().filter_map(|(lane, line)| begun.get(lane).map(|begin| turned(*begin, *line)));
    parts.min().unwrap_or(u64::MAX)
}

/// Lines are spread evenly over all numbers. Who comes to where it began has been at all.
fn turned(begin: i64, reached: i64) -> u64 {
    match reached.wrapping_sub(begin) as u64 {
        0 => u64::MAX,
        part => part,
    }
}

/// What the first round trip took.
#[derive(Default)]
pub(super) struct Taken {
    /// The id, the lane, the place, the attempt and the crashes of each job.
    pub(super) jobs: Vec<(i64, i64, i64, i16, i16)>,
    /// Of what stood in lines, in the order of their turns: the plain lane, the line, and the place in that.
    pub(super) in_lines: Vec<(i64, i64, i64)>,
    /// The place of each of these.
    pub(super) places: HashMap<JobId, i64>,
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
        let (id, place) = (row.try_get("id")?, if line.is_some() { turn } else { seq });
        if line.is_some() {
            self.places.insert(JobId(id), seq);
        }
        self.jobs.push((id, lane, place, row.try_get("attempts")?, row.try_get("crashes")?));
        Ok(line.map(|line| (turn, lane, line, seq)))
    }

    /// The second round trip, if there is anything to wait for.
    pub(super) async fn confirm(mut self, connection: &mut PgConnection, store: Store, request: &Request) -> sqlx::Result<Rows> {
        if self.jobs.is_empty() {
            return Ok(Rows { in_lines: self.in_lines, reached: self.reached, room: self.room, ..Rows::default() });
        }
        // As the lease lists them.
        self.jobs.sort_unstable();
        let sent = Instant::now();
        let statement = sqlx::query(store.sql(include_str!("../../sql/confirm.sql")))
            .bind(request.token())
            .bind(self.jobs.iter().map(|(_, lane, ..)| *lane).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, place, ..)| *place).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, _, attempt, _)| *attempt).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, _, _, crashes)| *crashes).collect::<Vec<_>>())
            .bind(narrow(LARGEST / request.most.max(1)));
        let jobs = bounded(statement.fetch_all(&mut *connection)).await?;
        let now: Option<i64> = jobs.first().map(|row| row.try_get("now_ms")).transpose()?;
        let left_out = left_out::read(connection, store, &jobs).await?;
        let start = self.began.zip(now).map(|((at, within), now)| {
            let within = Duration::from_millis(u64::try_from(within).unwrap_or(0));
            // By the database's clock: how long since the claim. Ours says only how long since we asked for that.
            let before = u64::try_from(now - at).map_or(within, Duration::from_millis);
            Start { until: sent + within.saturating_sub(before + margin(within)), spent: before + sent.elapsed() }
        });
        // What is not on the disk a crash takes back, and gives out again.
        let floors = self.floors.filter(|_| !jobs.is_empty());
        let Self { in_lines, places, reached, room, .. } = self;
        Ok(Rows { jobs, left_out, in_lines, places, reached, room, start, floors, ..Rows::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_turned_round_once_it_is_where_it_began() {
        assert_eq!((turned(5, 8), turned(5, 5)), (3, u64::MAX));
        assert_eq!(turned(i64::MAX, i64::MIN), 1, "from the highest to the lowest");
        assert_eq!(turned(5, 4), u64::MAX);
    }
}

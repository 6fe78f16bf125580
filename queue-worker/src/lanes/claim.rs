//! Taking jobs: one claim, from lanes or from lines, which may be in the air while others are prepared or looked through.
//!
//! A [`Claimed`] comes from here only, and is consumed by a verdict: a job cannot be run without a lease, or settled twice.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{JobId, Store, runner::ClaimedJob};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    hand::InHand,
    held::{Holding, KnownLeases},
    lane::Lane,
    left_out::{self, LARGEST, Stored},
    rescan::{Sweep, Swept},
    room::{Asked, Room, Start},
    track::Track,
};
use crate::live::bounded;

/// A job that this worker holds under a lease.
pub(crate) struct Claimed {
    pub(crate) job: ClaimedJob,
    /// How many jobs its lease had in all.
    pub(crate) batch: usize,
    /// Kept until its ending is written.
    pub(crate) holding: Arc<Holding>,
    /// From then on it does not begin any more, if it may not at any time: somewhat early, and then the database's clock decides.
    pub(crate) begin_by: Option<Instant>,
    /// For how long it was ready before its claim.
    pub(crate) waited: Duration,
    /// When that was asked for.
    pub(crate) asked: Instant,
    /// Its payload, once it is in hand.
    pub(crate) held: Option<InHand>,
}

impl Claimed {
    /// How long it was ready before its handler began then: by the database's clock until the claim, and by ours since that was asked for.
    pub(crate) fn latency(&self, began: Instant) -> Duration {
        self.waited + began.saturating_duration_since(self.asked)
    }

    /// Whether its start would not be counted any more.
    pub(crate) fn has_no_room(&self) -> bool {
        self.job.room_until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A lane to claim from, and how many of it at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) lane: i64,
    pub(crate) most: usize,
}

/// Where a claim takes jobs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Lanes, each in the order of places: from their floors on, or from anywhere.
    Lanes { from_zero: bool },
    /// Lanes below their floors, at some blocks of the table: what was committed late.
    Late(Sweep),
    /// The lines of fair lanes, in turn.
    Lines,
    /// Lanes that limits cover: fair ones by their lines, others as above.
    Limited { from_zero: bool },
}

impl From {
    /// Whether it takes from this lane's lines.
    fn are_lines(self, lane: Option<&Lane>) -> bool {
        match self {
            Self::Lanes { .. } | Self::Late(_) => false,
            Self::Lines => true,
            Self::Limited { .. } => lane.is_some_and(|lane| lane.fair),
        }
    }
}

/// One claim: up to `most` jobs of these lanes, which are in the order to be served.
#[derive(Debug)]
pub(crate) struct Request {
    holding: Arc<Holding>,
    pub(crate) worker: Uuid,
    pub(crate) shares: Vec<Share>,
    pub(crate) most: usize,
    pub(crate) from: From,
    /// From where each lane's jobs begin: its floor, or the line after which it goes on.
    pub(super) begins: Vec<i64>,
    /// Which of the lanes stand in lines.
    pub(super) in_lines: Vec<bool>,
    /// The limits that cover all of these lanes, if any do.
    pub(super) limits: Option<Asked>,
    /// Whether it may ask where lanes begin that have nothing.
    pub(super) may_ask: bool,
    /// The lanes of transactional jobs, each of which has a lease of its own.
    apart: Vec<i64>,
}

/// What came of it.
pub(crate) struct Answer {
    pub(crate) request: Request,
    pub(super) rows: sqlx::Result<Rows>,
    pub(super) asked: Instant,
    pub(crate) took: Duration,
}

/// The rows of a claim.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) jobs: Vec<PgRow>,
    /// The jobs that were read apart, each with whether its payload is still unread.
    pub(super) left_out: HashMap<JobId, (Stored, bool)>,
    /// The plain lane, the line and the place in it of each job that stood in one, in the order of their turns.
    pub(super) in_lines: Vec<(i64, i64, i64)>,
    /// The place of each of these.
    pub(super) places: HashMap<JobId, i64>,
    /// After which line each lane goes on, if a claim under limits by key says so.
    pub(super) reached: Vec<(i64, i64)>,
    /// What stood in the way of more.
    pub(super) room: Room,
    /// By when the jobs begin, if there is a rate.
    pub(super) start: Option<Start>,
    pub(super) floors: Option<Vec<i64>>,
    /// It was noted already how far each lane has come.
    pub(super) is_noted: bool,
    /// Of a claim of what was committed late: which part of a look that was.
    pub(super) swept: Option<Swept>,
    /// The place at which lanes begin that brought nothing, if that is to be remembered.
    pub(super) empty_below: Option<i64>,
}

/// What a claim brought.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) jobs: Vec<Claimed>,
    /// Jobs whose payloads would be too much at once: to be given back.
    pub(crate) unread: Vec<Claimed>,
    /// By when the jobs begin, if there is a rate.
    pub(crate) start: Option<Start>,
    /// From where on the next claim under these limits reads their permits.
    pub(crate) floors: Option<Vec<i64>>,
    /// Which part of a look below the floors it was, if no more than a part.
    pub(crate) swept: Option<Swept>,
}

/// What it brought of a lane.
struct OfLane {
    lane: i64,
    lowest: i64,
    jobs: usize,
    bytes: usize,
    queue: Arc<str>,
    job_type: &'static str,
    version: u16,
    /// Where it stands among those that were asked.
    rank: usize,
}

impl OfLane {
    fn new(id: i64, lowest: i64, lane: Option<&Lane>, rank: Option<&usize>) -> Self {
        Self {
            lane: id,
            lowest,
            jobs: 0,
            bytes: 0,
            queue: lane.map(|lane| Arc::clone(&lane.queue)).unwrap_or_default(),
            job_type: lane.map_or("", |lane| lane.job_type),
            version: lane.map_or(1, |lane| lane.version),
            rank: rank.copied().unwrap_or(usize::MAX),
        }
    }
}

/// What a claim brought of each lane. Its rows come lane by lane, so that the last one is found without a look for it.
#[derive(Default)]
struct OfLanes {
    all: Vec<OfLane>,
    places: HashMap<i64, usize>,
    last: usize,
}

impl OfLanes {
    fn of(&mut self, lane: i64, fresh: impl FnOnce() -> OfLane) -> &mut OfLane {
        if self.all.get(self.last).is_none_or(|of| of.lane != lane) {
            let Self { all, places, .. } = self;
            self.last = *places.entry(lane).or_insert_with(|| {
                all.push(fresh());
                all.len() - 1
            });
        }
        &mut self.all[self.last]
    }

    /// Notes how large the payloads of each are and, if the lane's next jobs are to be looked for there, its lowest place.
    fn note(self, lanes: &mut Track, in_lines: &[(i64, i64, i64)], begins_there: bool) {
        lanes.note_sizes(self.all.iter().map(|of| (of.lane, of.bytes / of.jobs)));
        let known = |lane: i64| in_lines.iter().any(|(other, ..)| *other == lane);
        if begins_there {
            lanes.floors.raise(self.all.into_iter().filter(|of| !known(of.lane)).map(|of| (of.lane, of.lowest)));
        }
    }
}

impl Request {
    pub(crate) fn new(worker: Uuid, shares: Vec<Share>, most: usize, from: From, lanes: &mut Track, held: &KnownLeases) -> Self {
        let in_lines: Vec<bool> = shares.iter().map(|share| from.are_lines(lanes.get(share.lane))).collect();
        let begin = |(share, in_lines): (&Share, &bool)| match from {
            _ if *in_lines => lanes.turns.after(share.lane),
            From::Lanes { from_zero: true } | From::Limited { from_zero: true } => 0,
            _ => lanes.floor(share.lane),
        };
        let begins = shares.iter().zip(&in_lines).map(begin).collect();
        let is_apart =
            |share: &&Share| matches!(from, From::Lanes { .. }) && lanes.get(share.lane).is_some_and(|lane| lanes.is_transactional(lane));
        let apart = shares.iter().filter(is_apart).map(|share| share.lane).collect();
        Self { holding: held.begin(), worker, shares, most, from, begins, in_lines, limits: None, may_ask: lanes.floors.may_ask(), apart }
    }

    /// Of lanes that limits cover.
    pub(crate) fn under(mut self, limits: Asked) -> Self {
        self.limits = Some(limits);
        self
    }

    /// That of a job of this lane, and how many it has: one, or as many as are in the lease that others have in common.
    fn lease_of(&self, lane: i64, id: JobId, in_common: usize) -> (Arc<Holding>, usize) {
        match &self.limits {
            _ if self.apart.contains(&lane) => (self.holding.of_job(id), 1),
            Some(under) => (self.holding.part(&under.told, &under.gates), in_common),
            None => (Arc::clone(&self.holding), in_common),
        }
    }

    /// How many of these jobs the lease has that is not of one job.
    fn count_in_common(&self, rows: &[PgRow]) -> usize {
        let is_apart = |row: &&PgRow| row.try_get_unchecked(0).is_ok_and(|lane: i64| self.apart.contains(&lane));
        if self.apart.is_empty() { rows.len() } else { rows.iter().filter(|row| !is_apart(row)).count() }
    }

    /// Of which leases it says that jobs have ended.
    pub(crate) fn freed(&self) -> &[Uuid] {
        self.limits.as_ref().map_or(&[], |limits| &limits.freed)
    }

    /// The range of ids within which it reads jobs itself: from a week before the lowest floor of its lanes, because retried jobs have older ids, to
    /// a day after the highest. All ids if no floor is known.
    fn days(&self) -> (i64, i64) {
        const DAY: i64 = (24 * 60 * 60 * 1000) << 20;
        let known = self.begins.iter().copied().filter(|begin| *begin > 0);
        let days = |(first, last): (i64, i64)| (first.saturating_sub(7 * DAY), last.saturating_add(DAY));
        known.clone().min().zip(known.max()).map_or((i64::MIN, i64::MAX), days)
    }

    /// What names the lease.
    pub(super) fn token(&self) -> Uuid {
        self.holding.token()
    }

    /// Takes no more than so many of what was committed late, at some blocks of the table if that is said.
    pub(crate) fn late(&mut self, most: usize, sweep: Option<Sweep>, lanes: &Track) {
        self.most = self.most.min(most);
        if let Some(sweep) = sweep {
            self.from = From::Late(sweep);
            self.apart.clear();
            self.begins = self.shares.iter().map(|share| lanes.floor(share.lane)).collect();
        }
    }

    /// Of lanes without limits.
    pub(super) async fn claim(&self, connection: &mut PgConnection, store: Store) -> sqlx::Result<Rows> {
        let text = match self.from {
            From::Late(sweep) => return self.claim_late(connection, store, sweep).await,
            From::Lines => include_str!("../../sql/claim_lines.sql"),
            From::Lanes { .. } | From::Limited { .. } => include_str!("../../sql/claim.sql"),
        };
        let statement = sqlx::query(store.sql(text))
            .bind(self.holding.token())
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.begins)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
            .bind(narrow(self.most))
            .bind(narrow(LARGEST / self.most.max(1)));
        let (from, beyond) = self.days();
        let statement = if self.from == From::Lines { statement } else { statement.bind(&self.apart).bind(from).bind(beyond) };
        let began = Instant::now();
        let jobs = bounded(statement.fetch_all(&mut *connection)).await?;
        let empty_below = match self.from {
            From::Lanes { .. } => self.empty_below(connection, store, &jobs, began.elapsed()).await?,
            _ => None,
        };
        let left_out = left_out::read(connection, store, &jobs).await?;
        let place = |row: &PgRow| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(11)?, row.try_get_unchecked(12)?));
        let in_lines = if self.from == From::Lines { jobs.iter().map(place).collect::<sqlx::Result<_>>()? } else { Vec::new() };
        let place = |row: &PgRow| Ok((row.try_get_unchecked(2)?, row.try_get_unchecked(12)?));
        let places = if self.from == From::Lines { jobs.iter().map(place).collect::<sqlx::Result<_>>()? } else { HashMap::new() };
        Ok(Rows { jobs, left_out, in_lines, places, empty_below, ..Rows::default() })
    }
}

/// As the statements take it.
pub(super) fn narrow(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl Answer {
    /// The jobs, in the order in which their lanes were named; each lane's floor is its lowest place among them. If the answer never came,
    /// nobody here knows of the lease any more, and what it lists is given back.
    pub(crate) fn read(self, lanes: &mut Track) -> sqlx::Result<Brought> {
        let Rows { jobs: rows, mut left_out, in_lines, places, reached, room, start, floors, is_noted, swept, empty_below } = self.rows?;
        self.request.note_empty(empty_below, &rows, lanes)?;
        if !is_noted {
            self.request.reach(&in_lines, &reached, rows.len() < self.request.most && room == Room::Open).note(lanes);
        }
        // What is taken for one that was not read.
        let mean = left_out.values().filter_map(|(job, _)| Some(job.payload.as_ref()?.len())).sum::<usize>() / left_out.len().max(1);
        let mut unread = Vec::new();
        let rank: HashMap<i64, usize> = self.request.shares.iter().enumerate().map(|(rank, share)| (share.lane, rank)).collect();
        let mut of_lanes = OfLanes::default();
        let mut claimed: Vec<(usize, i64, Claimed)> = Vec::with_capacity(rows.len());
        // The same in every row.
        let Some(claimed_at): Option<DateTime<Utc>> = rows.first().map(|row| row.try_get(10)).transpose()? else {
            return Ok(Brought { swept, ..Brought::default() });
        };
        let in_common = self.request.count_in_common(&rows);
        self.request.holding.expect(in_common);
        for row in &rows {
            // Unchecked: the types of the columns are the statement's, which the first claim of any test would find wrong.
            let (lane, seq): (i64, i64) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            let id: JobId = row.try_get_unchecked(2)?;
            let payload: Option<String> = row.try_get_unchecked(6)?;
            let (read, is_unread) = match payload {
                Some(_) => (Stored::of(row, payload)?, false),
                None => left_out.remove(&id).unwrap_or((Stored::default(), true)),
            };
            // Neither payload nor row: the job is gone, and its attempt reports that.
            let Stored { max_attempts, payload, key, meta, system } = read;
            let of_lane = of_lanes.of(lane, || OfLane::new(lane, seq, lanes.get(lane), rank.get(&lane)));
            of_lane.lowest = seq.min(of_lane.lowest);
            of_lane.jobs += 1;
            of_lane.bytes += payload.as_ref().map_or(if is_unread { mean } else { 0 }, String::len);
            let (holding, batch) = self.request.lease_of(lane, id, in_common);
            let job = ClaimedJob {
                token: holding.token(),
                id,
                lane,
                queue: Arc::clone(&of_lane.queue),
                claimed_at,
                attempt: row.try_get_unchecked(3)?,
                crashes: row.try_get_unchecked(4)?,
                max_attempts: max_attempts.unwrap_or(1),
                job_type: of_lane.job_type,
                version: of_lane.version,
                payload,
                key,
                meta,
                system,
                room_until: start.map(|start| start.until),
            };
            let begin_by = job.may_begin_within().and_then(|within| self.asked.checked_add(within));
            let waited = waited(places.get(&id).copied().unwrap_or(seq), claimed_at);
            let job = Claimed { job, batch, holding, begin_by, waited, asked: self.asked, held: None };
            if is_unread {
                unread.push(job);
            } else {
                claimed.push((of_lane.rank, seq, job));
            }
        }
        let bytes = of_lanes.all.iter().map(|of| of.bytes).sum::<usize>() - unread.len() * mean;
        tracing::debug!(jobs = rows.len(), bytes, unread = unread.len(), "claimed");
        // The few that were committed late are all taken: from a floor that falls to them the next claim would walk all that is dead above.
        of_lanes.note(lanes, &in_lines, swept.is_none() || rows.len() >= self.request.most);
        claimed.sort_unstable_by_key(|(rank, seq, _)| (*rank, *seq));
        Ok(Brought { jobs: claimed.into_iter().map(|(_, _, job)| job).collect(), unread, start, floors, swept })
    }
}

/// How long a job was ready that has this place in its lane, until it was claimed. A place is an id, and so tells when it was taken.
fn waited(place: i64, claimed_at: DateTime<Utc>) -> Duration {
    Duration::from_millis(u64::try_from(claimed_at.timestamp_millis() - (place >> 20)).unwrap_or(0))
}

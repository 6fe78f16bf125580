//! Taking jobs: one claim, from lanes or from lines, which may be in the air while others are prepared or looked through.
//!
//! A [`Claimed`] comes from here only, and is consumed by a verdict: a job cannot be run without a lease, or settled twice.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Store,
    runner::{ClaimedJob, OrderingKey},
};
use sqlx::{ColumnIndex, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    Lanes,
    held::{Holding, KnownLeases},
    large::{self, LARGEST},
};
use crate::live::{Link, bounded};

/// A job that this worker holds under a lease.
pub(crate) struct Claimed {
    pub(crate) job: ClaimedJob,
    /// How many jobs its lease had in all.
    pub(crate) batch: usize,
    /// Kept until its ending is written.
    pub(crate) holding: Arc<Holding>,
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
    /// The lines of fair lanes, in turn.
    Lines,
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
    begins: Vec<i64>,
}

/// What came of it.
pub(crate) struct Answer {
    pub(crate) request: Request,
    /// The payloads that were read apart, too.
    rows: sqlx::Result<(Vec<PgRow>, HashMap<JobId, String>)>,
    pub(crate) took: Duration,
}

/// What a claim brought.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) jobs: Vec<Claimed>,
    /// Jobs whose payloads would be too much at once: to be given back.
    pub(crate) unread: Vec<Claimed>,
}

/// What it brought of a lane.
struct OfLane {
    lowest: i64,
    jobs: usize,
    bytes: usize,
}

impl Request {
    pub(crate) fn new(worker: Uuid, shares: Vec<Share>, most: usize, from: From, lanes: &mut Lanes, held: &KnownLeases) -> Self {
        let begin = |share: &Share| match from {
            From::Lanes { from_zero: true } => 0,
            From::Lanes { from_zero: false } => lanes.floor(share.lane),
            From::Lines => lanes.turns.after(share.lane),
        };
        let begins = shares.iter().map(begin).collect();
        Self { holding: held.begin(), worker, shares, most, from, begins }
    }

    /// Takes no more than so many.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = self.most.min(most);
    }

    /// Sends it, and waits for its rows, which are not looked at yet.
    pub(crate) async fn send(self, link: &mut Link, store: Store) -> Answer {
        let narrow = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let began = Instant::now();
        let text = match self.from {
            From::Lanes { .. } => include_str!("../../sql/claim.sql"),
            From::Lines => include_str!("../../sql/claim_lines.sql"),
        };
        let statement = sqlx::query(store.sql(text))
            .bind(self.holding.token())
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.begins)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
            .bind(narrow(self.most))
            .bind(narrow(LARGEST / self.most.max(1)));
        let is_first = link.is_new();
        let rows = match link.get().await {
            Ok(connection) => match bounded(statement.fetch_all(&mut *connection)).await {
                Ok(rows) => large::read(connection, store, &rows).await.map(|large| (rows, large)),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let rows = link.note(rows);
        // The first one includes the connecting and the planning, which say nothing about the tables.
        Answer { request: self, rows, took: if is_first { Duration::ZERO } else { began.elapsed() } }
    }
}

impl Answer {
    /// The jobs, in the order in which their lanes were named; each lane's floor is its lowest place among them. If the answer never came,
    /// nobody here knows of the lease any more, and what it lists is given back.
    pub(crate) fn read(self, lanes: &mut Lanes) -> sqlx::Result<Brought> {
        let (holding, (rows, mut large)) = (&self.request.holding, self.rows?);
        // What is taken for one that was not read.
        let mean = large.values().map(String::len).sum::<usize>() / large.len().max(1);
        let mut unread = Vec::new();
        let rank: HashMap<i64, usize> = self.request.shares.iter().enumerate().map(|(rank, share)| (share.lane, rank)).collect();
        let mut of_lanes: HashMap<i64, OfLane> = HashMap::new();
        let mut claimed: Vec<(usize, i64, Claimed)> = Vec::with_capacity(rows.len());
        // The same in every row.
        let Some(claimed_at) = rows.first().map(|row| row.try_get(10)).transpose()? else { return Ok(Brought::default()) };
        for row in &rows {
            // Unchecked: the types of the columns are the statement's, which the first claim of any test would find wrong.
            let (lane, seq): (i64, i64) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            let (id, max_attempts): (JobId, Option<i16>) = (row.try_get_unchecked(2)?, row.try_get_unchecked(5)?);
            let mut payload: Option<String> = row.try_get_unchecked(6)?;
            if payload.is_none() && !large.is_empty() {
                payload = large.remove(&id);
            }
            // Without either there is no such job, which its attempt tells of.
            let is_unread = payload.is_none() && max_attempts.is_some();
            let of_lane = of_lanes.entry(lane).or_insert(OfLane { lowest: seq, jobs: 0, bytes: 0 });
            of_lane.lowest = seq.min(of_lane.lowest);
            of_lane.jobs += 1;
            of_lane.bytes += payload.as_ref().map_or(if is_unread { mean } else { 0 }, String::len);
            let job = ClaimedJob {
                token: holding.token(),
                id,
                lane,
                claimed_at,
                attempt: row.try_get_unchecked(3)?,
                crashes: row.try_get_unchecked(4)?,
                max_attempts: max_attempts.unwrap_or(1),
                job_type: lanes.get(lane).map_or("", |lane| lane.job_type),
                version: lanes.get(lane).map_or(1, |lane| lane.version),
                payload,
                key: key_of(row, 7, 8)?,
                meta: row.try_get_unchecked(9)?,
            };
            let job = Claimed { job, batch: rows.len(), holding: Arc::clone(holding) };
            if is_unread {
                unread.push(job);
            } else {
                claimed.push((rank.get(&lane).copied().unwrap_or(usize::MAX), seq, job));
            }
        }
        let bytes = of_lanes.values().map(|of| of.bytes).sum::<usize>() - unread.len() * mean;
        tracing::debug!(jobs = rows.len(), bytes, unread = unread.len(), "claimed");
        lanes.note_sizes(of_lanes.iter().map(|(lane, of)| (*lane, of.bytes / of.jobs)));
        match self.request.from {
            From::Lanes { .. } => lanes.raise_floors(of_lanes.into_iter().map(|(lane, of)| (lane, of.lowest))),
            From::Lines => come(lanes, &self.request, &rows)?,
        }
        claimed.sort_unstable_by_key(|(rank, seq, _)| (*rank, *seq));
        if rows.len() >= self.request.most
            && let Some((rank, ..)) = claimed.last()
        {
            lanes.take_back(self.request.shares.iter().skip(*rank).map(|share| share.lane));
        }
        Ok(Brought { jobs: claimed.into_iter().map(|(_, _, job)| job).collect(), unread })
    }
}

/// Notes how far each lane has come. What stands in the lines of a lane that brought less than it was asked for was not there yet: it has
/// a higher place than all that was.
fn come(lanes: &mut Lanes, request: &Request, rows: &[PgRow]) -> sqlx::Result<()> {
    let mut jobs: HashMap<i64, usize> = HashMap::new();
    for row in rows {
        let (lane, line, place): (i64, i64, i64) = (row.try_get_unchecked(0)?, row.try_get_unchecked(11)?, row.try_get_unchecked(12)?);
        lanes.turns.come(lane, line, place);
        *jobs.entry(lane).or_default() += 1;
    }
    if rows.len() < request.most {
        lanes.rest(request.shares.iter().filter(|share| jobs.get(&share.lane).copied().unwrap_or(0) < share.most).map(|share| share.lane));
    }
    Ok(())
}

/// The ordering key in a row of a claim: its columns' places or names.
pub(crate) fn key_of<I: ColumnIndex<PgRow>>(row: &PgRow, key: I, skips_dead: I) -> sqlx::Result<Option<OrderingKey>> {
    let Some(id) = row.try_get_unchecked(key)? else { return Ok(None) };
    Ok(Some(OrderingKey { id, skips_dead: row.try_get_unchecked::<Option<bool>, _>(skips_dead)?.unwrap_or(false) }))
}

//! Taking jobs: one claim, which may be in the air while others are prepared or looked through.
//!
//! A [`Claimed`] comes from here only, and is consumed by a verdict: a job cannot be run without a lease, or settled twice.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use crate::{
    connect::{Link, bounded},
    lanes::Lanes,
};

/// A job that this worker holds under the lease `token`.
pub(crate) struct Claimed {
    pub(crate) token: Uuid,
    pub(crate) id: JobId,
    pub(crate) lane: i64,
    pub(crate) attempt: i16,
    pub(crate) crashes: i16,
    pub(crate) max_attempts: i16,
    pub(crate) job_type: &'static str,
    /// How many jobs its lease had in all.
    pub(crate) batch: usize,
    /// As text: it is decoded by its own attempt, so that one bad payload harms nobody else. `None` if its row is missing.
    pub(crate) payload: Option<String>,
    /// Its ordering key, and whether that goes on once the job is dead.
    pub(crate) key: Option<(i64, bool)>,
    /// Kept until its verdict is written.
    pub(crate) held: Arc<()>,
}

/// A lane to claim from, and how many of it at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) lane: i64,
    pub(crate) most: usize,
}

/// One claim: up to `most` jobs of these lanes, which are in the order to be served.
#[derive(Debug)]
pub(crate) struct Request {
    token: Uuid,
    pub(crate) worker: Uuid,
    pub(crate) shares: Vec<Share>,
    pub(crate) most: usize,
    /// Whether it looks for jobs below the floors too.
    pub(crate) from_zero: bool,
    floors: Vec<i64>,
}

/// What came of it.
pub(crate) struct Answer {
    pub(crate) request: Request,
    rows: sqlx::Result<Vec<PgRow>>,
    pub(crate) took: Duration,
}

impl Request {
    pub(crate) fn new(worker: Uuid, shares: Vec<Share>, most: usize, from_zero: bool, lanes: &Lanes) -> Self {
        let zero = from_zero;
        #[cfg(feature = "mutants")]
        let zero = zero && !queue_core::mutants::bug("no_rescan");
        let floors = shares.iter().map(|share| if zero { 0 } else { lanes.floor(share.lane) }).collect();
        Self { token: Uuid::new_v4(), worker, shares, most, from_zero, floors }
    }

    /// Takes no more than so many.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = self.most.min(most);
    }

    /// Sends it, and waits for its rows, which are not looked at yet.
    pub(crate) async fn send(self, link: &mut Link, store: Store) -> Answer {
        let narrow = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let began = Instant::now();
        let statement = sqlx::query(store.sql(include_str!("../sql/claim.sql")))
            .bind(self.token)
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.floors)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
            .bind(narrow(self.most));
        let is_first = link.is_new();
        let rows = match link.get().await {
            Ok(connection) => bounded(statement.fetch_all(connection)).await,
            Err(error) => Err(error),
        };
        let rows = link.note(rows);
        // The first one includes the connecting and the planning, which say nothing about the tables.
        Answer { request: self, rows, took: if is_first { Duration::ZERO } else { began.elapsed() } }
    }
}

impl Answer {
    /// The jobs, in the order in which their lanes were named; each lane's floor is its lowest place among them. If the answer never came,
    /// its token is kept among the strays.
    pub(crate) fn read(self, lanes: &mut Lanes, strays: &mut Strays, held: &Arc<()>) -> sqlx::Result<Vec<Claimed>> {
        let token = self.request.token;
        let rows = self.rows.inspect_err(|_| strays.note(token))?;
        let rank: HashMap<i64, usize> = self.request.shares.iter().enumerate().map(|(rank, share)| (share.lane, rank)).collect();
        let mut lowest: HashMap<i64, i64> = HashMap::new();
        let mut claimed: Vec<(usize, i64, Claimed)> = Vec::with_capacity(rows.len());
        for row in &rows {
            let (lane, seq): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            lowest.entry(lane).and_modify(|low| *low = seq.min(*low)).or_insert(seq);
            let job = Claimed {
                token,
                id: row.try_get(2)?,
                lane,
                attempt: row.try_get(3)?,
                crashes: row.try_get(4)?,
                max_attempts: row.try_get::<Option<i16>, _>(5)?.unwrap_or(1),
                job_type: lanes.get(lane).map_or("", |lane| lane.job_type),
                batch: rows.len(),
                payload: row.try_get(6)?,
                key: key_of(row)?,
                held: Arc::clone(held),
            };
            claimed.push((rank.get(&lane).copied().unwrap_or(usize::MAX), seq, job));
        }
        #[cfg(feature = "mutants")]
        queue_core::mutants::decode_as_a_batch(claimed.iter_mut().map(|(_, _, job)| &mut job.payload));
        lanes.raise_floors(lowest);
        claimed.sort_unstable_by_key(|(rank, seq, _)| (*rank, *seq));
        if claimed.len() >= self.request.most
            && let Some((rank, ..)) = claimed.last()
        {
            lanes.take_back(self.request.shares.iter().skip(*rank).map(|share| share.lane));
        }
        Ok(claimed.into_iter().map(|(_, _, job)| job).collect())
    }
}

/// The ordering key in a row of a claim.
pub(crate) fn key_of(row: &PgRow) -> sqlx::Result<Option<(i64, bool)>> {
    let key: Option<i64> = row.try_get("key")?;
    let Some(key) = key else { return Ok(None) };
    Ok(Some((key, row.try_get::<Option<bool>, _>("key_skips")?.unwrap_or(false))))
}

/// Claims whose answer never came. Their jobs may be under a lease of this living worker that it knows nothing of, so nobody would ever
/// recover them: they are given back by token, for as long as the server may still be at work on the claim.
#[derive(Default)]
pub(crate) struct Strays(Vec<(Uuid, Instant)>);

/// Longer than the server may take for one statement of ours.
const STRAY_FOR: Duration = Duration::from_secs(90);

impl Strays {
    fn note(&mut self, token: Uuid) {
        self.0.push((token, Instant::now()));
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// lease -> ready for those whose commit happened after all, uncharged.
    pub(crate) async fn give_back(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
        let tokens: Vec<Uuid> = self.0.iter().map(|(token, _)| *token).collect();
        let statement = sqlx::query(store.sql(include_str!("../sql/give_back.sql"))).bind(tokens);
        bounded(statement.execute(connection)).await?;
        self.0.retain(|(_, since)| since.elapsed() < STRAY_FOR);
        Ok(())
    }
}

/// When to look below the floors: whenever a claim came back short or a second has passed, but never for more than a twentieth of the time,
/// because dead index entries cost more the longer anybody holds a snapshot.
#[derive(Default)]
pub(crate) struct Rescan {
    /// Not before this, lest it take more than a twentieth of the time.
    not_before: Option<Instant>,
    /// At this at the latest, so that a busy worker finds late commits too.
    at_latest: Option<Instant>,
    /// Whether a claim came back short since the last one began.
    pub(crate) owed: bool,
    /// Whether the last one took long: there are many dead index entries.
    pub(crate) is_slow: bool,
}

/// Jobs that come meanwhile do not wait for a look that takes longer than this.
const SLOW: Duration = Duration::from_millis(2);

impl Rescan {
    /// When to claim again before going to sleep: what made the bell ring may lie below a floor.
    pub(crate) fn owed_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.owed)
    }

    /// Whether it is high time for one.
    pub(crate) fn is_due(&self) -> bool {
        self.at_latest.is_none_or(|at| Instant::now() >= at)
    }

    /// One begins now: what comes back short from now on is owed another.
    pub(crate) fn begin(&mut self) {
        self.owed = false;
        self.at_latest = Some(Instant::now() + Duration::from_secs(1));
    }

    /// Whether there is time for one.
    pub(crate) fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// One took so long, and found so many jobs.
    pub(crate) fn done(&mut self, took: Duration, found: usize) {
        let (now, rest) = (Instant::now(), 20 * took);
        self.is_slow = took > SLOW + Duration::from_micros(50) * u32::try_from(found).unwrap_or(u32::MAX);
        self.not_before = Some(now + rest);
        self.at_latest = Some(now + rest.max(Duration::from_secs(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rescan_waits_twenty_times_as_long() {
        let mut rescan = Rescan::default();
        assert!(rescan.is_due());
        rescan.begin();
        assert!(!rescan.is_due(), "one is on its way");
        rescan.done(Duration::from_secs(1), 0);
        assert!(!rescan.may(Instant::now() + Duration::from_secs(19)));
        assert!(rescan.may(Instant::now() + Duration::from_secs(21)));
    }
}

//! Claims. A claim takes ready jobs from lanes and puts the jobs under a new lease. While a claim is in flight, the worker can prepare or
//! evaluate other claims.
//!
//! Only a claim creates a [`LeasedJob`], and only a verdict consumes it. Therefore, no job runs without a lease, and no job is settled
//! twice.

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
    lane::Lane,
    lane_state::LaneState,
    late_scan::{BlockCursor, BlockScan},
    leases::{LeaseGuard, LeaseRegistry},
    limit_outcome::{LimitOutcome, LimitRequest, StartDeadline},
    omitted::{self, JobColumns, MAX_BYTES},
    payload_memory::PayloadReservation,
    totals::{LaneTotals, TotalsByLane},
};
use crate::live::bounded;

/// Job that this worker holds under a lease.
pub(crate) struct LeasedJob {
    pub(crate) job: ClaimedJob,
    /// Total number of jobs in the lease.
    pub(crate) batch: usize,
    /// Guard that keeps the lease registered until the job's verdict is written.
    pub(crate) holding: Arc<LeaseGuard>,
    /// Start deadline by the local clock, if the job expires. Slightly earlier than the authoritative deadline by the database clock.
    pub(crate) begin_by: Option<Instant>,
    /// Time between the job becoming ready and the claim.
    pub(crate) waited: Duration,
    /// Time at which the claim was sent.
    pub(crate) requested_at: Instant,
    /// Payload memory reserved for the job.
    pub(crate) held: Option<PayloadReservation>,
}

impl LeasedJob {
    /// Returns the time between the job becoming ready and the start of the handler. The database clock measures the time until the
    /// claim. The local clock measures the time after the claim.
    pub(crate) fn latency(&self, began: Instant) -> Duration {
        self.waited + began.saturating_duration_since(self.requested_at)
    }

    /// Returns whether the start deadline of the job's rate limit has passed.
    pub(crate) fn has_no_room(&self) -> bool {
        self.job.start_deadline.is_some_and(|until| Instant::now() >= until)
    }
}

/// Lane to claim from, with the maximum number of jobs to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneQuota {
    pub(crate) lane: i64,
    pub(crate) most: usize,
}

/// Jobs that a claim considers, and the order in which it takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimSource {
    /// Ready jobs of each lane in order of queue position, starting at the lane's floor or at zero.
    Lanes { from_zero: bool },
    /// Ready jobs below the floors, in the blocks of the table `ready` that the cursor selects.
    Late(BlockCursor),
    /// Jobs in fair queues. The fair queues of a lane are served in turn.
    FairQueues,
    /// Jobs of lanes under limits. In fair lanes, the fair queues are served in turn. In other lanes, jobs are taken in order of queue
    /// position.
    Limited { from_zero: bool },
}

impl ClaimSource {
    /// Returns whether jobs of `lane` are taken from fair queues.
    fn is_fair(self, lane: Option<&Lane>) -> bool {
        match self {
            Self::Lanes { .. } | Self::Late(_) => false,
            Self::FairQueues => true,
            Self::Limited { .. } => lane.is_some_and(|lane| lane.fair),
        }
    }
}

/// Claim of up to `most` jobs from the lanes in `shares`, in the order of `shares`.
#[derive(Debug)]
pub(crate) struct ClaimRequest {
    holding: Arc<LeaseGuard>,
    pub(crate) worker: Uuid,
    pub(crate) shares: Vec<LaneQuota>,
    pub(crate) most: usize,
    pub(crate) from: ClaimSource,
    /// Start position in each lane. If jobs are taken from fair queues, this is the fair queue after which the claim continues.
    /// Otherwise, this is the lane's floor or zero.
    pub(super) begins: Vec<i64>,
    /// For each lane, whether its jobs are taken from fair queues.
    pub(super) is_fair: Vec<bool>,
    /// Limits that cover all lanes of the claim, if any.
    pub(super) limits: Option<LimitRequest>,
    /// Whether the claim may query a new floor for empty lanes.
    pub(super) may_query_floor: bool,
    /// Lanes of transactional jobs, each of which gets a separate lease. Set only for [`ClaimSource::Lanes`]. All other jobs share the
    /// claim's lease.
    own_leases: Vec<i64>,
}

/// Claim request, and the rows that the claim returned.
pub(crate) struct ClaimResponse {
    pub(crate) request: ClaimRequest,
    pub(super) rows: sqlx::Result<ClaimRows>,
    pub(super) sent: Instant,
    pub(crate) took: Duration,
}

/// Rows returned by a claim, with information about lanes and limits.
#[derive(Default)]
pub(super) struct ClaimRows {
    pub(super) jobs: Vec<PgRow>,
    /// Columns that the claim statement omitted, by job. The flag is `true` if the payload is still unread.
    pub(super) omitted: HashMap<JobId, (JobColumns, bool)>,
    /// Lane, fair queue and queue position of each job from a fair queue, in serving order.
    pub(super) fair_jobs: Vec<(i64, i64, i64)>,
    /// Queue position of each job from a fair queue.
    pub(super) places: HashMap<JobId, i64>,
    /// Pairs of a fair lane and the fair queue after which the lane's next claim continues. Set only under keyed limits.
    pub(super) reached: Vec<(i64, i64)>,
    /// Reason why the claim stopped taking jobs.
    pub(super) outcome: LimitOutcome,
    /// Start deadline of the claimed jobs. Set only under a rate limit.
    pub(super) start: Option<StartDeadline>,
    pub(super) floors: Option<Vec<i64>>,
    /// Whether the progress in fair lanes was already recorded after the first round trip.
    pub(super) is_recorded: bool,
    /// Part of a block scan that this claim performed, if any.
    pub(super) block_scan: Option<BlockScan>,
    /// New floor for lanes that returned no job, if a floor was queried.
    pub(super) empty_floor: Option<i64>,
}

/// Jobs of a claim, ordered by lane as in the request.
#[derive(Default)]
pub(crate) struct ClaimedBatch {
    pub(crate) jobs: Vec<LeasedJob>,
    /// Jobs to release, because their payloads exceed the claim's byte limit.
    pub(crate) unread: Vec<LeasedJob>,
    /// Start deadline of the claimed jobs. Set only under a rate limit.
    pub(crate) start: Option<StartDeadline>,
    /// For each limit, the position of the first permit that the next claim reads.
    pub(crate) floors: Option<Vec<i64>>,
    /// Part of a block scan that this claim performed, if any.
    pub(crate) block_scan: Option<BlockScan>,
}

impl ClaimRequest {
    pub(crate) fn new(
        worker: Uuid,
        shares: Vec<LaneQuota>,
        most: usize,
        from: ClaimSource,
        lanes: &mut LaneState,
        held: &LeaseRegistry,
    ) -> Self {
        let is_fair: Vec<bool> = shares.iter().map(|share| from.is_fair(lanes.get(share.lane))).collect();
        let begin = |(share, is_fair): (&LaneQuota, &bool)| match from {
            _ if *is_fair => lanes.turns.after(share.lane),
            ClaimSource::Lanes { from_zero: true } | ClaimSource::Limited { from_zero: true } => 0,
            _ => lanes.floor(share.lane),
        };
        let begins = shares.iter().zip(&is_fair).map(begin).collect();
        let has_own_lease = |share: &&LaneQuota| {
            matches!(from, ClaimSource::Lanes { .. }) && lanes.get(share.lane).is_some_and(|lane| lanes.is_transactional(lane))
        };
        let own_leases = shares.iter().filter(has_own_lease).map(|share| share.lane).collect();
        Self {
            holding: held.begin(),
            worker,
            shares,
            most,
            from,
            begins,
            is_fair,
            limits: None,
            may_query_floor: lanes.floors.may_query(),
            own_leases,
        }
    }

    pub(crate) fn with_limits(mut self, limits: LimitRequest) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Returns the lease of a job and the number of jobs in the lease. A job of a lane in `own_leases` has a separate lease. Other jobs
    /// share the claim's lease.
    fn lease_of(&self, lane: i64, id: JobId, shared: usize) -> (Arc<LeaseGuard>, usize) {
        match &self.limits {
            _ if self.own_leases.contains(&lane) => (self.holding.of_job(id), 1),
            Some(under) => (self.holding.part(&under.notifier, &under.limit_ids), shared),
            None => (Arc::clone(&self.holding), shared),
        }
    }

    /// Returns the number of jobs in the claim's shared lease.
    fn count_in_common(&self, rows: &[PgRow]) -> usize {
        let has_own_lease = |row: &&PgRow| row.try_get_unchecked(0).is_ok_and(|lane: i64| self.own_leases.contains(&lane));
        if self.own_leases.is_empty() { rows.len() } else { rows.iter().filter(|row| !has_own_lease(row)).count() }
    }

    /// Returns the leases whose finished jobs this claim reports. The report frees the jobs' permits.
    pub(crate) fn freed(&self) -> &[Uuid] {
        self.limits.as_ref().map_or(&[], |limits| &limits.freed)
    }

    /// Returns the id range of the jobs whose columns the claim reads, or all ids if no floor is known. Ids are ordered by time. The
    /// range starts a week before the lowest floor, because retried jobs have older ids, and ends a day after the highest floor.
    fn days(&self) -> (i64, i64) {
        const DAY: i64 = (24 * 60 * 60 * 1000) << 20;
        let known = self.begins.iter().copied().filter(|begin| *begin > 0);
        let days = |(first, last): (i64, i64)| (first.saturating_sub(7 * DAY), last.saturating_add(DAY));
        known.clone().min().zip(known.max()).map_or((i64::MIN, i64::MAX), days)
    }

    /// Returns the token of the claim's lease.
    pub(super) fn token(&self) -> Uuid {
        self.holding.token()
    }

    /// Turns the claim into a late scan for at most `most` jobs. With a cursor, the scan finds only jobs below the floors, in the table
    /// blocks that the cursor selects.
    pub(crate) fn late(&mut self, most: usize, cursor: Option<BlockCursor>, lanes: &LaneState) {
        self.most = self.most.min(most);
        if let Some(cursor) = cursor {
            self.from = ClaimSource::Late(cursor);
            self.own_leases.clear();
            self.begins = self.shares.iter().map(|share| lanes.floor(share.lane)).collect();
        }
    }

    /// Sends a claim without limits.
    pub(super) async fn claim(&self, connection: &mut PgConnection, store: Store) -> sqlx::Result<ClaimRows> {
        let text = match self.from {
            ClaimSource::Late(cursor) => return self.claim_late(connection, store, cursor).await,
            ClaimSource::FairQueues => include_str!("../../sql/claim_fair.sql"),
            ClaimSource::Lanes { .. } | ClaimSource::Limited { .. } => include_str!("../../sql/claim.sql"),
        };
        let statement = sqlx::query(store.sql(text))
            .bind(self.holding.token())
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.begins)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
            .bind(narrow(self.most))
            .bind(narrow(MAX_BYTES / self.most.max(1)));
        let (from, beyond) = self.days();
        let statement =
            if self.from == ClaimSource::FairQueues { statement } else { statement.bind(&self.own_leases).bind(from).bind(beyond) };
        let began = Instant::now();
        let jobs = bounded(statement.fetch_all(&mut *connection)).await?;
        let empty_floor = match self.from {
            ClaimSource::Lanes { .. } => self.empty_floor(connection, store, &jobs, began.elapsed()).await?,
            _ => None,
        };
        let omitted = omitted::read(connection, store, &jobs).await?;
        let place = |row: &PgRow| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(11)?, row.try_get_unchecked(12)?));
        let fair_jobs =
            if self.from == ClaimSource::FairQueues { jobs.iter().map(place).collect::<sqlx::Result<_>>()? } else { Vec::new() };
        let place = |row: &PgRow| Ok((row.try_get_unchecked(2)?, row.try_get_unchecked(12)?));
        let places =
            if self.from == ClaimSource::FairQueues { jobs.iter().map(place).collect::<sqlx::Result<_>>()? } else { HashMap::new() };
        Ok(ClaimRows { jobs, omitted, fair_jobs, places, empty_floor, ..ClaimRows::default() })
    }
}

/// Converts a count to a statement parameter, saturating at `i32::MAX`.
pub(super) fn narrow(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl ClaimResponse {
    /// Returns the claimed jobs, ordered by lane as in the request, and records the floor of each lane. If the response was lost, the
    /// call unregisters the lease, so that housekeeping releases the lease's jobs.
    pub(crate) fn read(self, lanes: &mut LaneState) -> sqlx::Result<ClaimedBatch> {
        let ClaimRows { jobs: rows, mut omitted, fair_jobs, places, reached, outcome, start, floors, is_recorded, block_scan, empty_floor } =
            self.rows?;
        self.request.record_empty_floor(empty_floor, &rows, lanes)?;
        if !is_recorded {
            self.request.progress(&fair_jobs, &reached, rows.len() < self.request.most && outcome == LimitOutcome::Open).apply(lanes);
        }
        // Estimated size of an unread payload: total size of the separately read payloads, divided by the number of omitted jobs.
        let mean = omitted.values().filter_map(|(job, _)| Some(job.payload.as_ref()?.len())).sum::<usize>() / omitted.len().max(1);
        let mut unread = Vec::new();
        let rank: HashMap<i64, usize> = self.request.shares.iter().enumerate().map(|(rank, share)| (share.lane, rank)).collect();
        let mut totals = TotalsByLane::default();
        let mut claimed: Vec<(usize, i64, LeasedJob)> = Vec::with_capacity(rows.len());
        // All rows contain the same claim time.
        let Some(claimed_at): Option<DateTime<Utc>> = rows.first().map(|row| row.try_get(10)).transpose()? else {
            return Ok(ClaimedBatch { block_scan, ..ClaimedBatch::default() });
        };
        let shared = self.request.count_in_common(&rows);
        self.request.holding.expect(shared);
        for row in &rows {
            // Column types are not checked at runtime. The statement defines the types, and any test that claims jobs would detect a
            // mismatch.
            let (lane, seq): (i64, i64) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            let id: JobId = row.try_get_unchecked(2)?;
            let payload: Option<String> = row.try_get_unchecked(6)?;
            let (read, is_unread) = match payload {
                Some(_) => (JobColumns::of(row, payload)?, false),
                None => omitted.remove(&id).unwrap_or((JobColumns::default(), true)),
            };
            // If the job has been deleted, `max_attempts` and `payload` are `None`. The attempt then reports the missing job.
            let JobColumns { max_attempts, payload, key, meta, system } = read;
            let lane_totals = totals.of(lane, || LaneTotals::new(lane, seq, lanes.get(lane), rank.get(&lane)));
            lane_totals.lowest = seq.min(lane_totals.lowest);
            lane_totals.jobs += 1;
            lane_totals.bytes += payload.as_ref().map_or(if is_unread { mean } else { 0 }, String::len);
            let (holding, batch) = self.request.lease_of(lane, id, shared);
            let job = ClaimedJob {
                token: holding.token(),
                id,
                lane,
                queue: Arc::clone(&lane_totals.queue),
                claimed_at,
                attempt: row.try_get_unchecked(3)?,
                crashes: row.try_get_unchecked(4)?,
                max_attempts: max_attempts.unwrap_or(1),
                job_type: lane_totals.job_type,
                version: lane_totals.version,
                payload,
                key,
                meta,
                system,
                start_deadline: start.map(|start| start.until),
            };
            let begin_by = job.may_begin_within().and_then(|within| self.sent.checked_add(within));
            let waited = waited(places.get(&id).copied().unwrap_or(seq), claimed_at);
            let job = LeasedJob { job, batch, holding, begin_by, waited, requested_at: self.sent, held: None };
            if is_unread {
                unread.push(job);
            } else {
                claimed.push((lane_totals.rank, seq, job));
            }
        }
        let bytes = totals.all.iter().map(|of| of.bytes).sum::<usize>() - unread.len() * mean;
        tracing::debug!(jobs = rows.len(), bytes, unread = unread.len(), "claimed");
        // A block scan that found few jobs does not change the floors. If a floor were lowered to these jobs, the next claim would read all
        // dead entries above them.
        totals.record(lanes, &fair_jobs, block_scan.is_none() || rows.len() >= self.request.most);
        claimed.sort_unstable_by_key(|(rank, seq, _)| (*rank, *seq));
        Ok(ClaimedBatch { jobs: claimed.into_iter().map(|(_, _, job)| job).collect(), unread, start, floors, block_scan })
    }
}

/// Returns the time for which a job was ready before the claim. The job's queue position `place` is a generated id, which contains its
/// creation time in milliseconds.
fn waited(place: i64, claimed_at: DateTime<Utc>) -> Duration {
    Duration::from_millis(u64::try_from(claimed_at.timestamp_millis() - (place >> 20)).unwrap_or(0))
}

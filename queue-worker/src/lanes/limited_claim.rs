//! Claims under limits. The first round trip takes permits and jobs, and the second round trip waits until both are durable. The jobs
//! start after the second round trip. The next claim can be sent before the second round trip.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _, error::DatabaseError, postgres::PgRow};

use super::{
    claim::{ClaimRequest, ClaimRows, narrow},
    limit_outcome::{LimitOutcome, LimitRequest, StartDeadline},
    omitted::{self, MAX_BYTES},
};
use crate::live::{after_ms, bounded};

/// Performs the first round trip of a claim under limits.
pub(super) async fn take(
    connection: &mut PgConnection,
    store: Store,
    request: &ClaimRequest,
    limits: &LimitRequest,
    since: Instant,
) -> sqlx::Result<PermitClaim> {
    let text = if limits.keyed { include_str!("../../sql/claim_keyed.sql") } else { include_str!("../../sql/claim_limited.sql") };
    let statement = sqlx::query(store.sql(text))
        .bind(request.token())
        .bind(request.worker)
        .bind(&limits.limit_ids[..])
        .bind(request.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
        .bind(&request.begins)
        .bind(&request.is_fair)
        .bind(request.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
        .bind(narrow(request.most))
        .bind(&limits.freed)
        .bind(i64::try_from(limits.slack.as_millis()).unwrap_or(i64::MAX))
        // Permit positions from a claim that was sent before this connection was opened are omitted. They may come from another server, on
        // which the positions belong to other permits.
        .bind(limits.floors.as_ref().filter(|(_, learned)| since < *learned).map(|(floors, _)| &floors[..]));
    let rows = match bounded(statement.fetch_all(&mut *connection)).await {
        Ok(rows) => rows,
        Err(error) if error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "55P03") => {
            return Ok(PermitClaim { outcome: LimitOutcome::Locked, ..PermitClaim::default() });
        }
        Err(error) => return Err(error),
    };
    let mut taken = PermitClaim::default();
    let mut fair_jobs = Vec::new();
    for row in &rows {
        if row.try_get::<Option<i64>, _>("id")?.is_some() {
            fair_jobs.extend(taken.push(row)?);
        } else if let Some(lane) = row.try_get::<Option<i64>, _>("lane")? {
            taken.reached.push((lane, row.try_get("fair_id")?));
        } else {
            taken.outcome = outcome_of(row, request, &taken.reached)?;
            taken.floors = row.try_get("permit_floors")?;
            taken.began = row.try_get::<Option<i64>, _>("at_ms")?.zip(row.try_get::<Option<i64>, _>("within_ms")?);
        }
    }
    fair_jobs.sort_unstable_by_key(|(turn, ..)| *turn);
    taken.fair_jobs = fair_jobs.into_iter().map(|(_, lane, fair_id, place)| (lane, fair_id, place)).collect();
    Ok(taken)
}

/// Returns the safety margin that is subtracted from a start deadline. The margin covers rounding, and scheduling delays between the last
/// check of the deadline and the start of the handler.
fn margin(within: Duration) -> Duration {
    (within / 2).clamp(Duration::from_millis(2), Duration::from_millis(50))
}

fn outcome_of(row: &PgRow, request: &ClaimRequest, reached: &[(i64, i64)]) -> sqlx::Result<LimitOutcome> {
    let wait = row.try_get::<Option<f64>, _>("wait_ms")?.unwrap_or(0.0);
    Ok(match row.try_get::<Option<&str>, _>("closed")? {
        None => LimitOutcome::Open,
        Some("exhausted") => LimitOutcome::Keys(row.try_get::<Option<f64>, _>("wait_ms")?.map(after_ms)),
        Some("more") => LimitOutcome::More(scanned_fraction(request, reached)),
        Some("rate") => LimitOutcome::Later(Duration::from_secs_f64(wait.clamp(0.0, 1e9) / 1000.0)),
        Some("unknown") => LimitOutcome::Unknown,
        Some("gone") => LimitOutcome::Gone,
        Some(_) => LimitOutcome::Full,
    })
}

/// Returns the scanned fraction of the keys with waiting jobs. With several lanes, returns the minimum over all lanes.
fn scanned_fraction(request: &ClaimRequest, reached: &[(i64, i64)]) -> u64 {
    let begins: HashMap<i64, i64> = request.shares.iter().map(|share| share.lane).zip(request.begins.iter().copied()).collect();
    let parts = reached.iter().filter_map(|(lane, fair_id)| begins.get(lane).map(|begin| fraction(*begin, *fair_id)));
    parts.min().unwrap_or(u64::MAX)
}

/// Returns the fraction of the fair queues scanned from `begin` to `reached`, in units of 2^-64. The ids of fair queues are evenly
/// distributed hashes, so the difference of two ids measures the fraction. `u64::MAX` stands for all fair queues. A scan is complete when
/// it reaches `begin` again.
fn fraction(begin: i64, reached: i64) -> u64 {
    match reached.wrapping_sub(begin) as u64 {
        0 => u64::MAX,
        part => part,
    }
}

/// Permits and jobs taken in the first round trip.
#[derive(Default)]
pub(super) struct PermitClaim {
    /// Id, lane, queue position, attempt number and crash count of each job. A job from a fair queue has its turn in place of the position.
    pub(super) jobs: Vec<(i64, i64, i64, i16, i16)>,
    /// Lane, fair queue and queue position of each job from a fair queue, in serving order.
    pub(super) fair_jobs: Vec<(i64, i64, i64)>,
    /// Queue position of each job from a fair queue.
    pub(super) places: HashMap<JobId, i64>,
    /// Pairs of a fair lane and its last scanned fair queue, after which the next claim continues.
    pub(super) reached: Vec<(i64, i64)>,
    pub(super) outcome: LimitOutcome,
    floors: Option<Vec<i64>>,
    /// Database time of the claim, and the maximum time until its jobs start, both in milliseconds. Set only under a rate limit.
    began: Option<(i64, i64)>,
}

impl PermitClaim {
    /// Adds the job in `row`. For a job from a fair queue, returns its turn, lane, fair queue and queue position.
    fn push(&mut self, row: &PgRow) -> sqlx::Result<Option<(i64, i64, i64, i64)>> {
        let (lane, seq, turn): (i64, i64, i64) = (row.try_get("lane")?, row.try_get("seq")?, row.try_get("turn")?);
        // Jobs from fair queues are ordered by turn instead of queue position.
        let fair_id: Option<i64> = row.try_get("fair_id")?;
        let (id, place) = (row.try_get("id")?, if fair_id.is_some() { turn } else { seq });
        if fair_id.is_some() {
            self.places.insert(JobId(id), seq);
        }
        self.jobs.push((id, lane, place, row.try_get("attempts")?, row.try_get("crashes")?));
        Ok(fair_id.map(|fair_id| (turn, lane, fair_id, seq)))
    }

    /// Performs the second round trip, unless no job was taken.
    pub(super) async fn confirm(mut self, connection: &mut PgConnection, store: Store, request: &ClaimRequest) -> sqlx::Result<ClaimRows> {
        if self.jobs.is_empty() {
            return Ok(ClaimRows { fair_jobs: self.fair_jobs, reached: self.reached, outcome: self.outcome, ..ClaimRows::default() });
        }
        // The jobs are sorted by id, because the lease lists them in this order.
        self.jobs.sort_unstable();
        let sent = Instant::now();
        let statement = sqlx::query(store.sql(include_str!("../../sql/confirm.sql")))
            .bind(request.token())
            .bind(self.jobs.iter().map(|(_, lane, ..)| *lane).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, place, ..)| *place).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, _, attempt, _)| *attempt).collect::<Vec<_>>())
            .bind(self.jobs.iter().map(|(_, _, _, _, crashes)| *crashes).collect::<Vec<_>>())
            .bind(narrow(MAX_BYTES / request.most.max(1)));
        let jobs = bounded(statement.fetch_all(&mut *connection)).await?;
        let now: Option<i64> = jobs.first().map(|row| row.try_get("now_ms")).transpose()?;
        let omitted = omitted::read(connection, store, &jobs).await?;
        let start = self.began.zip(now).map(|((at, within), now)| {
            let within = Duration::from_millis(u64::try_from(within).unwrap_or(0));
            // Time between the claim and its confirmation, by the database clock. The local clock would also count the time before the
            // claim reached the database.
            let before = u64::try_from(now - at).map_or(within, Duration::from_millis);
            StartDeadline { until: sent + within.saturating_sub(before + margin(within)), spent: before + sent.elapsed() }
        });
        // If a server crash has lost the claim, no jobs are returned here. The claim's permits are then assigned again, so its permit
        // positions are invalid.
        let floors = self.floors.filter(|_| !jobs.is_empty());
        let Self { fair_jobs, places, reached, outcome, .. } = self;
        Ok(ClaimRows { jobs, omitted, fair_jobs, places, reached, outcome, start, floors, ..ClaimRows::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaching_the_first_fair_queue_again_completes_a_scan() {
        assert_eq!((fraction(5, 8), fraction(5, 5)), (3, u64::MAX));
        assert_eq!(fraction(i64::MAX, i64::MIN), 1, "from the highest to the lowest");
        assert_eq!(fraction(5, 4), u64::MAX);
    }
}

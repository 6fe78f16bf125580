//! Lanes that a worker serves, and the probes that find lanes with jobs.
//!
//! If there are few lanes, each lane is probed separately. If there are many lanes, a single query, called a scan, finds the lanes with
//! jobs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::type_and_version};
use sqlx::{PgConnection, Row as _};

use super::{
    fair_cursors::paired_lane,
    groups::LaneGroups,
    lane::{Lane, MANY, stored_types},
    lane_state::LaneState,
};
use crate::live::{PauseSnapshot, after_ms, bounded};

/// Maximum number of lanes that a scan returns. Priorities are strict only among these lanes.
const SCAN_LIMIT: usize = 500;

/// Minimum interval between two loads of all lanes. The interval is longer after a slow load, so that loads take at most about 1 % of the
/// time.
const FULL_REFRESH: Duration = Duration::from_secs(3);

/// Lanes that a worker serves, with their floors and groups.
pub(crate) struct Lanes {
    types: Vec<&'static str>,
    /// Job types that use fair queueing.
    fair: HashSet<&'static str>,
    /// Job types whose handlers take batches.
    batched: HashSet<&'static str>,
    /// Stored names of all served job types in all served versions.
    stored: Vec<String>,
    queues: Option<Vec<String>>,
    /// Database snapshot of the last query for new lanes. `None` if all lanes must be loaded.
    horizon: Option<String>,
    /// Time of the next load of all lanes.
    full_refresh_at: Instant,
    /// Served lanes, with their floors and payload sizes.
    pub(crate) track: LaneState,
    paused: Arc<PauseSnapshot>,
    /// Paused lanes, which are neither claimed nor probed.
    closed: HashSet<i64>,
    /// Groups of lanes that are not paused.
    pub(crate) groups: LaneGroups,
    /// Last assigned queue position, as returned by the last probe. `None` before the first probe of the current server.
    last_place: Option<i64>,
    /// Value of `last_place` before the probe that found all lanes empty. `None` if lanes may hold jobs.
    empty_place: Option<i64>,
    any_fair: bool,
    /// Last lane that the previous scan returned.
    cursor: i64,
    /// Whether the last scan omitted lanes that hold jobs.
    has_more: bool,
}

/// Result of a probe: the lanes that hold jobs, and the conditions that can end an idle worker's sleep.
pub(crate) struct ProbeResult {
    /// Probed lanes with jobs.
    pub(crate) holding: Vec<i64>,
    /// Whether the probe checked lanes for jobs.
    pub(crate) is_probed: bool,
    /// Whether lanes have been created since the last query for new lanes.
    pub(crate) born: bool,
    /// Ids of the oldest running transaction and of the next transaction.
    pub(crate) horizon: (i64, i64),
    /// Time until the next scheduled job is due.
    pub(crate) next_run: Option<Duration>,
}

/// Selection of the lanes to probe. Only lanes whose claimers must be notified are probed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) when: ProbeMode,
    /// Whether to ignore the floors and start at queue position zero.
    pub(crate) from_zero: bool,
    /// Whether to include lanes whose claimer has no free permit for any key with waiting jobs. Jobs with other keys may have arrived in
    /// these lanes.
    pub(crate) with_closed_keys: bool,
}

/// Condition under which a probe checks lanes for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeMode {
    Never,
    /// Checks lanes only if a queue position has been assigned since all lanes were last found empty.
    IfPlacesTaken,
    Now,
}

/// Result of the probe query `probe.sql`.
#[derive(sqlx::FromRow)]
struct ProbeRow {
    born: bool,
    wait_ms: Option<f64>,
    given: i64,
    xmin: i64,
    xmax: i64,
    holding: Option<Vec<i64>>,
    any_ready: bool,
}

impl Lanes {
    /// Creates the lanes of a worker that serves `types` in `queues`. Each job type is served in all versions up to the given version.
    /// Without `queues`, the worker serves all queues.
    pub(crate) fn new(types: &[(&'static str, u16)], fair: HashSet<&'static str>, queues: Option<Vec<String>>) -> Self {
        Self {
            types: types.iter().map(|(name, _)| *name).collect(),
            fair,
            batched: HashSet::new(),
            stored: stored_types(types),
            queues,
            horizon: None,
            full_refresh_at: Instant::now(),
            track: LaneState::default(),
            paused: Arc::default(),
            closed: HashSet::new(),
            groups: LaneGroups::default(),
            last_place: None,
            empty_place: None,
            any_fair: false,
            cursor: i64::MIN,
            has_more: false,
        }
    }

    /// Sets the job types whose jobs each get a separate lease.
    pub(crate) fn leasing_each(mut self, transactional: HashSet<&'static str>) -> Self {
        self.track.transactional = transactional;
        self
    }

    /// Sets the job types whose handlers take batches.
    pub(crate) fn batching(self, batched: HashSet<&'static str>) -> Self {
        Self { batched, ..self }
    }

    /// Returns whether a load of all lanes is due. An idle worker performs this load as well.
    pub(crate) fn is_refresh_overdue(&self) -> bool {
        Instant::now() >= self.full_refresh_at
    }

    /// Forgets all state that is valid only for the previous server. The next server may assign transaction ids differently. After a
    /// failover that lost transactions, it may also have jobs below the floors.
    pub(crate) fn forget_server(&mut self) {
        (self.horizon, self.last_place, self.empty_place, self.cursor) = (None, None, None, i64::MIN);
        self.track.forget_floors();
    }

    /// Loads new lanes. Periodically loads all lanes and removes lanes that no longer exist. Returns whether there were new lanes.
    ///
    /// New lanes are recognized by transaction ids, which are meaningless after a restore or a failover that lost transactions. The
    /// periodic load finds lanes that were missed for this reason.
    pub(crate) async fn refresh(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
        let began = Instant::now();
        let horizon = self.horizon.as_ref().filter(|_| !self.is_refresh_overdue());
        let all = horizon.is_none();
        let statement = sqlx::query(store.sql(include_str!("../../sql/lanes.sql"))).bind(horizon).bind(&self.stored).bind(&self.queues);
        let rows = bounded(statement.fetch_all(connection)).await?;
        if all {
            self.full_refresh_at = Instant::now() + FULL_REFRESH.max(100 * began.elapsed());
        }
        let mut found = HashMap::new();
        for row in &rows {
            self.horizon = Some(row.try_get("horizon")?);
            let Some(id) = row.try_get::<Option<i64>, _>("lane")? else { continue };
            let (name, version) = type_and_version(row.try_get("job_type")?);
            let Some(job_type) = self.types.iter().find(|known| **known == name) else { continue };
            let (queue, priority, solo, paired) =
                (row.try_get("queue")?, row.try_get("priority")?, row.try_get("solo")?, row.try_get("paired")?);
            found.insert(id, Lane { id, queue, job_type, version, priority, solo, paired, fair: false });
        }
        let any_new = found.keys().any(|id| !self.track.lanes.contains_key(id));
        if all {
            self.track.keep(&found);
        }
        let any = all || !found.is_empty();
        self.track.lanes.extend(found);
        if any {
            self.mark_fair();
            self.mark_paused();
        }
        Ok(any_new)
    }

    /// Replaces the pause snapshot and updates which lanes are fair or paused.
    pub(crate) fn pause(&mut self, paused: Arc<PauseSnapshot>) {
        // Lanes that are no longer paused may hold jobs and have not been probed. The position at which all lanes were empty is therefore
        // cleared.
        (self.paused, self.empty_place) = (paused, None);
        self.mark_fair();
        self.mark_paused();
    }

    /// Marks each lane as fair if its job type is fair, if its paired lane contains fair queues, or if a keyed limit covers it. The paired
    /// lanes themselves and the lanes of quarantined jobs are never fair.
    fn mark_fair(&mut self) {
        let paired: HashSet<i64> = self.track.lanes.values().filter(|lane| lane.paired).map(|lane| paired_lane(lane.id)).collect();
        for lane in self.track.lanes.values_mut() {
            let is_keyed = || self.paused.limits_of(&lane.queue, lane.job_type).is_some_and(|under| under.keyed);
            lane.fair = !lane.solo && !lane.paired && (self.fair.contains(lane.job_type) || paired.contains(&lane.id) || is_keyed());
        }
        self.any_fair = self.track.lanes.values().any(|lane| lane.fair);
    }

    pub(crate) fn any_fair(&self) -> bool {
        self.any_fair
    }

    fn mark_paused(&mut self) {
        let covered = |lane: &&Lane| self.paused.covers(&lane.queue, lane.job_type);
        self.closed = self.track.lanes.values().filter(covered).map(|lane| lane.id).collect();
        let open = self.track.lanes.values().filter(|lane| !self.closed.contains(&lane.id));
        self.groups.sort(open, &self.paused, |job_type| self.batched.contains(job_type));
    }

    /// Probes all conditions that can end an idle worker's sleep. Also finds the lanes that hold jobs, subject to `probe.when`.
    pub(crate) async fn probe(&mut self, connection: &mut PgConnection, store: Store, probe: Probe) -> sqlx::Result<ProbeResult> {
        let mut is_probed = probe.when == ProbeMode::Now;
        self.has_more = false;
        let mut row = self.query_probe(&mut *connection, store, is_probed.then_some(probe)).await?;
        let before = self.last_place.replace(row.given);
        if probe.when == ProbeMode::IfPlacesTaken && !row.born && self.empty_place != Some(row.given) {
            is_probed = true;
            let again = self.query_probe(&mut *connection, store, Some(probe)).await?;
            (row.holding, row.any_ready) = (again.holding, again.any_ready);
        }
        let mut holding = row.holding.unwrap_or_default();
        if is_probed {
            // Stores the queue position that the previous probe returned, not the current one. The transaction that uses the current
            // position may not have committed yet, and a later probe must find its job.
            let are_empty = holding.is_empty() && !row.any_ready && !self.groups.any_is_active();
            self.empty_place = before.filter(|_| are_empty);
            if row.any_ready {
                holding = self.scan(connection, store).await?;
            }
        }
        let next_run = row.wait_ms.map(after_ms);
        Ok(ProbeResult { holding, is_probed, born: row.born, horizon: (row.xmin, row.xmax), next_run })
    }

    async fn query_probe(&self, connection: &mut PgConnection, store: Store, probe: Option<Probe>) -> sqlx::Result<ProbeRow> {
        let lanes = probe.and_then(|probe| self.lanes_to_probe(probe.with_closed_keys));
        let floor = |lane: &i64| if probe.is_some_and(|probe| probe.from_zero) { 0 } else { self.track.floor(*lane) };
        let floors: Vec<i64> = lanes.iter().flatten().map(floor).collect();
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/probe.sql")))
            .bind(&self.horizon)
            .bind(&self.stored)
            .bind(&self.queues)
            .bind(probe.is_some())
            .bind(lanes)
            .bind(floors);
        bounded(statement.fetch_one(connection)).await
    }

    /// Returns the lanes to probe separately, or `None` if a single query finds the lanes with jobs instead. While lanes are waiting for
    /// permits, the single query would find the jobs of these lanes on every poll. Even many lanes, up to ten times [`MANY`], are therefore
    /// probed separately as long as some of them are waiting for permits.
    fn lanes_to_probe(&self, with_closed_keys: bool) -> Option<Vec<i64>> {
        let (are_few, are_very_many) = (!self.are_many(), self.track.lanes.len() > 10 * MANY);
        let is_probed = || self.open().filter(|lane| self.groups.awaits_notice(lane.id, with_closed_keys)).map(|lane| lane.id).collect();
        (are_few || (self.groups.any_is_closed() && !are_very_many)).then(is_probed)
    }

    /// Returns the lanes that are not paused, including lanes of quarantined jobs.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Lane> {
        self.track.lanes.values().filter(|lane| !self.closed.contains(&lane.id))
    }

    /// Returns the lanes of quarantined jobs, except lanes whose limits prevent all jobs from starting.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| lane.solo && !self.groups.is_closed_to_all(lane.id))
    }

    /// Returns whether no lane is known.
    pub(crate) fn are_none(&self) -> bool {
        self.track.lanes.is_empty()
    }

    /// Returns whether there are too many lanes to probe each lane separately.
    pub(crate) fn are_many(&self) -> bool {
        self.track.lanes.len() - self.closed.len() > MANY
    }

    /// Returns whether the last scan omitted lanes that hold jobs.
    pub(crate) fn has_more_holding(&self) -> bool {
        self.has_more
    }

    /// Finds the lanes with jobs in a single query, because probing many lanes separately would be expensive. Each query continues after
    /// the last lane of the previous query, so every lane is reached.
    async fn scan(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<i64>> {
        for begin in [self.cursor, i64::MIN] {
            let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/waiting.sql"))).bind(begin).bind(SCAN_LIMIT as i64);
            let found: Vec<i64> = bounded(statement.fetch_all(&mut *connection)).await?;
            self.cursor = if found.len() < SCAN_LIMIT { i64::MIN } else { found.last().copied().unwrap_or(i64::MIN) };
            if !found.is_empty() || begin == i64::MIN {
                self.has_more = self.cursor != i64::MIN;
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;

//! The lanes that a worker serves.
//!
//! Few lanes are probed one by one. Of many lanes, a query finds those that hold jobs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::type_and_version};
use sqlx::{PgConnection, Row as _};

use super::{
    fair_cursors::twin_of,
    groups::LaneGroups,
    lane::{Lane, MANY, stored_types},
    lane_state::LaneState,
};
use crate::live::{PauseSnapshot, after_ms, bounded};

/// Maximum number of lanes per query. Priorities are strict among these.
const SCAN_LIMIT: usize = 500;

/// Interval at which all lanes are loaded again, at most for a hundredth of the time.
const FULL_REFRESH: Duration = Duration::from_secs(3);

/// The lanes that a worker serves.
pub(crate) struct Lanes {
    types: Vec<&'static str>,
    /// Types whose jobs are fairly queued.
    fair: HashSet<&'static str>,
    /// Types whose handlers take batches.
    batched: HashSet<&'static str>,
    /// Stored names of all types and versions.
    stored: Vec<String>,
    queues: Option<Vec<String>>,
    /// Snapshot of the last query for new lanes; `None` to load all.
    horizon: Option<String>,
    /// When to load all lanes again.
    full_refresh_at: Instant,
    /// The lanes and their floors.
    pub(crate) track: LaneState,
    paused: Arc<PauseSnapshot>,
    /// Paused lanes: neither claimed nor probed.
    closed: HashSet<i64>,
    /// Groups of lanes that are not paused.
    pub(crate) groups: LaneGroups,
    /// The last assigned place as of the last idle probe, and the one as of which all lanes were empty.
    last_place: Option<i64>,
    empty_place: Option<i64>,
    any_fair: bool,
    /// Where the last query over many lanes ended, and whether more lanes hold jobs.
    cursor: i64,
    has_more: bool,
}

/// Result of a probe.
pub(crate) struct ProbeResult {
    /// Probed lanes that hold jobs.
    pub(crate) holding: Vec<i64>,
    /// Whether lanes were probed.
    pub(crate) is_probed: bool,
    /// Whether there are new lanes.
    pub(crate) born: bool,
    /// The lowest running transaction and the next one to be assigned.
    pub(crate) horizon: (i64, i64),
    /// Time until the next scheduled job is due.
    pub(crate) next_run: Option<Duration>,
}

/// Which lanes to probe: those whose claimers need to be notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) when: ProbeMode,
    /// Ignore the floors.
    pub(crate) from_zero: bool,
    /// Include lanes whose waiting keys have no permit: jobs of other keys may have arrived.
    pub(crate) with_closed_keys: bool,
}

/// When to probe lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeMode {
    Never,
    /// If a place has been assigned since all lanes were empty.
    IfPlacesTaken,
    Now,
}

/// Row of `glance.sql`.
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
    /// Serves these job types, each in the versions up to the given one, in these queues or in all.
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

    /// Sets the types with a lease per job.
    pub(crate) fn leasing_each(mut self, transactional: HashSet<&'static str>) -> Self {
        self.track.transactional = transactional;
        self
    }

    /// Sets the types whose handlers take batches.
    pub(crate) fn batching(self, batched: HashSet<&'static str>) -> Self {
        Self { batched, ..self }
    }

    /// Whether all lanes are due to be loaded again, also on an idle worker.
    pub(crate) fn is_refresh_overdue(&self) -> bool {
        Instant::now() >= self.full_refresh_at
    }

    /// Forgets what is only valid on the last server. Another one uses the same transaction ids differently and may be behind, so that jobs are below
    /// the floors.
    pub(crate) fn forget_server(&mut self) {
        (self.horizon, self.last_place, self.empty_place, self.cursor) = (None, None, None, i64::MIN);
        self.track.forget_floors();
    }

    /// Loads new lanes, and periodically all lanes, which removes those that no longer exist. Returns whether there were new ones.
    ///
    /// New lanes are recognized by transaction ids, which are meaningless after a restore or a failover that lost transactions. The periodic load
    /// finds what this misses.
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
            let (queue, priority, solo, lined) =
                (row.try_get("queue")?, row.try_get("priority")?, row.try_get("solo")?, row.try_get("lined")?);
            found.insert(id, Lane { id, queue, job_type, version, priority, solo, lined, fair: false });
        }
        let any_new = found.keys().any(|id| !self.track.known.contains_key(id));
        if all {
            self.track.keep(&found);
        }
        let any = all || !found.is_empty();
        self.track.known.extend(found);
        if any {
            self.mark_fair();
            self.mark_paused();
        }
        Ok(any_new)
    }

    /// Replaces the set of pauses.
    pub(crate) fn pause(&mut self, paused: Arc<PauseSnapshot>) {
        // Reopened lanes were not probed.
        (self.paused, self.empty_place) = (paused, None);
        self.mark_fair();
        self.mark_paused();
    }

    /// A lane is fair if its type is, if it has fairly queued jobs, or if a keyed limit covers it.
    fn mark_fair(&mut self) {
        let lined: HashSet<i64> = self.track.known.values().filter(|lane| lane.lined).map(|lane| twin_of(lane.id)).collect();
        for lane in self.track.known.values_mut() {
            let is_keyed = || self.paused.limits_of(&lane.queue, lane.job_type).is_some_and(|under| under.keyed);
            lane.fair = !lane.solo && !lane.lined && (self.fair.contains(lane.job_type) || lined.contains(&lane.id) || is_keyed());
        }
        self.any_fair = self.track.known.values().any(|lane| lane.fair);
    }

    /// Whether any lane is fair.
    pub(crate) fn any_fair(&self) -> bool {
        self.any_fair
    }

    fn mark_paused(&mut self) {
        let covered = |lane: &&Lane| self.paused.covers(&lane.queue, lane.job_type);
        self.closed = self.track.known.values().filter(covered).map(|lane| lane.id).collect();
        let open = self.track.known.values().filter(|lane| !self.closed.contains(&lane.id));
        self.groups.sort(open, &self.paused, |job_type| self.batched.contains(job_type));
    }

    /// Probes everything that could end an idle worker's sleep, and which lanes hold jobs.
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
            // Not the current place: its transaction may not have committed yet.
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
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/glance.sql")))
            .bind(&self.horizon)
            .bind(&self.stored)
            .bind(&self.queues)
            .bind(probe.is_some())
            .bind(lanes)
            .bind(floors);
        bounded(statement.fetch_one(connection)).await
    }

    /// Returns the lanes to probe one by one. Of many lanes, only if some are closed, as a query would find their jobs at every poll.
    fn lanes_to_probe(&self, with_closed_keys: bool) -> Option<Vec<i64>> {
        let (are_few, are_very_many) = (!self.are_many(), self.track.known.len() > 10 * MANY);
        let is_probed = || self.open().filter(|lane| self.groups.awaits_notice(lane.id, with_closed_keys)).map(|lane| lane.id).collect();
        (are_few || (self.groups.any_is_shut() && !are_very_many)).then(is_probed)
    }

    /// Returns the lanes that are not paused, including those of quarantined jobs.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Lane> {
        self.track.known.values().filter(|lane| !self.closed.contains(&lane.id))
    }

    /// Returns the lanes of quarantined jobs in which some job could start.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| lane.solo && !self.groups.is_shut_to_all(lane.id))
    }

    /// Whether no lane is known.
    pub(crate) fn are_none(&self) -> bool {
        self.track.known.is_empty()
    }

    /// Whether there are too many lanes to probe each one.
    pub(crate) fn are_many(&self) -> bool {
        self.track.known.len() - self.closed.len() > MANY
    }

    /// Whether more lanes hold jobs than the last query returned.
    pub(crate) fn has_more_holding(&self) -> bool {
        self.has_more
    }

    /// Finds lanes that hold jobs among many, where probing each would cost more than the jobs. Continues where the last query ended, so that every
    /// lane gets its turn.
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

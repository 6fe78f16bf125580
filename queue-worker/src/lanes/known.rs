//! Which lanes this worker serves, and where each one's jobs begin.
//!
//! A few lanes are asked one by one at each claim. Of many, those that hold jobs are looked for first. Does not claim.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::type_and_version};
use sqlx::{PgConnection, Row as _};

use super::{
    groups::Groups,
    lane::{Lane, MANY, stored_types},
    track::Track,
    turns::twin_of,
};
use crate::live::{Paused, after_ms, bounded};

/// How many of them one look finds. Priorities are strict among these.
const WINDOW: usize = 500;

/// All lanes are looked at anew this often, but never for more than a hundredth of the time.
const ANEW: Duration = Duration::from_secs(3);

/// The lanes known so far.
pub(crate) struct Lanes {
    types: Vec<&'static str>,
    /// Those whose jobs take turns.
    fair: HashSet<&'static str>,
    /// Those whose handlers take batches.
    batched: HashSet<&'static str>,
    /// The names under which jobs of these are stored, in each version known.
    stored: Vec<String>,
    queues: Option<Vec<String>>,
    /// The snapshot of the last look for new ones; none if all are to be looked at.
    horizon: Option<String>,
    /// When to look at all of them anew.
    anew: Instant,
    /// The lanes, and where each one's jobs begin.
    pub(crate) track: Track,
    paused: Arc<Paused>,
    /// Those known that are paused: nothing is claimed from them, and nobody asks them.
    closed: HashSet<i64>,
    /// The lanes that are claimed together, but for the paused.
    pub(crate) groups: Groups,
    /// The last number given out for a place, when an idle worker last looked; and the one after which it found all lanes empty.
    given: Option<i64>,
    rested: Option<i64>,
    any_fair: bool,
    /// Where the last look at many lanes ended; and whether it did not see the last of those that hold jobs.
    cursor: i64,
    more: bool,
}

/// What a look found.
pub(crate) struct Seen {
    /// The lanes that hold jobs, of those that were asked.
    pub(crate) holding: Vec<i64>,
    /// Whether they were asked.
    pub(crate) asked: bool,
    /// Whether a lane was born.
    pub(crate) born: bool,
    /// The lowest transaction that still runs, and the first not given out yet.
    pub(crate) horizon: (i64, i64),
    /// How long until the next scheduled job is due.
    pub(crate) next_run: Option<Duration>,
}

/// Which lanes a look asks whether they hold jobs: those of claimers that wait for some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) when: When,
    /// From anywhere, not from their floors on.
    pub(crate) from_zero: bool,
    /// Those too of whose keys that wait none has room: others may have come.
    pub(crate) of_some_key: bool,
}

/// When a look asks lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Never,
    /// If a place was given out since they were found empty.
    IfGiven,
    Now,
}

/// The same as the statement has it.
#[derive(sqlx::FromRow)]
struct LookedOver {
    born: bool,
    wait_ms: Option<f64>,
    given: i64,
    xmin: i64,
    xmax: i64,
    holding: Option<Vec<i64>>,
    any_ready: bool,
}

impl Lanes {
    /// Of these job types, each in the versions up to this, some of them fair, in these queues or in any.
    pub(crate) fn new(types: &[(&'static str, u16)], fair: HashSet<&'static str>, queues: Option<Vec<String>>) -> Self {
        Self {
            types: types.iter().map(|(name, _)| *name).collect(),
            fair,
            batched: HashSet::new(),
            stored: stored_types(types),
            queues,
            horizon: None,
            anew: Instant::now(),
            track: Track::default(),
            paused: Arc::default(),
            closed: HashSet::new(),
            groups: Groups::default(),
            given: None,
            rested: None,
            any_fair: false,
            cursor: i64::MIN,
            more: false,
        }
    }

    /// The jobs of these types have a lease each.
    pub(crate) fn leasing_each(mut self, transactional: HashSet<&'static str>) -> Self {
        self.track.transactional = transactional;
        self
    }

    /// The handlers of these types take batches.
    pub(crate) fn batching(self, batched: HashSet<&'static str>) -> Self {
        Self { batched, ..self }
    }

    /// Whether it is time to look at all lanes, an idle worker's too.
    pub(crate) fn are_stale(&self) -> bool {
        Instant::now() >= self.anew
    }

    /// Forgets what only the last connection's server could know: another one has other transactions under the same numbers, and may be behind, so that
    /// jobs are below the floors.
    pub(crate) fn forget_server(&mut self) {
        (self.horizon, self.given, self.rested, self.cursor) = (None, None, None, i64::MIN);
        self.track.forget_floors();
    }

    /// Learns of the lanes born since the last time, and now and then of all; returns whether there were any new ones. A look at all forgets
    /// those that are gone.
    ///
    /// Birth is told by numbers of transactions, which say nothing across a restore, or a failover that lost some: so it is for speed, and what
    /// it misses is found by the look at all.
    pub(crate) async fn refresh(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
        let began = Instant::now();
        let horizon = self.horizon.as_ref().filter(|_| !self.are_stale());
        let all = horizon.is_none();
        let statement = sqlx::query(store.sql(include_str!("../../sql/lanes.sql"))).bind(horizon).bind(&self.stored).bind(&self.queues);
        let rows = bounded(statement.fetch_all(connection)).await?;
        if all {
            self.anew = Instant::now() + ANEW.max(100 * began.elapsed());
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
            self.tell_fair();
            self.close_paused();
        }
        Ok(any_new)
    }

    /// From now on these are paused, and no others.
    pub(crate) fn pause(&mut self, paused: Arc<Paused>) {
        // Who is open again was not asked.
        (self.paused, self.rested) = (paused, None);
        self.tell_fair();
        self.close_paused();
    }

    /// A lane is fair if its type is, or if some of its jobs stand in lines, whatever this release says of the type, or if limits by key cover it.
    fn tell_fair(&mut self) {
        let lined: HashSet<i64> = self.track.known.values().filter(|lane| lane.lined).map(|lane| twin_of(lane.id)).collect();
        for lane in self.track.known.values_mut() {
            let is_keyed = || self.paused.under(&lane.queue, lane.job_type).is_some_and(|under| under.keyed);
            lane.fair = !lane.solo && !lane.lined && (self.fair.contains(lane.job_type) || lined.contains(&lane.id) || is_keyed());
        }
        self.any_fair = self.track.known.values().any(|lane| lane.fair);
    }

    /// Whether jobs of any lane take turns.
    pub(crate) fn any_fair(&self) -> bool {
        self.any_fair
    }

    fn close_paused(&mut self) {
        let covered = |lane: &&Lane| self.paused.covers(&lane.queue, lane.job_type);
        self.closed = self.track.known.values().filter(covered).map(|lane| lane.id).collect();
        let open = self.track.known.values().filter(|lane| !self.closed.contains(&lane.id));
        self.groups.sort(open, &self.paused, |job_type| self.batched.contains(job_type));
    }

    /// One look at everything that could end an idle worker's sleep, and at which lanes hold jobs.
    pub(crate) async fn look(&mut self, connection: &mut PgConnection, store: Store, ask: Ask) -> sqlx::Result<Seen> {
        let mut asks = ask.when == When::Now;
        self.more = false;
        let mut looked = self.look_over(&mut *connection, store, asks.then_some(ask)).await?;
        let before = self.given.replace(looked.given);
        if ask.when == When::IfGiven && !looked.born && self.rested != Some(looked.given) {
            asks = true;
            let asked = self.look_over(&mut *connection, store, Some(ask)).await?;
            (looked.holding, looked.any_ready) = (asked.holding, asked.any_ready);
        }
        let mut holding = looked.holding.unwrap_or_default();
        if asks {
            // Not the number of just now: whoever took that may not have committed yet.
            let are_empty = holding.is_empty() && !looked.any_ready && !self.groups.any_is_active();
            self.rested = before.filter(|_| are_empty);
            if looked.any_ready {
                holding = self.scan(connection, store).await?;
            }
        }
        let next_run = looked.wait_ms.map(after_ms);
        Ok(Seen { holding, asked: asks, born: looked.born, horizon: (looked.xmin, looked.xmax), next_run })
    }

    async fn look_over(&self, connection: &mut PgConnection, store: Store, ask: Option<Ask>) -> sqlx::Result<LookedOver> {
        let lanes = ask.and_then(|ask| self.asked_apart(ask.of_some_key));
        let floor = |lane: &i64| if ask.is_some_and(|ask| ask.from_zero) { 0 } else { self.track.floor(*lane) };
        let floors: Vec<i64> = lanes.iter().flatten().map(floor).collect();
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/glance.sql")))
            .bind(&self.horizon)
            .bind(&self.stored)
            .bind(&self.queues)
            .bind(ask.is_some())
            .bind(lanes)
            .bind(floors);
        bounded(statement.fetch_one(connection)).await
    }

    /// The lanes that are asked one by one whether they hold jobs. Of many none are, unless some may hold jobs that could not begin: whoever asked all
    /// at once would find those at each poll.
    fn asked_apart(&self, of_some_key: bool) -> Option<Vec<i64>> {
        let (are_few, are_very_many) = (!self.are_many(), self.track.known.len() > 10 * MANY);
        let asked = || self.open().filter(|lane| self.groups.wait_for(lane.id, of_some_key)).map(|lane| lane.id).collect();
        (are_few || (self.groups.any_is_shut() && !are_very_many)).then(asked)
    }

    /// The lanes that are not paused, suspects' included.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Lane> {
        self.track.known.values().filter(|lane| !self.closed.contains(&lane.id))
    }

    /// Suspects' lanes in which one could begin, of some key.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| lane.solo && !self.groups.is_shut_to_all(lane.id))
    }

    /// Whether none is known.
    pub(crate) fn are_none(&self) -> bool {
        self.track.known.is_empty()
    }

    /// Whether there are too many lanes to ask each one.
    pub(crate) fn are_many(&self) -> bool {
        self.track.known.len() - self.closed.len() > MANY
    }

    /// Whether the last look at many lanes did not see the last of those that hold jobs.
    pub(crate) fn more_wait(&self) -> bool {
        self.more
    }

    /// Which of many lanes hold jobs: asking every lane would cost more than the jobs. Begins where the last look ended, so that each lane has its turn.
    async fn scan(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<i64>> {
        for begin in [self.cursor, i64::MIN] {
            let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/waiting.sql"))).bind(begin).bind(WINDOW as i64);
            let found: Vec<i64> = bounded(statement.fetch_all(&mut *connection)).await?;
            self.cursor = if found.len() < WINDOW { i64::MIN } else { found.last().copied().unwrap_or(i64::MIN) };
            if !found.is_empty() || begin == i64::MIN {
                self.more = self.cursor != i64::MIN;
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;

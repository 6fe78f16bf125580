//! Which lanes this worker serves, and where each one's jobs begin.
//!
//! A few lanes are asked one by one at each claim. Of many, those that hold jobs are looked for first, and what one look finds is offered to
//! several claims. Does not claim.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::type_and_version};
use sqlx::{PgConnection, Row as _};

use super::{
    groups::{Group, Groups},
    lane::{Lane, order, stored_types},
    track::Track,
    turns::twin_of,
};
use crate::live::{ClaimerState, Paused, after_ms, bounded};

/// With more lanes than this, those that hold jobs are looked for first: asking an empty one costs about a microsecond.
const MANY: usize = 200;

/// How many of them one look finds. Priorities are strict among these.
const WINDOW: usize = 500;

/// All lanes are looked at anew this often, but never for more than a hundredth of the time.
const ANEW: Duration = Duration::from_secs(3);

/// Fewer are not split between two claims.
const FEW: usize = 100;

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
    /// The lanes, and how far claims of those without limits have come.
    pub(crate) track: Track,
    paused: Arc<Paused>,
    /// Those known that are paused: nothing is claimed from them, and nobody asks them.
    closed: HashSet<i64>,
    /// Those that limits cover, but for the paused: they are claimed apart.
    pub(crate) groups: Groups,
    /// The last number given out for a place, when an idle worker last looked; and the one after which it found all lanes empty.
    given: Option<i64>,
    rested: Option<i64>,
    any_fair: bool,
    /// What the last look found and no claim has been offered yet, best first.
    window: VecDeque<i64>,
    /// Where the last look ended; the lowest lane if it saw the last one.
    cursor: i64,
}

/// What an idle worker's poll found.
pub(crate) struct Glance {
    /// Whether a lane holds jobs, or was born.
    pub(crate) any: bool,
    /// Whether the lanes were asked.
    pub(crate) asked: bool,
    /// The lowest transaction that still runs, and the first not given out yet.
    pub(crate) horizon: (i64, i64),
    /// How long until the next scheduled job is due.
    pub(crate) next_run: Option<Duration>,
}

/// The same as the statement has it.
#[derive(sqlx::FromRow)]
struct LookedOver {
    born: bool,
    wait_ms: Option<f64>,
    given: i64,
    xmin: i64,
    xmax: i64,
    any_ready: Option<bool>,
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
            window: VecDeque::new(),
            cursor: i64::MIN,
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
        self.window.clear();
    }

    /// Learns of the lanes born since the last time, and now and then of all; returns whether there were any new ones. A look at all forgets
    /// those that are gone, unless a claim is in the air (`may_forget`), which may bring jobs of one that was born again meanwhile.
    ///
    /// Birth is told by numbers of transactions, which say nothing across a restore, or a failover that lost some: so it is for speed, and what
    /// it misses is found by the look at all.
    pub(crate) async fn refresh(&mut self, connection: &mut PgConnection, store: Store, may_forget: bool) -> sqlx::Result<bool> {
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
        if all && may_forget {
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

    /// The lanes under limits whose claimers wait for jobs, each with the place from which to look for jobs in it.
    pub(crate) fn waited_for(&self, from_zero: bool) -> (Vec<i64>, Vec<i64>) {
        let wait = |group: &Group| matches!(group.hint.state(), ClaimerState::Resting | ClaimerState::ShutByKey);
        let lanes = self.groups.iter().filter(|(_, group)| wait(group)).flat_map(|(_, group)| &group.lanes);
        let looked_at = |lane: &Lane| if lane.fair { [Some(lane.id), Some(twin_of(lane.id))] } else { [Some(lane.id), None] };
        let lanes: Vec<i64> = lanes.flat_map(|lane| looked_at(lane).into_iter().flatten()).collect();
        let floors = lanes.iter().map(|lane| if from_zero { 0 } else { self.track.floor(*lane) }).collect();
        (lanes, floors)
    }

    /// The lanes that are neither paused nor limited nor suspects'.
    pub(crate) fn free(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| !lane.solo && !lane.lined && !self.groups.cover(lane.id))
    }

    /// One look at everything that could end an idle worker's sleep. Lanes are asked only if a place was given out since they were found empty,
    /// or `closely` says so.
    pub(crate) async fn glance(
        &mut self,
        connection: &mut PgConnection,
        store: Store,
        closely: bool,
        from_zero: bool,
    ) -> sqlx::Result<Glance> {
        let looked = self.look_over(&mut *connection, store, closely.then_some(from_zero)).await?;
        let before = self.given.replace(looked.given);
        let asked = closely || (!looked.born && self.rested != Some(looked.given));
        let any_ready =
            if asked && !closely { self.look_over(connection, store, Some(from_zero)).await?.any_ready } else { looked.any_ready };
        if asked {
            // Not the number of just now: whoever took that may not have committed yet.
            self.rested = before.filter(|_| any_ready == Some(false));
        }
        let any = looked.born || any_ready == Some(true);
        Ok(Glance { any, asked, horizon: (looked.xmin, looked.xmax), next_run: looked.wait_ms.map(after_ms) })
    }

    /// With `from_zero`, whether lanes hold jobs, too: from their floors on, or anywhere.
    async fn look_over(&self, connection: &mut PgConnection, store: Store, from_zero: Option<bool>) -> sqlx::Result<LookedOver> {
        let lanes = from_zero.and_then(|_| self.asked_apart());
        let floor = |lane: &i64| if from_zero == Some(true) { 0 } else { self.track.floor(*lane) };
        let floors: Vec<i64> = lanes.iter().flatten().map(floor).collect();
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/glance.sql")))
            .bind(&self.horizon)
            .bind(&self.stored)
            .bind(&self.queues)
            .bind(from_zero.is_some())
            .bind(lanes)
            .bind(floors);
        bounded(statement.fetch_one(connection)).await
    }

    /// The lanes that are asked one by one whether they hold jobs. Of many none are, unless some may hold jobs that could not begin: whoever asked all
    /// at once would find those at each poll.
    fn asked_apart(&self) -> Option<Vec<i64>> {
        let (are_few, are_very_many) = (!self.are_many(), self.track.known.len() > 10 * MANY);
        (are_few || (self.groups.any_is_busy() && !are_very_many)).then(|| self.asked().map(|lane| lane.id).collect())
    }

    /// The lanes that are not paused, suspects' included.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Lane> {
        self.track.known.values().filter(|lane| !self.closed.contains(&lane.id))
    }

    /// Those of them that no claimer looks at, suspects' included.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| !self.groups.is_busy(lane.id))
    }

    /// Suspects' lanes in which one could begin, of some key.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| lane.solo && !self.groups.is_shut_to_all(lane.id))
    }

    /// Whether there are too many lanes to ask each one.
    pub(crate) fn are_many(&self) -> bool {
        self.track.known.len() - self.closed.len() > MANY
    }

    /// Whether lanes with jobs may be left that were not offered yet.
    pub(crate) fn more_wait(&self) -> bool {
        self.are_many() && !(self.window.is_empty() && self.cursor == i64::MIN)
    }

    /// Whether [`Lanes::offer`] needs a [`Lanes::look`] first.
    pub(crate) fn must_look(&self) -> bool {
        self.are_many() && self.window.is_empty()
    }

    /// Which of many lanes hold jobs: asking every lane at each claim would cost more than the jobs. Begins where the last look ended, so that
    /// each lane has its turn.
    pub(crate) async fn look(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
        for begin in [self.cursor, i64::MIN] {
            let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/waiting.sql"))).bind(begin).bind(WINDOW as i64);
            let found: Vec<i64> = bounded(statement.fetch_all(&mut *connection)).await?;
            self.cursor = if found.len() < WINDOW { i64::MIN } else { found.last().copied().unwrap_or(i64::MIN) };
            // What stands in lines is offered by the name of the plain lane, once.
            let found_of = |lane: &Lane| if lane.lined { twin_of(lane.id) } else { lane.id };
            let named: HashSet<i64> = found.iter().filter_map(|id| self.track.known.get(id)).map(found_of).collect();
            let known = order(named.iter().filter_map(|id| self.track.known.get(id)).filter(|lane| !lane.solo), 0);
            self.window = known.into_iter().map(|lane| lane.id).collect();
            if !found.is_empty() || begin == i64::MIN {
                break;
            }
        }
        Ok(())
    }

    /// Of what the last look found, offers only lanes of these types: others are claimed from otherwise.
    pub(crate) fn narrow(&mut self, wanted: impl Fn(&'static str) -> bool) {
        self.window.retain(|id| self.track.known.get(id).is_some_and(|lane| wanted(lane.job_type)));
    }

    /// The lanes to claim from now, best first. Of many, half of what was found, when the other half is for a claim beside this one; but not
    /// halves of halves.
    pub(crate) fn offer(&mut self, turn: usize, half: bool) -> Vec<&Lane> {
        if self.are_many() {
            let all = self.window.len();
            let count = if half { (all / 2).max(FEW).min(all) } else { all };
            self.window
                .drain(..count)
                .filter_map(|id| self.track.known.get(&id))
                .filter(|lane| !lane.solo && !self.closed.contains(&lane.id) && !self.groups.cover(lane.id))
                .collect()
        } else {
            order(self.free(), turn)
        }
    }

    /// A claim was full before it came to these lanes, which are offered again; but for those that limits cover, which are not offered at all.
    pub(crate) fn take_back(&mut self, lanes: impl DoubleEndedIterator<Item = i64>) {
        if self.are_many() {
            for lane in lanes.rev().filter(|lane| !self.groups.cover(*lane)) {
                self.window.push_front(lane);
            }
        }
    }
}

#[cfg(test)]
mod tests;

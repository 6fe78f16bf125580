//! Taking jobs: which lanes, from which floor, how many.
//!
//! A [`Claimed`] comes from here only, and is consumed by a verdict: a job cannot be run without a lease, or settled twice.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::connect::{Link, bounded};

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
    /// Kept until its verdict is written.
    pub(crate) held: Arc<()>,
}

/// With more lanes than this, those that hold jobs are looked for first.
const MANY: usize = 64;

/// How many of them one look finds. Priorities are strict among these.
const WINDOW: usize = 500;

/// A lane that this worker serves.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) job_type: &'static str,
    pub(crate) priority: i16,
    pub(crate) solo: bool,
}

/// The lanes known so far, and where each one's jobs begin.
pub(crate) struct Lanes {
    types: Vec<&'static str>,
    queues: Option<Vec<String>>,
    horizon: String,
    known: HashMap<i64, Lane>,
    floors: HashMap<i64, i64>,
    /// When each lane last had its turn, or was first seen.
    served: HashMap<i64, Instant>,
    /// Where the last look for lanes with jobs ended.
    cursor: i64,
    /// Shared by every job claimed here whose verdict is not written yet.
    held: Arc<()>,
}

impl Lanes {
    /// Of these job types, in these queues or in any.
    pub(crate) fn new(types: Vec<&'static str>, queues: Option<Vec<String>>) -> Self {
        Self {
            types,
            queues,
            horizon: "0".to_owned(),
            known: HashMap::new(),
            floors: HashMap::new(),
            served: HashMap::new(),
            cursor: i64::MIN,
            held: Arc::default(),
        }
    }

    /// Learns of the lanes born since the last time; returns whether there were any.
    pub(crate) async fn refresh(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
        let statement = sqlx::query(store.sql(include_str!("../sql/lanes.sql"))).bind(&self.horizon).bind(&self.types).bind(&self.queues);
        let rows = bounded(statement.fetch_all(connection)).await?;
        let before = self.known.len();
        for row in &rows {
            self.horizon = row.try_get("horizon")?;
            let Some(id) = row.try_get::<Option<i64>, _>("lane")? else { continue };
            let name: &str = row.try_get("job_type")?;
            let Some(job_type) = self.types.iter().find(|known| **known == name) else { continue };
            let lane = Lane { id, queue: row.try_get("queue")?, job_type, priority: row.try_get("priority")?, solo: row.try_get("solo")? };
            self.known.insert(id, lane);
        }
        Ok(self.known.len() > before)
    }

    /// All lanes known, suspects' included.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Lane> {
        self.known.values()
    }

    /// The lane of this id.
    pub(crate) fn get(&self, id: i64) -> Option<&Lane> {
        self.known.get(&id)
    }

    /// Whether better lanes have kept this one waiting for so long.
    pub(crate) fn is_passed_over(&mut self, lane: i64, aging: Duration) -> bool {
        self.served.entry(lane).or_insert_with(Instant::now).elapsed() >= aging
    }

    /// These lanes had their turn.
    pub(crate) fn served(&mut self, lanes: impl Iterator<Item = i64>) {
        let now = Instant::now();
        self.served.extend(lanes.map(|lane| (lane, now)));
    }

    /// Whether every job claimed here is over, its verdict written.
    pub(crate) fn hold_nothing(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }

    /// Whether there are too many lanes to ask each one.
    pub(crate) fn are_many(&self) -> bool {
        self.known.len() > MANY
    }

    /// Whether the last look ended before the last lane.
    pub(crate) fn more_wait(&self) -> bool {
        self.are_many() && self.cursor != i64::MIN
    }

    /// Which of many lanes hold jobs: asking every lane at each claim would cost more than the jobs. Begins where the last look ended, so that
    /// each lane has its turn.
    pub(crate) async fn waiting(&mut self, connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<&Lane>> {
        let mut found: Vec<i64> = Vec::new();
        for begin in [self.cursor, i64::MIN] {
            let statement = sqlx::query_scalar(store.sql(include_str!("../sql/waiting.sql"))).bind(begin).bind(WINDOW as i64);
            found = bounded(statement.fetch_all(&mut *connection)).await?;
            self.cursor = if found.len() < WINDOW { i64::MIN } else { found.last().copied().unwrap_or(i64::MIN) };
            if !found.is_empty() || begin == i64::MIN {
                break;
            }
        }
        Ok(found.iter().filter_map(|id| self.known.get(id)).collect())
    }

    /// Takes up to `most` jobs of `lanes`, which are in the order to be served.
    ///
    /// Looks from each lane's floor, the lowest place of its last claim: what lies below is dead index entries, which cost more the longer
    /// anybody holds a snapshot, and now and then a job whose transaction committed late. Those are found by looking from zero, whenever a
    /// claim came back short or a second has passed, but never for more than a twentieth of the time.
    pub(crate) async fn claim(
        &mut self,
        from: &mut Source<'_>,
        rescan: &mut Rescan,
        lanes: &[Share],
        most: usize,
    ) -> sqlx::Result<Vec<Claimed>> {
        let began = Instant::now();
        let from_zero = rescan.is_due(began);
        let floors = if from_zero { vec![0; lanes.len()] } else { self.floors_of(lanes) };
        let mut claimed = self.take(from, lanes, &floors, most).await?;
        if from_zero {
            rescan.done(began);
        } else if claimed.len() < most {
            let again = Instant::now();
            rescan.owed = !rescan.may(again);
            if !rescan.owed {
                match self.take(from, lanes, &vec![0; lanes.len()], most - claimed.len()).await {
                    Ok(late) => {
                        rescan.done(again);
                        claimed.extend(late);
                    }
                    Err(error) if claimed.is_empty() => return Err(error),
                    // What the first look found is ours: dropped here, it would be under a lease of a living worker that nobody ever ends.
                    Err(_) => rescan.owed = true,
                }
            }
        }
        Ok(claimed)
    }

    fn floors_of(&self, lanes: &[Share]) -> Vec<i64> {
        lanes.iter().map(|share| self.floors.get(&share.lane).copied().unwrap_or(0)).collect()
    }

    async fn take(&mut self, from: &mut Source<'_>, lanes: &[Share], floors: &[i64], most: usize) -> sqlx::Result<Vec<Claimed>> {
        let narrow = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let token = Uuid::new_v4();
        #[cfg(feature = "mutants")]
        let floors = &*if queue_core::mutants::bug("no_rescan") { self.floors_of(lanes) } else { floors.to_vec() };
        let statement = sqlx::query(from.store.sql(include_str!("../sql/claim.sql")))
            .bind(token)
            .bind(from.worker)
            .bind(lanes.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(floors)
            .bind(lanes.iter().map(|share| narrow(share.most)).collect::<Vec<_>>())
            .bind(narrow(most));
        let rows = bounded(statement.fetch_all(from.link.get().await?)).await;
        let rows = from.link.note(rows).inspect_err(|_| from.strays.note(token))?;
        let rank: HashMap<i64, usize> = lanes.iter().enumerate().map(|(rank, share)| (share.lane, rank)).collect();
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
                job_type: self.known.get(&lane).map_or("", |lane| lane.job_type),
                batch: 0,
                payload: row.try_get(6)?,
                held: Arc::clone(&self.held),
            };
            claimed.push((rank.get(&lane).copied().unwrap_or(usize::MAX), seq, job));
        }
        #[cfg(feature = "mutants")]
        queue_core::mutants::decode_as_a_batch(claimed.iter_mut().map(|(_, _, job)| &mut job.payload));
        let batch = claimed.len();
        for (_, _, job) in &mut claimed {
            job.batch = batch;
        }
        self.floors.extend(lowest);
        claimed.sort_unstable_by_key(|(rank, seq, _)| (*rank, *seq));
        Ok(claimed.into_iter().map(|(_, _, job)| job).collect())
    }
}

/// A lane to claim from, and how many of it at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) lane: i64,
    pub(crate) most: usize,
}

/// Where jobs are claimed from, and for whom.
pub(crate) struct Source<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) store: Store,
    pub(crate) worker: Uuid,
    pub(crate) strays: &'a mut Strays,
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

/// When to look from zero.
#[derive(Default)]
pub(crate) struct Rescan {
    /// Not before this, lest it take more than a twentieth of the time.
    not_before: Option<Instant>,
    /// At this at the latest, so that a busy worker finds late commits too.
    at_latest: Option<Instant>,
    /// Whether the last claim came back short without it.
    owed: bool,
}

impl Rescan {
    /// When to claim again before going to sleep: what made the bell ring may lie below a floor.
    pub(crate) fn owed(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.owed)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.at_latest.is_none_or(|at| now >= at)
    }

    fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    fn done(&mut self, began: Instant) {
        let (now, rest) = (Instant::now(), 20 * began.elapsed());
        self.owed = false;
        self.not_before = Some(now + rest);
        self.at_latest = Some(now + rest.max(Duration::from_secs(1)));
    }
}

/// The lanes to claim from, best first: by priority, and among equals each in turn.
pub(crate) fn order<'a>(lanes: impl Iterator<Item = &'a Lane>, turn: usize) -> Vec<&'a Lane> {
    let mut lanes: Vec<&Lane> = lanes.collect();
    lanes.sort_unstable_by_key(|lane| (std::cmp::Reverse(lane.priority), lane.id));
    for equals in lanes.chunk_by_mut(|a, b| a.priority == b.priority) {
        equals.rotate_left(turn % equals.len());
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(id: i64, priority: i16) -> Lane {
        Lane { id, queue: "q".to_owned(), job_type: "t", priority, solo: false }
    }

    #[test]
    fn lanes_go_by_priority_and_equals_take_turns() {
        let lanes = [lane(1, 100), lane(2, 100), lane(3, 150), lane(4, 30)];
        let ids = |turn| order(lanes.iter(), turn).into_iter().map(|lane| lane.id).collect::<Vec<_>>();
        assert_eq!(ids(0), [3, 1, 2, 4]);
        assert_eq!(ids(1), [3, 2, 1, 4]);
    }

    #[test]
    fn a_slow_rescan_waits_twenty_times_as_long() {
        let mut rescan = Rescan::default();
        let now = Instant::now();
        assert!(rescan.is_due(now));
        rescan.done(now.checked_sub(Duration::from_secs(1)).expect("the machine is up for longer than a second"));
        assert!(!rescan.may(Instant::now() + Duration::from_secs(19)));
        assert!(rescan.may(Instant::now() + Duration::from_secs(21)));
    }
}

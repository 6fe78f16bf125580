//! Where transactional jobs are: looks for the next one, and locks it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{JobId, Registration, Store, runner::ClaimedJob};
use sqlx::{PgConnection, Row as _};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    lanes::{Lane, Lanes, key_of, order, waited},
    live::Paused,
    tally::{Attempt, How, QueueNumber, Tallies},
};

/// What is known of where jobs are; held by the loop that looks for the next one.
pub(super) struct Lookout {
    lanes: Lanes,
    tallies: Tallies,
    floors: HashMap<i64, i64>,
    turn: usize,
    pub(super) refreshed: Instant,
    /// When to look from zero again, at the earliest and at the latest.
    from_zero: (Instant, Instant),
    /// When to look again before a sleep: what made us look may lie below a floor, and it was too soon to look from zero.
    pub(super) owed: Option<Instant>,
    pub(super) told: watch::Receiver<Duration>,
}

/// How often lanes that are new, and late commits, are looked for while jobs keep coming.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// A job whose entry the transaction has locked.
pub(super) struct LockedJob {
    pub(super) job: ClaimedJob,
    pub(super) seq: i64,
    /// The server process of the connection.
    pub(super) pid: i32,
    /// In what is counted.
    queue: QueueNumber,
    /// How long it was ready before it was looked for, and when that was.
    waited: Duration,
    asked: Instant,
}

impl LockedJob {
    /// What is counted of an attempt at it that began then.
    pub(super) fn attempt(&self, known: Option<&Registration>, since: Instant) -> Attempt {
        let job_type = known.map_or(self.job.job_type, |known| known.options().name);
        let start = self.waited + since.saturating_duration_since(self.asked);
        Attempt { queue: self.queue, job_type, how: How::Plainly, start }
    }
}

impl Lookout {
    pub(super) fn new(lanes: Lanes, told: watch::Receiver<Duration>, tallies: Tallies) -> Self {
        let now = Instant::now();
        Self { lanes, tallies, floors: HashMap::new(), turn: 0, refreshed: now, from_zero: (now, now), owed: None, told }
    }

    /// Forgets what only the last connection's server could know.
    pub(super) fn forget_server(&mut self) {
        self.lanes.forget_server();
        self.floors.clear();
        self.from_zero = (Instant::now(), Instant::now());
    }

    /// The next job that is not paused, locked by this transaction: from each lane's floor on, and from zero now and then, as a claim looks.
    /// Jobs of `passed` are left where they are.
    pub(super) async fn look(
        &mut self,
        tx: &mut PgConnection,
        store: Store,
        paused: &Paused,
        passed: &[JobId],
    ) -> sqlx::Result<Option<LockedJob>> {
        self.owed = None;
        self.turn = self.turn.wrapping_add(1);
        let lanes: Vec<Lane> =
            order(self.lanes.all().filter(|lane| !paused.covers(&lane.queue, lane.job_type)), self.turn).into_iter().cloned().collect();
        if lanes.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        if began < self.from_zero.1 {
            let found = self.take(tx, store, (&lanes, false), passed).await?;
            if found.is_some() {
                return Ok(found);
            }
            if began < self.from_zero.0 {
                self.owed = Some(self.from_zero.0);
                return Ok(None);
            }
        }
        let began = Instant::now();
        let found = self.take(tx, store, (&lanes, true), passed).await?;
        let (now, rest) = (Instant::now(), 20 * began.elapsed());
        self.from_zero = (now + rest, now + rest.max(Duration::from_secs(1)));
        Ok(found)
    }

    async fn take(
        &mut self,
        tx: &mut PgConnection,
        store: Store,
        (lanes, zero): (&[Lane], bool),
        passed: &[JobId],
    ) -> sqlx::Result<Option<LockedJob>> {
        let floor = |lane: &Lane| if zero { 0 } else { self.floors.get(&lane.id).copied().unwrap_or(0) };
        let statement = sqlx::query(store.sql(include_str!("../../sql/take_one.sql")))
            .bind(lanes.iter().map(|lane| lane.id).collect::<Vec<_>>())
            .bind(lanes.iter().map(floor).collect::<Vec<_>>())
            .bind(passed);
        let asked = Instant::now();
        let Some(row) = statement.fetch_optional(tx).await? else { return Ok(None) };
        let (lane, seq): (i64, i64) = (row.try_get("lane")?, row.try_get("seq")?);
        self.floors.insert(lane, seq);
        let from = lanes.iter().find(|known| known.id == lane);
        let job = ClaimedJob {
            token: Uuid::nil(),
            id: row.try_get("id")?,
            lane,
            queue: from.map(|lane| Arc::clone(&lane.queue)).unwrap_or_default(),
            claimed_at: row.try_get("claimed_at")?,
            attempt: row.try_get::<i16, _>("attempts")?.saturating_add(1),
            crashes: row.try_get("crashes")?,
            max_attempts: row.try_get::<Option<i16>, _>("max_attempts")?.unwrap_or(1),
            job_type: from.map_or("", |lane| lane.job_type),
            version: from.map_or(1, |lane| lane.version),
            payload: row.try_get("payload")?,
            meta: row.try_get("meta")?,
            key: key_of(&row, "key", "key_skips")?,
            room_until: None,
        };
        let queue = self.tallies.queue(from.map_or("", |lane| &lane.queue));
        let waited = waited(seq, job.claimed_at);
        Ok(Some(LockedJob { job, seq, pid: row.try_get("pid")?, queue, waited, asked }))
    }

    /// Learns of new lanes; returns whether there were any.
    pub(super) async fn refresh(&mut self, tx: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
        self.refreshed = Instant::now();
        self.lanes.refresh(tx, store, true).await
    }
}

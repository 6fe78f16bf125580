//! Consumes hints. A hint is a row about an event that other jobs may be waiting for. Consuming hints has the following effects:
//!
//! - The first blocked job of an ordering key becomes ready once the key has no ready or running job.
//! - Finished jobs are reported to the parents, maps and flows that wait for them.
//! - A parked job becomes ready when a signal for it arrives.
//! - A node of a flow becomes ready when its dependencies have finished.
//!
//! Any worker can consume the hints of all keys and jobs. A worker consumes hints after its own verdicts, when a producer notifies the
//! worker, and periodically. Periodic consumption is necessary because the worker that wrote a hint may have ended. SQL functions such as
//! `queue.unblock` implement the steps, and this module decides when to run them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{JobId, Store};
use sqlx::{
    PgConnection, Postgres, Row as _,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::lock_watcher::LockWatcher;
use crate::{
    error::{is_locked, warn_throttled},
    live::{Notifier, StoreConnection, bounded, jittered},
};

/// Maximum number of hints that a statement consumes. End hints have a lower maximum.
const MAX_HINTS: i32 = 1000;

/// Initial poll interval while hints arrive. Polling is necessary because producers notify only sleeping workers of new hints. The
/// interval doubles after each poll without hints.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time for which the loop keeps polling after the last hint.
const POLL_DURATION: Duration = Duration::from_secs(2);

/// Log message for a job that became a dead letter because it could not become ready. The job was the first job of its ordering key.
const SET_ASIDE_MESSAGE: &str = "the first job of an ordering key cannot become ready and is now a dead letter, which has the error; requeue it once that is \
    fixed, or discard it";

/// Returns whether there are hints. Also returns the earliest expiry time at or after `floor` if that time has passed, or `None` otherwise.
/// The housekeeper calls this function about every second.
pub(crate) async fn probe_hints(
    connection: &mut PgConnection,
    store: Store,
    floor: Option<DateTime<Utc>>,
) -> sqlx::Result<(bool, Option<DateTime<Utc>>)> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/any_hint.sql"))).bind(floor);
    bounded(statement.fetch_one(connection)).await
}

/// Consumes hints and never returns. Does not connect while there are no hints.
pub(crate) async fn run_unblock(link: StoreConnection, store: Store, notifier: Arc<Notifier>) {
    let mut keys = Unblocker { link, store, keys: HintConsumer::default(), others: Default::default() };
    let mut lock_watcher = LockWatcher::default();
    let (mut poll_until, mut pause): (Option<Instant>, Duration) = (None, POLL_INTERVAL);
    loop {
        let is_notified = match poll_until {
            Some(until) if Instant::now() < until => tokio::time::timeout(pause, notifier.wait_for_keys()).await.is_ok(),
            _ => {
                notifier.wait_for_keys().await;
                poll_until = Some(Instant::now() + POLL_DURATION);
                true
            }
        };
        pause = if is_notified { POLL_INTERVAL } else { 2 * pause };
        loop {
            match keys.run_once().await {
                Ok(found) => {
                    for job in &found.bury_blocked {
                        tracing::warn!(%job, "{SET_ASIDE_MESSAGE}");
                    }
                    if found.hints > 0 || found.moved > 0 {
                        (poll_until, pause) = (Some(Instant::now() + POLL_DURATION), POLL_INTERVAL);
                    }
                    if let Some(wait) = found.wait_ms {
                        notifier.notify_due(Duration::from_secs_f64((wait / 1000.0).clamp(0.0, 1e9)));
                    }
                    if found.moved > 0 {
                        notifier.request_probe();
                    }
                    // Hints whose rows are locked are not consumed, and are not retried immediately.
                    if !found.is_full {
                        break;
                    }
                }
                Err(error) => {
                    warn_throttled(&error, "cannot unblock ordering keys; retrying");
                    poll_until = Some(Instant::now() + POLL_DURATION);
                    tokio::time::sleep(jittered(Duration::from_millis(500))).await;
                    break;
                }
            }
        }
        lock_watcher.probe(&mut keys.link, store).await;
    }
}

/// Kinds of hints other than hints for ordering keys. Consuming hints of one kind can create hints of later kinds in this list.
const HINT_KINDS: [HintKind; 4] = [
    // One hint of this kind covers up to 200 finished jobs.
    HintKind {
        name: "ends",
        sql: include_str!("../../sql/consume_end_hints.sql"),
        max_hints: 50,
        failure_message: "cannot report finished jobs to the jobs that wait for them; retrying",
    },
    HintKind {
        name: "gathers",
        sql: include_str!("../../sql/count_gathers.sql"),
        max_hints: MAX_HINTS,
        failure_message: "cannot count the finished jobs of maps; retrying",
    },
    HintKind {
        name: "signals",
        sql: include_str!("../../sql/wake_parked.sql"),
        max_hints: MAX_HINTS,
        failure_message: "cannot wake parked jobs; retrying",
    },
    HintKind {
        name: "nodes",
        sql: include_str!("../../sql/release_nodes.sql"),
        max_hints: MAX_HINTS,
        failure_message: "cannot release nodes of flows; retrying",
    },
];

/// Minimum time between a failure and the next attempt to consume hints of the same kind. Each attempt may wait for a locked table and
/// delay the other kinds.
const RETRY_DELAY: Duration = Duration::from_secs(1);

struct HintKind {
    /// Result column of `unblock.sql` that is true if there are hints of this kind.
    name: &'static str,
    /// Statement that consumes hints at or above a lower bound.
    sql: &'static str,
    /// Maximum number of hints that a statement consumes.
    max_hints: i32,
    failure_message: &'static str,
}

/// Connection of the unblock loop and the state of each kind of hint.
struct Unblocker {
    link: StoreConnection,
    store: Store,
    keys: HintConsumer,
    others: [HintConsumer; HINT_KINDS.len()],
}

/// State of one kind of hint.
#[derive(Default)]
struct HintConsumer {
    floor: HintFloor,
    /// Time of the last failure to consume hints of this kind.
    failed: Option<Instant>,
}

/// Lower bound of scans for one kind of hints.
struct HintFloor {
    /// Position of the lowest hint found by the last scan that found a hint. Below this position, the index contains dead entries,
    /// and occasionally hints whose position was already below the lower bound when they were committed.
    lowest: i64,
    /// Earliest start of the next scan without the lower bound. Limits such scans to about 5 % of the time.
    full_scan_at: Instant,
}

impl Default for HintFloor {
    fn default() -> Self {
        Self { lowest: 0, full_scan_at: Instant::now() }
    }
}

impl HintFloor {
    /// Returns the lower bound of a scan that starts at `began`, or zero for a scan without a bound.
    fn begin(&self, began: Instant) -> i64 {
        if began >= self.full_scan_at { 0 } else { self.lowest }
    }

    /// Records the position of the lowest hint that a scan found. If the scan had no lower bound, schedules the next such scan. `began`
    /// is the start time of the scan.
    fn record(&mut self, began: Instant, lowest: Option<i64>) {
        if began >= self.full_scan_at {
            self.full_scan_at = Instant::now() + 20 * began.elapsed();
        }
        self.lowest = lowest.unwrap_or(self.lowest);
    }
}

#[derive(Default)]
struct UnblockResult {
    hints: i32,
    moved: i32,
    /// Whether there may be more hints to consume immediately.
    is_full: bool,
    wait_ms: Option<f64>,
    /// Jobs that became dead letters because a table rejected their rows.
    bury_blocked: Vec<JobId>,
}

impl Unblocker {
    /// Runs one statement for ordering keys, and one statement for each other kind that has hints. If a table of ordering keys is locked,
    /// only the ordering keys are delayed.
    async fn run_once(&mut self) -> sqlx::Result<UnblockResult> {
        let (mut found, there) = match self.unblock().await {
            Err(error) if is_locked(&error) => {
                warn_throttled(&error, "cannot unblock ordering keys; retrying");
                (UnblockResult::default(), [true; HINT_KINDS.len()])
            }
            found => found?,
        };
        // Consuming hints of one kind can create hints of later kinds. Later kinds are therefore also consumed if an earlier kind had
        // hints.
        let mut any_before = false;
        for (nth, kind) in HINT_KINDS.iter().enumerate() {
            let is_delayed = self.others[nth].failed.is_some_and(|failed| failed.elapsed() < RETRY_DELAY);
            if is_delayed || (!there[nth] && !any_before) {
                continue;
            }
            match self.consume(nth, kind).await {
                Ok((hints, moved, more)) => {
                    (found.hints, found.moved) = (found.hints + hints, found.moved + moved);
                    (found.is_full, any_before) = (found.is_full || more, any_before || hints > 0);
                }
                // The results for ordering keys remain valid. The periodic probe will find the hints of this kind again.
                Err(error) => {
                    warn_throttled(&error, kind.failure_message);
                    self.others[nth].failed = Some(Instant::now());
                }
            }
        }
        Ok(found)
    }

    /// Unblocks ordering keys that have hints. Returns the result, and for each other kind of hints whether any exist.
    async fn unblock(&mut self) -> sqlx::Result<(UnblockResult, [bool; HINT_KINDS.len()])> {
        let began = Instant::now();
        let statement =
            sqlx::query(self.store.sql(include_str!("../../sql/unblock.sql"))).bind(self.keys.floor.begin(began)).bind(MAX_HINTS);
        let statement = self.others.iter().fold(statement, |statement, of| statement.bind(of.floor.begin(began)));
        let row = self.fetch(statement).await?;
        self.keys.floor.record(began, row.try_get("lowest")?);
        let found = UnblockResult {
            hints: row.try_get("hints")?,
            moved: row.try_get("moved")?,
            is_full: row.try_get("more")?,
            wait_ms: row.try_get("wait_ms")?,
            bury_blocked: row.try_get::<Option<_>, _>("aside")?.unwrap_or_default(),
        };
        let mut there = [false; HINT_KINDS.len()];
        for ((kind, of), there) in HINT_KINDS.iter().zip(&mut self.others).zip(&mut there) {
            *there = row.try_get(kind.name)?;
            if !*there {
                of.floor.record(began, None);
            }
        }
        Ok((found, there))
    }

    /// Consumes hints of one kind. Returns the number of consumed hints, the number of moved jobs, and whether to run again immediately.
    async fn consume(&mut self, nth: usize, kind: &HintKind) -> sqlx::Result<(i32, i32, bool)> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(kind.sql)).bind(self.others[nth].floor.begin(began)).bind(kind.max_hints);
        let row = self.fetch(statement).await?;
        self.others[nth].floor.record(began, row.try_get("lowest")?);
        Ok((row.try_get("hints")?, row.try_get("moved")?, row.try_get("more")?))
    }

    async fn fetch(&mut self, statement: Query<'_, Postgres, PgArguments>) -> sqlx::Result<PgRow> {
        let row = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        if row.as_ref().is_err_and(|error| error.as_database_error().is_none()) {
            // The next connection may reach another server, for example after a failover that lost transactions. On that server, new
            // hints may have numbers below the floors.
            (self.keys, self.others) = Default::default();
        }
        self.link.note(row)
    }
}

//! Letting ordering keys go on: makes the first blocked job of each key ready once nothing of the key is under way. Tells those that wait for jobs
//! that they are over, and makes ready parked jobs, once they have a signal that they wait for, and nodes of flows, once those before them are over.
//!
//! Any worker does it, for keys and jobs that were left a hint: at once after its own verdicts ended heads, when a producer says that it left one, and
//! every so often because the one who should have may be gone. `queue.unblock` knows how; this file decides when.

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

use super::kept::Kept;
use crate::{
    error::{complain, is_locked},
    live::{Bell, Link, bounded, jittered},
};

/// The most hints of one statement.
const MOST: i32 = 1000;

/// While hints come, they are looked for this often: one whose producer committed late is told by nobody while the workers are awake. After the last
/// one, twice as late each time.
const LOOK: Duration = Duration::from_millis(20);

/// For so long after the last one.
const RESTLESS: Duration = Duration::from_secs(2);

/// Other keys go on.
const SET_ASIDE: &str = "the first job of an ordering key cannot become ready, and is set aside: its dead letter says why; requeue it once that is \
    mended, or discard it";

/// Whether any hint waits, of a key or a parked job, and the time of the first job from this one on that is to expire by now: for whoever looks
/// every second or so.
pub(crate) async fn hinted(
    connection: &mut PgConnection,
    store: Store,
    floor: Option<DateTime<Utc>>,
) -> sqlx::Result<(bool, Option<DateTime<Utc>>)> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/hinted.sql"))).bind(floor);
    bounded(statement.fetch_one(connection)).await
}

/// Consumes hints, for ever. Where keys are not used, it never connects.
pub(crate) async fn unblock_all(link: Link, store: Store, bell: Arc<Bell>) {
    let mut keys = Unblocker { link, store, keys: Consumer::default(), others: Default::default() };
    let mut kept = Kept::default();
    let (mut restless, mut pause): (Option<Instant>, Duration) = (None, LOOK);
    loop {
        let told = match restless {
            Some(until) if Instant::now() < until => tokio::time::timeout(pause, bell.keys()).await.is_ok(),
            _ => {
                bell.keys().await;
                restless = Some(Instant::now() + RESTLESS);
                true
            }
        };
        pause = if told { LOOK } else { 2 * pause };
        loop {
            match keys.look().await {
                Ok(found) => {
                    for job in &found.aside {
                        tracing::warn!(%job, "{SET_ASIDE}");
                    }
                    if found.hints > 0 || found.moved > 0 {
                        (restless, pause) = (Some(Instant::now() + RESTLESS), LOOK);
                    }
                    if let Some(wait) = found.wait_ms {
                        bell.due_in(Duration::from_secs_f64((wait / 1000.0).clamp(0.0, 1e9)));
                    }
                    if found.moved > 0 {
                        bell.ring();
                    }
                    // What is left in place, because somebody is at work on it, is not looked at again at once.
                    if !found.is_full {
                        break;
                    }
                }
                Err(error) => {
                    complain(&error, "cannot let ordering keys go on; trying again");
                    restless = Some(Instant::now() + RESTLESS);
                    tokio::time::sleep(jittered(Duration::from_millis(500))).await;
                    break;
                }
            }
        }
        kept.look(&mut keys.link, store).await;
    }
}

/// Hints beside those of keys: in this order one kind leads to others.
const KINDS: [Kind; 4] = [
    // A hint is up to 200 jobs.
    Kind { name: "ends", sql: include_str!("../../sql/tell_ends.sql"), most: 50, fails: "cannot tell of jobs that are over; trying again" },
    Kind {
        name: "gathers",
        sql: include_str!("../../sql/count_gathers.sql"),
        most: MOST,
        fails: "cannot count what is over of what jobs have mapped; trying again",
    },
    Kind { name: "signals", sql: include_str!("../../sql/wake_parked.sql"), most: MOST, fails: "cannot wake parked jobs; trying again" },
    Kind {
        name: "nodes",
        sql: include_str!("../../sql/release_nodes.sql"),
        most: MOST,
        fails: "cannot release nodes of flows; trying again",
    },
];

/// After a failure, hints of that kind are not looked at for this duration: a locked table is waited for, and the other kinds wait as long.
const PUT_OFF: Duration = Duration::from_secs(1);

struct Kind {
    /// The column of unblock.sql that says whether there are any.
    name: &'static str,
    /// Consumes some, from a place on.
    sql: &'static str,
    /// The most hints of one statement.
    most: i32,
    fails: &'static str,
}

/// The loop's connection, and what it knows of the hints.
struct Unblocker {
    link: Link,
    store: Store,
    keys: Consumer,
    others: [Consumer; KINDS.len()],
}

/// What is known of the hints of a kind.
#[derive(Default)]
struct Consumer {
    floor: Floor,
    /// When a look has failed last.
    failed: Option<Instant>,
}

/// Where hints of a kind are.
struct Floor {
    /// The lowest that was found last: below it there are dead index entries, and hints that were committed late.
    lowest: i64,
    /// When to look below it next: never for more than a twentieth of the time.
    from_zero: Instant,
}

impl Default for Floor {
    fn default() -> Self {
        Self { lowest: 0, from_zero: Instant::now() }
    }
}

impl Floor {
    /// From where on a look that begins now is to look.
    fn begin(&self, began: Instant) -> i64 {
        if began >= self.from_zero { 0 } else { self.lowest }
    }

    /// What that look found.
    fn note(&mut self, began: Instant, lowest: Option<i64>) {
        if began >= self.from_zero {
            self.from_zero = Instant::now() + 20 * began.elapsed();
        }
        self.lowest = lowest.unwrap_or(self.lowest);
    }
}

#[derive(Default)]
struct Unblocked {
    hints: i32,
    moved: i32,
    /// There may be more that can be moved.
    is_full: bool,
    wait_ms: Option<f64>,
    /// Jobs that no table takes.
    aside: Vec<JobId>,
}

impl Unblocker {
    /// One look at keys, and, if there are hints of other kinds, one at each of these. A table of keys that is locked stops only keys.
    async fn look(&mut self) -> sqlx::Result<Unblocked> {
        let (mut found, there) = match self.unblock().await {
            Err(error) if is_locked(&error) => {
                complain(&error, "cannot let ordering keys go on; trying again");
                (Unblocked::default(), [true; KINDS.len()])
            }
            found => found?,
        };
        // Hints of one kind lead to some of a later one.
        let mut any_before = false;
        for (nth, kind) in KINDS.iter().enumerate() {
            let is_put_off = self.others[nth].failed.is_some_and(|failed| failed.elapsed() < PUT_OFF);
            if is_put_off || (!there[nth] && !any_before) {
                continue;
            }
            match self.consume(nth, kind).await {
                Ok((hints, moved, more)) => {
                    (found.hints, found.moved) = (found.hints + hints, found.moved + moved);
                    (found.is_full, any_before) = (found.is_full || more, any_before || hints > 0);
                }
                // What keys came to stands. The hints are found again by the look of each second.
                Err(error) => {
                    complain(&error, kind.fails);
                    self.others[nth].failed = Some(Instant::now());
                }
            }
        }
        Ok(found)
    }

    /// Also says of which other kinds there are hints.
    async fn unblock(&mut self) -> sqlx::Result<(Unblocked, [bool; KINDS.len()])> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/unblock.sql"))).bind(self.keys.floor.begin(began)).bind(MOST);
        let statement = self.others.iter().fold(statement, |statement, of| statement.bind(of.floor.begin(began)));
        let row = self.fetch(statement).await?;
        self.keys.floor.note(began, row.try_get("lowest")?);
        let found = Unblocked {
            hints: row.try_get("hints")?,
            moved: row.try_get("moved")?,
            is_full: row.try_get("more")?,
            wait_ms: row.try_get("wait_ms")?,
            aside: row.try_get::<Option<_>, _>("aside")?.unwrap_or_default(),
        };
        let mut there = [false; KINDS.len()];
        for ((kind, of), there) in KINDS.iter().zip(&mut self.others).zip(&mut there) {
            *there = row.try_get(kind.name)?;
            if !*there {
                of.floor.note(began, None);
            }
        }
        Ok((found, there))
    }

    /// Consumes hints of this kind: how many there were, without those that were left for later, how many jobs were moved, and whether to look again
    /// at once.
    async fn consume(&mut self, nth: usize, kind: &Kind) -> sqlx::Result<(i32, i32, bool)> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(kind.sql)).bind(self.others[nth].floor.begin(began)).bind(kind.most);
        let row = self.fetch(statement).await?;
        self.others[nth].floor.note(began, row.try_get("lowest")?);
        Ok((row.try_get("hints")?, row.try_get("moved")?, row.try_get("more")?))
    }

    async fn fetch(&mut self, statement: Query<'_, Postgres, PgArguments>) -> sqlx::Result<PgRow> {
        let row = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        if row.as_ref().is_err_and(|error| error.as_database_error().is_none()) {
            // The next connection may be to another server, which is behind: its hints have lower numbers.
            (self.keys, self.others) = Default::default();
        }
        self.link.note(row)
    }
}

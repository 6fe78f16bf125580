//! Letting ordering keys go on: makes the first blocked job of each key ready once nothing of the key is under way. And parked jobs, once they have a
//! signal that they wait for, and nodes of flows, once those before them are over.
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

use crate::{
    error::complain,
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
    let mut keys = Unblocker { link, store, keys: Floor::new(), signals: Floor::new(), gathers: Floor::new(), nodes: Floor::new() };
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
                    if found.hints > 0 {
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
    }
}

/// Who looks, and where hints are.
struct Unblocker {
    link: Link,
    store: Store,
    keys: Floor,
    signals: Floor,
    gathers: Floor,
    nodes: Floor,
}

/// Where hints of a kind are.
struct Floor {
    /// The lowest that was found last: below it there are dead index entries, and hints that were committed late.
    lowest: i64,
    /// When to look below it next: never for more than a twentieth of the time.
    from_zero: Instant,
}

impl Floor {
    fn new() -> Self {
        Self { lowest: 0, from_zero: Instant::now() }
    }

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
    /// One look at keys, and, if there are hints of gathers, signals or nodes, one at each of these.
    async fn look(&mut self) -> sqlx::Result<Unblocked> {
        let (mut found, [mut signals, gathers, nodes]) = self.unblock().await?;
        if gathers {
            match self.count_gathers().await {
                Ok((hints, moved, over)) => {
                    found.is_full |= hints >= MOST || moved >= MOST;
                    (found.hints, found.moved, signals) = (found.hints + hints, found.moved + moved, signals || over > 0);
                }
                Err(error) => complain(&error, "cannot count what is over of what jobs have mapped; trying again"),
            }
        }
        if signals {
            match self.wake_parked().await {
                Ok((hints, moved)) => {
                    found.is_full |= hints >= MOST && moved > 0;
                    (found.hints, found.moved) = (found.hints + hints, found.moved + moved);
                }
                // What keys came to stands. Whoever looks every second or so finds the hints again.
                Err(error) => complain(&error, "cannot wake parked jobs; trying again"),
            }
        }
        if nodes {
            match self.release_nodes().await {
                Ok((hints, moved, more)) => {
                    found.is_full |= moved > 0 && (more || hints >= MOST);
                    (found.hints, found.moved) = (found.hints + hints, found.moved + moved);
                }
                Err(error) => complain(&error, "cannot release nodes of flows; trying again"),
            }
        }
        Ok(found)
    }

    /// Also says whether there are hints of signals, of gathers, and of nodes.
    async fn unblock(&mut self) -> sqlx::Result<(Unblocked, [bool; 3])> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/unblock.sql")));
        let statement = statement.bind(self.keys.begin(began)).bind(MOST).bind(self.signals.begin(began));
        let row = self.fetch(statement.bind(self.gathers.begin(began)).bind(self.nodes.begin(began))).await?;
        self.keys.note(began, row.try_get("lowest")?);
        let (hints, moved, aside): (i32, i32, Option<Vec<JobId>>) = (row.try_get("hints")?, row.try_get("moved")?, row.try_get("aside")?);
        let is_full = hints >= MOST && moved > 0;
        let found = Unblocked { hints, moved, is_full, wait_ms: row.try_get("wait_ms")?, aside: aside.unwrap_or_default() };
        let there: [bool; 3] = [row.try_get("signals")?, row.try_get("gathers")?, row.try_get("nodes")?];
        for (floor, there) in [&mut self.signals, &mut self.gathers, &mut self.nodes].into_iter().zip(there) {
            if !there {
                floor.note(began, None);
            }
        }
        Ok((found, there))
    }

    /// Returns how many hints there were, without those that were left for later, and how many jobs were woken.
    async fn wake_parked(&mut self) -> sqlx::Result<(i32, i32)> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/wake_parked.sql")));
        let row = self.fetch(statement.bind(self.signals.begin(began)).bind(MOST)).await?;
        self.signals.note(began, row.try_get("lowest")?);
        Ok((row.try_get("hints")?, row.try_get("moved")?))
    }

    /// Returns how many hints there were, without those that were left for later, how many parts were let run, and how many gathers are over.
    async fn count_gathers(&mut self) -> sqlx::Result<(i32, i32, i32)> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/count_gathers.sql")));
        let row = self.fetch(statement.bind(self.gathers.begin(began)).bind(MOST)).await?;
        self.gathers.note(began, row.try_get("lowest")?);
        Ok((row.try_get("hints")?, row.try_get("moved")?, row.try_get("over")?))
    }

    /// Returns how many hints there were, without those that were left for later, how many nodes were moved, and whether there are more edges.
    async fn release_nodes(&mut self) -> sqlx::Result<(i32, i32, bool)> {
        let began = Instant::now();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/release_nodes.sql")));
        let row = self.fetch(statement.bind(self.nodes.begin(began)).bind(MOST)).await?;
        self.nodes.note(began, row.try_get("lowest")?);
        Ok((row.try_get("hints")?, row.try_get("moved")?, row.try_get("more")?))
    }

    async fn fetch(&mut self, statement: Query<'_, Postgres, PgArguments>) -> sqlx::Result<PgRow> {
        let row = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        if row.is_err() {
            // The next connection may be to another server, which is behind: its hints have lower numbers.
            (self.keys, self.signals, self.gathers, self.nodes) = (Floor::new(), Floor::new(), Floor::new(), Floor::new());
        }
        self.link.note(row)
    }
}

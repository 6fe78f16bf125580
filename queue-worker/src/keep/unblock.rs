//! Letting ordering keys go on: makes the first blocked job of each key ready once nothing of the key is under way.
//!
//! Any worker does it, for keys that were left a hint: at once after its own verdicts ended heads, when a producer says that it left one, and
//! every so often because the one who should have may be gone. `queue.unblock` knows how; this file decides when.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _};

use crate::{
    error::complain,
    live::{Bell, Link, bounded},
};

/// The most hints of one statement.
const MOST: i32 = 1000;

/// While hints come, they are looked for this often: one whose producer committed late is told by nobody while the workers are awake.
const LOOK: Duration = Duration::from_millis(20);

/// For so long after the last one.
const RESTLESS: Duration = Duration::from_secs(2);

/// Other keys go on.
const SET_ASIDE: &str = "the first job of an ordering key cannot become ready, and is set aside: its dead letter says why; requeue it once that is \
    mended, or discard it";

/// Whether any hint waits, and the time of the first job from this one on that is to expire by now: for whoever looks every second or so.
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
    let mut keys = Unblocker { link, store, floor: 0, from_zero: Instant::now() };
    let mut restless: Option<Instant> = None;
    loop {
        match restless {
            Some(until) if Instant::now() < until => drop(tokio::time::timeout(LOOK, bell.keys()).await),
            _ => {
                bell.keys().await;
                restless = Some(Instant::now() + RESTLESS);
            }
        }
        loop {
            match keys.unblock().await {
                Ok(found) => {
                    for job in &found.aside {
                        tracing::warn!(%job, "{SET_ASIDE}");
                    }
                    if found.hints > 0 {
                        restless = Some(Instant::now() + RESTLESS);
                    }
                    if let Some(wait) = found.wait_ms {
                        bell.due_in(Duration::from_secs_f64((wait / 1000.0).clamp(0.0, 1e9)));
                    }
                    if found.moved > 0 {
                        bell.ring();
                    }
                    // What is left in place, because somebody is at work on it, is not looked at again at once.
                    if found.hints < MOST || found.moved == 0 {
                        break;
                    }
                }
                Err(error) => {
                    complain(&error, "cannot let ordering keys go on; trying again");
                    restless = Some(Instant::now() + RESTLESS);
                    tokio::time::sleep(Duration::from_millis(500).mul_f64(1.0 + fastrand::f64())).await;
                    break;
                }
            }
        }
    }
}

/// Where hints are.
struct Unblocker {
    link: Link,
    store: Store,
    /// The lowest that was found last: below it there are dead index entries, and hints that were committed late.
    floor: i64,
    /// When to look below it next: never for more than a twentieth of the time.
    from_zero: Instant,
}

struct Unblocked {
    hints: i32,
    moved: i32,
    wait_ms: Option<f64>,
    /// Jobs that no table takes.
    aside: Vec<JobId>,
}

impl Unblocker {
    async fn unblock(&mut self) -> sqlx::Result<Unblocked> {
        let began = Instant::now();
        let zero = began >= self.from_zero;
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/unblock.sql")));
        let statement = statement.bind(if zero { 0 } else { self.floor }).bind(MOST);
        let row = match self.link.get().await {
            Ok(connection) => bounded(statement.fetch_one(connection)).await,
            Err(error) => Err(error),
        };
        let row = self.link.note(row)?;
        if zero {
            self.from_zero = Instant::now() + 20 * began.elapsed();
        }
        let lowest: Option<i64> = row.try_get("lowest")?;
        self.floor = lowest.unwrap_or(self.floor);
        let aside: Option<Vec<JobId>> = row.try_get("aside")?;
        Ok(Unblocked {
            hints: row.try_get("hints")?,
            moved: row.try_get("moved")?,
            wait_ms: row.try_get("wait_ms")?,
            aside: aside.unwrap_or_default(),
        })
    }
}

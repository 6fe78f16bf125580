//! Ending jobs that have not begun by the time that their enqueue said. Any worker does it; the time is the database's.
//!
//! Nothing hangs on how soon it comes: a job past its time does not begin in any case, because whoever claims it looks. `queue.expire_due` knows how;
//! this file decides when: as soon as housekeeping, which looks about every second, sees that there is one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{JobId, Store};
use sqlx::FromRow;

use crate::{
    error::complain,
    live::{Bell, Link, bounded, jittered},
    tally::Tallies,
};

/// The most rows of one statement, and so of one transaction.
const MOST: i32 = 1000;

/// From where on to look for jobs that expire: below it there are dead index entries, and jobs that were committed late.
#[derive(Default)]
pub(crate) struct Floor {
    first: Option<DateTime<Utc>>,
    /// When to look below it next: never for more than a twentieth of the time.
    from_zero: Option<Instant>,
}

impl Floor {
    /// Where to begin now.
    pub(super) fn floor(&self, now: Instant) -> Option<DateTime<Utc>> {
        self.first.filter(|_| self.from_zero.is_some_and(|zero| now < zero))
    }

    /// A look that began then is over, and found this first.
    pub(super) fn looked(&mut self, began: Instant, first: Option<DateTime<Utc>>) {
        if self.floor(began).is_none() {
            self.from_zero = Some(Instant::now() + 20 * began.elapsed());
        }
        self.first = first.or(self.first);
    }
}

/// What one look came to.
#[derive(FromRow)]
struct Looked {
    hints: i32,
    lowest: Option<DateTime<Utc>>,
    expired: Vec<JobId>,
    /// Jobs that no table takes.
    refused: Vec<JobId>,
}

/// Ends what is to expire, for ever. Where nothing does, it never connects.
pub(crate) async fn expire_all(mut link: Link, store: Store, bell: Arc<Bell>, tallies: Tallies) {
    let mut floor = Floor::default();
    loop {
        bell.expiries().await;
        loop {
            match look(&mut link, store, &mut floor).await {
                Ok(looked) => {
                    tallies.tell_expired(&looked.expired);
                    for job in looked.refused {
                        tracing::warn!(%job, "a job whose time is over cannot be ended, and is tried again later: its rows are refused; mend or cancel it");
                    }
                    if looked.hints < MOST {
                        break;
                    }
                }
                Err(error) => {
                    complain(&error, "cannot let jobs expire now; trying again");
                    tokio::time::sleep(jittered(Duration::from_millis(500))).await;
                    break;
                }
            }
        }
    }
}

async fn look(link: &mut Link, store: Store, floor: &mut Floor) -> sqlx::Result<Looked> {
    let began = Instant::now();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/expire_due.sql"))).bind(floor.floor(began)).bind(MOST);
    let looked: sqlx::Result<Looked> = match link.get().await {
        Ok(connection) => bounded(statement.fetch_one(connection)).await,
        Err(error) => Err(error),
    };
    // The next connection may be to another server, on which what has expired waits again.
    let looked = link.note(looked).inspect_err(|_| *floor = Floor::default())?;
    floor.looked(began, looked.lowest);
    Ok(looked)
}

//! Tells the store where handlers were told to slow down: beside all claims, for a limit may be locked.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::Store;
use sqlx::error::DatabaseError;

use crate::{
    error::complain,
    live::{Bell, Link, SlowDown, Slowed, bounded},
};

/// What could not be told is told again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells the store of each slow-down, for ever. The connection is closed after each, for they are rare.
pub(crate) async fn tell_slow_downs(slowed: Arc<Slowed>, link: Link, store: Store, bell: Arc<Bell>) {
    loop {
        let slow = slowed.next().await;
        let mut link = link.another();
        match tell(&slow, &mut link, store).await {
            Ok(()) => {
                slowed.told(&slow);
                // From here on claims see it in the store.
                bell.nudge_claimers();
            }
            Err(error) => {
                slowed.put_off(&slow, AGAIN);
                if error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "55P03") {
                    let limits = &slow.gates;
                    tracing::warn!(
                        ?limits,
                        "cannot slow a limit down; trying again: its row in `gate` is locked; see pg_locks, and end that session"
                    );
                } else {
                    complain(&error, "cannot slow a limit down; trying again");
                }
            }
        }
        link.close().await;
    }
}

async fn tell(slow: &SlowDown, link: &mut Link, store: Store) -> sqlx::Result<()> {
    let wait = slow.until.saturating_duration_since(Instant::now());
    let statement = sqlx::query(store.sql(include_str!("../../sql/slow_down.sql")));
    let statement = statement.bind(&slow.gates).bind(wait.as_secs_f64() * 1000.0);
    let told = bounded(statement.execute(link.get().await?)).await;
    link.note(told).map(drop)
}

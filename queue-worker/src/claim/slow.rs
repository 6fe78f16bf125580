//! Limits under which nothing is to begin for a time, because handlers were told so by a service: said one after the other, beside the claim loop.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::Store;
use sqlx::error::DatabaseError;
use tokio::task::JoinHandle;

use super::flight::Links;
use crate::{
    error::complain,
    live::{Bell, Link, bounded},
};

/// What is to be said, and what is being said.
#[derive(Default)]
pub(super) struct Slow {
    /// By lanes: until when their limits are to wait, and when that is said at the earliest.
    lanes: HashMap<i64, (Instant, Instant)>,
    saying: Option<Saying>,
}

struct Saying {
    lane: i64,
    until: Instant,
    task: JoinHandle<(Link, sqlx::Result<()>)>,
}

/// What could not be said is said again after this.
const AGAIN: Duration = Duration::from_secs(1);

impl Slow {
    /// Takes note of what was said since the last call.
    pub(super) fn hear(&mut self, bell: &Bell) {
        for (lane, until) in bell.take_slow() {
            self.note(lane, until, Instant::now());
        }
    }

    fn note(&mut self, lane: i64, until: Instant, not_before: Instant) {
        let known = self.lanes.entry(lane).or_insert((until, not_before));
        known.0 = until.max(known.0);
    }

    /// When the claim loop is to look again at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.saying.is_some() { None } else { self.lanes.values().map(|(_, not_before)| *not_before).min() }
    }

    /// The lanes whose limits may not know yet until when they are to wait.
    pub(super) fn all(&self) -> Vec<(i64, Instant)> {
        let pending = self.lanes.iter().map(|(lane, (until, _))| (*lane, *until));
        pending.chain(self.saying.iter().map(|saying| (saying.lane, saying.until))).collect()
    }

    /// What could not be said is said now: it is the last time.
    pub(super) fn hurry(&mut self) {
        let now = Instant::now();
        self.lanes.values_mut().for_each(|(_, not_before)| *not_before = now);
    }

    /// What is to be said next, if it is time and nothing is being said.
    pub(super) fn next(&mut self) -> Option<(i64, Instant)> {
        let now = Instant::now();
        self.lanes.retain(|_, (until, _)| *until > now);
        let due = self.lanes.iter().filter(|(_, (_, not_before))| self.saying.is_none() && *not_before <= now);
        let (lane, (until, _)) = due.min_by_key(|(_, (_, not_before))| *not_before).map(|(lane, times)| (*lane, *times))?;
        self.lanes.remove(&lane);
        Some((lane, until))
    }

    /// Says so of the limits of a lane.
    pub(super) fn send(&mut self, (lane, until): (i64, Instant), gates: Vec<i64>, mut link: Link, store: Store, bell: &Arc<Bell>) {
        let bell = Arc::clone(bell);
        let task = tokio::spawn(async move {
            let wait = until.saturating_duration_since(Instant::now());
            let statement = sqlx::query(store.sql(include_str!("../../sql/slow_down.sql")));
            let statement = statement.bind(gates).bind(wait.as_secs_f64() * 1000.0);
            let said = match link.get().await {
                Ok(connection) => bounded(statement.execute(connection)).await,
                Err(error) => Err(error),
            };
            let said = link.note(said).map(drop);
            bell.nudge();
            (link, said)
        });
        self.saying = Some(Saying { lane, until, task });
    }

    /// Looks at what has been said. If it could not be, it is said again, of what is left of that time.
    pub(super) async fn land(&mut self, links: &mut Links) {
        let Some(saying) = self.saying.take_if(|saying| saying.task.is_finished()) else { return };
        let (lane, until) = (saying.lane, saying.until);
        let said = match saying.task.await {
            Ok((link, said)) => {
                links.push(link);
                said
            }
            Err(_) => Err(sqlx::Error::WorkerCrashed),
        };
        let Err(error) = said else { return };
        tell(lane, &error, "cannot say that a limit is to wait; trying again");
        self.note(lane, until, Instant::now() + AGAIN);
    }

    /// Waits for what is being said; returns its link. It is not said again.
    pub(super) async fn end(&mut self) -> Option<Link> {
        let Saying { lane, task, .. } = self.saying.take()?;
        let (link, said) = task.await.ok()?;
        if let Err(error) = said {
            tell(lane, &error, "cannot say that a limit is to wait, and this worker ends");
        }
        Some(link)
    }
}

/// Says why it could not be said of the limits of a lane.
fn tell(lane: i64, error: &sqlx::Error, what: &'static str) {
    if error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "55P03") {
        tracing::warn!(lane, "{what}: somebody else has its row in `gate` locked; see pg_locks, and end that session");
    } else {
        complain(error, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_lane_the_latest_time_is_said_once_and_what_failed_does_not_go_before_others() {
        let (bell, mut slow, now) = (Bell::default(), Slow::default(), Instant::now());
        let (short, long) = (Duration::from_secs(5), Duration::from_secs(9));
        bell.slow_down(1, long);
        bell.slow_down(1, short);
        slow.hear(&bell);
        let (lane, until) = slow.next().unwrap();
        assert!(lane == 1 && until >= now + long && slow.next().is_none() && slow.due().is_none());
        slow.note(1, until, now + AGAIN);
        assert!(slow.next().is_none() && slow.due() == Some(now + AGAIN));
        bell.slow_down(2, short);
        slow.hear(&bell);
        assert_eq!(slow.next().map(|(lane, _)| lane), Some(2));
        slow.note(3, now, now);
        assert!(slow.next().is_none(), "its time is over");
    }
}

//! What the scout asks the database: which lanes hold jobs, and, on the way to sleep and asleep, whether there can be anything to do at all.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{
    claimers::{tell_all, tell_holding},
    scout::Scout,
};
use crate::{
    lanes::{Ask, Seen, When},
    live::Sleep,
};

/// How soon a worker that is falling asleep looks again whether older transactions have ended: twice as late each time, up to the longest.
const NAP: Duration = Duration::from_millis(5);
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// An idle worker asks its lanes at least this often, whether or not it was told of a job.
const BELT: Duration = Duration::from_secs(10);

impl Scout {
    /// Finds out which lanes hold jobs, and tells their claimers. In a hurry also the claimers that found no room for any waiting key: jobs of other
    /// keys may have come. Returns whether there are new lanes.
    pub(super) async fn look_for_jobs(&mut self, hurry: bool) -> sqlx::Result<bool> {
        let when = if self.lanes.groups.any_waits() { When::Now } else { When::Never };
        let (seen, _) = self.look(when, hurry).await?;
        Ok(seen.born)
    }

    /// One look; returns whether any claimer that waited was told of jobs.
    async fn look(&mut self, when: When, hurry: bool) -> sqlx::Result<(Seen, bool)> {
        let began = Instant::now();
        self.looked = Some(began);
        let takes_long = self.rescan.is_slow() && !self.rescan.may_take_long(began);
        let from_zero = when != When::Never && self.rescan.may(began) && !takes_long;
        self.context.bell.forget_due();
        let ask = Ask { when, from_zero, of_some_key: hurry };
        let seen = self.lanes.look(self.link.get().await?, self.context.store, ask).await;
        let seen = self.link.note(seen)?;
        if let Some(wait) = seen.next_run {
            self.context.bell.note_due(wait);
        }
        if seen.born {
            self.refresh().await?;
        }
        let mut any = tell_holding(&self.lanes, &seen.holding);
        if seen.asked && from_zero {
            self.rescan.begin();
            self.rescan.done(began.elapsed(), seen.holding.len());
        } else if seen.asked && takes_long && self.rescan.may(began) {
            // Each looks below its floors by itself, by blocks of the table.
            self.rescan.begin();
            any |= tell_all(&self.lanes);
        } else if seen.asked {
            self.rescan.owed = true;
        }
        self.has_told |= any;
        Ok((seen, any))
    }

    /// Whether some claimer waits for jobs that are looked for here, or none does anything: while all are at work, each looks for itself.
    pub(super) fn may_rest(&self) -> bool {
        !self.trial.is_quiet() && (self.lanes.groups.any_waits() || !self.lanes.groups.any_is_active())
    }

    /// While nothing has come: until when to rest, unless there may be something to do.
    pub(super) async fn go_on_resting(&mut self) -> sqlx::Result<Option<Instant>> {
        let is_tried = self.trial.due().is_some_and(|at| Instant::now() >= at);
        if self.sleep == Sleep::Awake || self.lineup.more || self.lanes.more_wait() || is_tried || !self.may_rest() {
            return Ok(None);
        }
        let planned = self.context.bell.due().map_or(self.planned, |due| due.min(self.planned));
        if Instant::now() < planned {
            return Ok(Some(planned));
        }
        if self.lanes.are_stale() && self.refresh().await? {
            self.is_rung = true;
            return Ok(None);
        }
        // On its way to sleep it asks every lane, for those who are not seen to have ended yet may not have seen it.
        let before = self.sleep;
        let closely = before != Sleep::Asleep || self.rescan.owes() || Instant::now() >= self.belt;
        if closely {
            self.belt = Instant::now() + BELT;
        }
        let (seen, any) = self.look(if closely { When::Now } else { When::IfGiven }, false).await?;
        self.sleep = before.given(seen.horizon);
        let is_solo = |lane: &i64| self.lanes.track.get(*lane).is_some_and(|lane| lane.solo);
        // New lanes are to be looked at; and once it is asleep all are, once more.
        self.is_rung = seen.born || self.sleep != before;
        if self.is_rung || any || seen.holding.iter().any(is_solo) {
            return Ok(None);
        }
        let pause = if before == Sleep::Asleep { self.poll } else { self.next_nap() };
        Ok(Some(self.rest_until(pause)))
    }

    /// How long to wait until the next look on the way to sleep: longer and longer, for a transaction may be open for hours.
    fn next_nap(&mut self) -> Duration {
        self.nap = (2 * self.nap).clamp(NAP, LONGEST_NAP).min(self.poll);
        self.nap
    }

    /// When to wake next: after this pause, or earlier if something is due or owed by then.
    fn rest_until(&mut self, pause: Duration) -> Instant {
        let owed = self.rescan.owed_at().into_iter().chain(self.trial.due());
        self.planned = owed.fold(self.until(pause), Instant::min);
        self.planned
    }

    /// A step on the way to sleep, see [`Sleep`]: from then on it is told of what comes for claimers that wait. Once it is asleep it looks once more.
    pub(super) async fn come_to_rest(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        if self.sleep == Sleep::Asleep {
            return Ok(Some(self.rest_until(self.poll)));
        }
        if self.sleep == Sleep::Awake {
            let queues = self.context.queues.named().unwrap_or_else(|| vec!["*".to_owned()]);
            let announced = Sleep::announce(self.link.get().await?, self.context.store, worker, &queues).await;
            (self.sleep, self.nap) = (self.link.note(announced)?, Duration::ZERO);
        }
        let confirmed = self.sleep.confirm(self.link.get().await?).await;
        let before = std::mem::replace(&mut self.sleep, self.link.note(confirmed)?);
        if self.sleep != before {
            self.nap = Duration::ZERO;
            return Ok(None);
        }
        let pause = self.next_nap();
        Ok(Some(self.rest_until(pause)))
    }
}

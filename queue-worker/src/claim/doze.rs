//! An idle worker: how it falls asleep, and what it looks at while it sleeps.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::feed::Feed;
use crate::{keep::next_run, lanes::Lane, live::Sleep};

/// How soon a worker that is falling asleep looks again whether older transactions have ended: twice as late each time, up to the longest.
const NAP: Duration = Duration::from_millis(5);
const LONGEST_NAP: Duration = Duration::from_millis(250);

/// An idle worker asks its lanes at least this often, whether or not it was told of a job.
const BELT: Duration = Duration::from_secs(10);

impl Feed {
    /// An idle worker's poll: one statement, which sees whether there can be anything to do at all. Returns until when to wait if there cannot.
    /// On its way to sleep it asks every lane, for those who are not seen to have ended yet may not have seen it.
    pub(super) async fn may_sleep(&mut self) -> sqlx::Result<Option<Instant>> {
        let owes = self.owes() || self.rescan_batches.owed || self.lineup.more;
        if self.sleep == Sleep::Awake || self.flight.is_some() || owes || self.waits_for_slots() || self.trial.is_quiet() {
            return Ok(None);
        }
        if self.lanes.are_stale() && self.refresh().await? {
            return Ok(None);
        }
        let began = Instant::now();
        let (closely, aside) = (self.sleep != Sleep::Asleep || began >= self.belt, self.looks_aside());
        let from_zero = self.rescan.may(began) && (!aside || self.rescan.may_take_long(began));
        if closely {
            self.belt = began + BELT;
        }
        self.context.bell.forget_due();
        let link = self.links.any();
        let glance = self.lanes.glance(link.get().await?, self.context.store, closely, from_zero).await;
        let glance = link.note(glance)?;
        if from_zero && glance.asked {
            // One that finds something at once does not tell how long it takes.
            if glance.any {
                self.rescan.put_off(20 * began.elapsed());
            } else {
                self.rescan.done(began.elapsed(), 0);
            }
        }
        // Where to ask every lane from zero takes long, looks by blocks do that sooner for the lanes of single jobs.
        let is_single = |lane: &Lane| !lane.fair && self.context.queues.batch_of(lane.job_type).is_none();
        self.rescan.owed |= aside && glance.asked && self.rescan.is_due() && self.lanes.free().any(is_single);
        if let Some(wait) = glance.next_run {
            self.context.bell.note_due(wait);
        }
        let before = self.sleep;
        self.sleep = before.given(glance.horizon);
        if glance.any || self.sleep != before {
            return Ok(None);
        }
        let pause = if before == Sleep::Asleep { self.poll } else { self.next_nap() };
        Ok(Some(self.until(pause)))
    }

    /// How long to wait until the next look on the way to sleep: longer and longer, for a transaction may be open for hours.
    fn next_nap(&mut self) -> Duration {
        self.nap = (2 * self.nap).clamp(NAP, LONGEST_NAP).min(self.poll);
        self.nap
    }

    /// One step on the way to sleep; see [`Sleep`].
    pub(super) async fn fall_asleep(&mut self, worker: Uuid) -> sqlx::Result<Option<Instant>> {
        let link = self.links.any();
        let before = self.sleep;
        let step = match before {
            Sleep::Awake => {
                let queues = self.context.queues.named().unwrap_or_else(|| vec!["*".to_owned()]);
                Sleep::announce(link.get().await?, self.context.store, worker, &queues).await
            }
            Sleep::Announced(_) => before.confirm(link.get().await?).await,
            Sleep::Asleep => Ok(before),
        };
        self.sleep = link.note(step)?;
        if self.sleep != before {
            self.nap = Duration::ZERO;
            return Ok(None);
        }
        if let Sleep::Announced(_) = before {
            let pause = self.next_nap();
            return Ok(Some(self.until(pause)));
        }
        self.context.bell.forget_due();
        let next = next_run(link.get().await?, self.context.store).await;
        if let Some(wait) = link.note(next)? {
            self.context.bell.note_due(wait);
        }
        let poll = Instant::now() + self.poll;
        Ok(Some(self.context.bell.due().map_or(poll, |due| due.min(poll))))
    }
}

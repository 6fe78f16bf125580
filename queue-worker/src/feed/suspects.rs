//! Running jobs that may have ended a process: alone, one at a time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Feed, LOOK};
use crate::{
    claim::{Request, Share},
    connect::bounded,
    lanes::order,
};

/// How long a suspect may have the process to itself before others run beside it again.
const ALONE: Duration = Duration::from_secs(10);

impl Feed {
    /// Runs jobs that may have ended a process, one at a time while nothing else runs here, so that a crash convicts the right one.
    /// Returns when to look again, if there may be some still.
    pub(super) async fn try_suspects(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<Option<Instant>> {
        let lanes: Vec<i64> = order(self.lanes.all().filter(|lane| lane.solo), self.turn).into_iter().map(|lane| lane.id).collect();
        if lanes.is_empty() || Instant::now() < self.suspects {
            return Ok(Some(self.suspects).filter(|_| !lanes.is_empty()));
        }
        self.suspects = Instant::now() + LOOK;
        let found = sqlx::query_scalar::<_, bool>(self.store.sql(include_str!("../../sql/suspects.sql"))).bind(&lanes);
        let link = self.links.any();
        let found = bounded(found.fetch_one(link.get().await?)).await;
        if !link.note(found)? {
            return Ok(None);
        }
        for flight in [self.flight.take(), self.late.take()].into_iter().flatten() {
            self.land(flight).await?;
        }
        let (began, mut more) = (Instant::now(), true);
        self.wait_until_idle(ALONE, stop).await;
        let shares = self.suspects_with_room();
        // Not alone if ordinary jobs outlast our patience, lest they keep the suspect waiting for ever; but never two suspects at a time, or the
        // longer one would be charged with the other's crashes.
        while began.elapsed() < 2 * ALONE && !stop.is_cancelled() && !shares.is_empty() && !self.suspect_runs() {
            let answer = Request::new(worker, shares.clone(), 1, true, &self.lanes).send(self.links.any(), self.store).await;
            let claimed = answer.read(&mut self.lanes, &mut self.strays, &self.held)?;
            more = !claimed.is_empty();
            let lane = claimed.first().and_then(|job| self.lanes.get(job.lane));
            let Some(slots) = lane.and_then(|lane| self.queues.slots(&lane.queue)) else { break };
            if *self.identity.borrow() != Some(worker) {
                break;
            }
            self.suspect = claimed.first().map(|job| (Arc::clone(&slots), job.id));
            slots.push(claimed);
            self.wait_until_idle(ALONE, stop).await;
        }
        // As long for the others as for the suspects, lest one crash of many slow jobs stop everything else.
        self.suspects = Instant::now() + began.elapsed().max(LOOK);
        Ok(Some(self.suspects).filter(|_| more))
    }

    /// The solo lanes whose queues have a free slot.
    fn suspects_with_room(&self) -> Vec<Share> {
        let lanes = order(self.lanes.all().filter(|lane| lane.solo), self.turn).into_iter();
        let free = lanes.filter(|lane| self.queues.slots(&lane.queue).is_some_and(|slots| slots.has_room()));
        free.map(|lane| Share { lane: lane.id, most: 1 }).collect()
    }

    fn suspect_runs(&self) -> bool {
        self.suspect.as_ref().is_some_and(|(slots, id)| slots.holds(*id))
    }

    /// Until nothing runs here and every verdict is written: a crash would charge those that are not.
    async fn wait_until_idle(&self, at_most: Duration, stop: &CancellationToken) {
        let until = Instant::now() + at_most;
        while Instant::now() < until && !stop.is_cancelled() && Arc::strong_count(&self.held) > 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

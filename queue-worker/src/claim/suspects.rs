//! Running jobs that may have ended a process: while nothing else runs.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::feed::{Feed, LOOK};
use crate::{
    lanes::{Claimed, Request, Share, order},
    live::bounded,
};

/// How long a suspect may have the process to itself before others run beside it again.
const ALONE: Duration = Duration::from_secs(10);

impl Feed {
    /// Runs jobs that may have ended a process while nothing else runs here: those that ended one only together, for it takes two more crashes to
    /// convict any of them; others one at a time, so that a crash convicts the right one. Returns when to look again, if there may be some still.
    pub(super) async fn try_suspects(&mut self, worker: Uuid, stop: &CancellationToken) -> sqlx::Result<Option<Instant>> {
        let solo: Vec<i64> = self.lanes.all().filter(|lane| lane.solo).map(|lane| lane.id).collect();
        if solo.is_empty() || Instant::now() < self.suspects {
            return Ok(Some(self.suspects).filter(|_| !solo.is_empty()));
        }
        self.suspects = Instant::now() + LOOK;
        let one_of_each = vec![1; solo.len()];
        if self.waiting_suspects(&solo, &one_of_each).await?.is_empty() {
            return Ok(None);
        }
        for flight in [self.flight.take(), self.late.take()].into_iter().flatten() {
            self.land(flight).await?;
        }
        let (began, mut more) = (Instant::now(), true);
        self.wait_until_idle(ALONE, stop).await;
        // Not alone if ordinary jobs outlast our patience, lest they keep the suspect waiting for ever; but never some beside earlier ones, or the
        // longer ones would be charged with the others' crashes.
        while began.elapsed() < 2 * ALONE && !stop.is_cancelled() && !self.suspects_run() {
            let shares = self.next_suspects().await?;
            let most = shares.iter().map(|share| share.most).sum();
            if shares.is_empty() {
                break;
            }
            let answer = Request::new(worker, shares, most, true, &self.lanes).send(self.links.any(), self.store).await;
            let claimed = answer.read(&mut self.lanes, &mut self.strays, &self.in_flight)?;
            more = !claimed.is_empty();
            if claimed.is_empty() || *self.identity.borrow() != Some(worker) {
                break;
            }
            self.begin(claimed).await;
            self.wait_until_idle(ALONE, stop).await;
        }
        // As long for the others as for the suspects, lest one crash of many slow jobs stop everything else.
        self.suspects = Instant::now() + began.elapsed().max(LOOK);
        Ok(Some(self.suspects).filter(|_| more))
    }

    /// The solo lanes to claim from now, for which slots are free: as many as may be tried together, or one job of any.
    async fn next_suspects(&mut self) -> sqlx::Result<Vec<Share>> {
        let solo = order(self.lanes.all().filter(|lane| lane.solo), self.turn);
        let queues: HashMap<i64, String> = solo.iter().map(|lane| (lane.id, lane.queue.clone())).collect();
        let mut free: HashMap<&str, usize> = HashMap::new();
        for queue in queues.values() {
            free.insert(queue, self.queues.slots(queue).map_or(0, |slots| slots.free().min(self.batch)));
        }
        let lanes: Vec<i64> = solo.into_iter().map(|lane| lane.id).filter(|lane| free[queues[lane].as_str()] > 0).collect();
        let most: Vec<i64> = lanes.iter().map(|lane| free[queues[lane].as_str()] as i64).collect();
        let found = self.waiting_suspects(&lanes, &most).await?;
        let mut shares = Vec::new();
        for lane in &lanes {
            // Lanes of one queue share its free slots.
            let Some(free) = free.get_mut(queues[lane].as_str()) else { continue };
            let most = found.get(lane).map_or(0, |together| usize::try_from(*together).unwrap_or(0)).min(*free);
            *free -= most;
            if most > 0 {
                shares.push(Share { lane: *lane, most });
            }
        }
        let alone = lanes.iter().find(|lane| found.contains_key(lane)).map(|lane| Share { lane: *lane, most: 1 });
        Ok(if shares.is_empty() { alone.into_iter().collect() } else { shares })
    }

    /// Which of these solo lanes hold jobs, and how many of each may be tried together.
    async fn waiting_suspects(&mut self, lanes: &[i64], most: &[i64]) -> sqlx::Result<HashMap<i64, i64>> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/suspects.sql"))).bind(lanes).bind(most);
        let link = self.links.any();
        let found = bounded(statement.fetch_all(link.get().await?)).await;
        Ok(link.note(found)?.into_iter().collect())
    }

    /// Hands suspects to their slots. Should others have taken the head of the row meanwhile, what they left may be what must be tried alone: one is
    /// begun then, and the others go back.
    async fn begin(&mut self, claimed: Vec<Claimed>) {
        let alone = claimed.iter().any(|job| job.job.crashes > 1);
        self.running_suspects.clear();
        for (nth, job) in claimed.into_iter().enumerate() {
            let Some(slots) = self.lanes.get(job.job.lane).and_then(|lane| self.queues.slots(&lane.queue)) else { continue };
            if alone && nth > 0 {
                slots.give_back(&job).await;
            } else {
                self.running_suspects.push((Arc::clone(&slots), job.job.id));
                slots.push(vec![job]);
            }
        }
    }

    fn suspects_run(&self) -> bool {
        self.running_suspects.iter().any(|(slots, id)| slots.holds(*id))
    }

    /// Until nothing runs here and every verdict is written: a crash would charge those that are not.
    async fn wait_until_idle(&self, at_most: Duration, stop: &CancellationToken) {
        let until = Instant::now() + at_most;
        while Instant::now() < until && !stop.is_cancelled() && Arc::strong_count(&self.in_flight) > 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

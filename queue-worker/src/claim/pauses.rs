//! What the claim loop does about pauses: reads them before its first claim under each identity, whenever it is told of one and now and then;
//! leaves their lanes alone; gives back what it has not begun; and says so once all who look for jobs go by it.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::feed::Feed;
use crate::live::{PauseRow, bounded};

/// The pauses are read at least this often: a notification may be lost.
const ANEW: Duration = Duration::from_secs(3);

/// A row of the statement: what this worker has said, and a pause if there is any.
type Read = (i64, Option<i64>, Option<String>, Option<String>);

impl Feed {
    /// To be called before each claim: nothing is claimed by pauses that were not read. Returns whether others are in force than before.
    pub(super) async fn mind_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let (told, unread) = (self.bell.take_news(), self.queues.pauses().now().is_none());
        let changed = if told || unread || Instant::now() >= self.vigil.due { self.read_pauses(worker).await? } else { false };
        if let Some(number) = self.vigil.owed
            && self.queues.pauses().are_heeded()
        {
            let statement = sqlx::query(self.store.sql(include_str!("../../sql/vouch.sql"))).bind(worker).bind(number);
            let link = self.links.any();
            let said = bounded(statement.execute(link.get().await?)).await;
            link.note(said)?;
            self.vigil.owed = None;
        }
        Ok(changed)
    }

    async fn read_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        // Should it fail, the next pass tries again.
        self.vigil.due = Instant::now();
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/pauses.sql"))).bind(worker);
        let link = self.links.any();
        let read: sqlx::Result<Vec<Read>> = bounded(statement.fetch_all(link.get().await?)).await;
        let read = link.note(read)?;
        let seen = read.first().map_or(0, |row| row.0);
        let rows: Vec<PauseRow> = read.into_iter().filter_map(|(_, number, queue, job_type)| Some((number?, queue?, job_type?))).collect();
        let newest = rows.iter().map(|row| row.0).max().unwrap_or(0);
        let paused = self.queues.pauses().read(rows);
        let changed = paused.is_some();
        if let Some(paused) = paused {
            self.queues.give_back_paused(&paused).await;
            self.lanes.pause(paused);
            // What is resumed may lie below a floor.
            (self.rescan.owed, self.rescan_batches.owed) = (true, self.queues.takes_batches());
            // Who looks beside this loop may have slept over it.
            self.bell.tell();
            if let Some(flight) = self.flight.take() {
                self.land(flight).await?;
            }
        }
        (self.vigil.owed, self.vigil.due) = ((seen < newest).then_some(newest), Instant::now() + ANEW);
        Ok(changed)
    }
}

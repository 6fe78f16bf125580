//! What the scout does about pauses: reads them before its first look under each identity, whenever it is told of one and now and then;
//! leaves their lanes alone; gives back what it has not begun; and says so once all who look for jobs go by it.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::scout::Scout;
use crate::{
    error::complain,
    live::{LimitRow, PauseRow, bounded},
};

/// The pauses are read at least this often: a notification may be lost.
const ANEW: Duration = Duration::from_secs(3);

/// A row of the statement: what this worker has said, and a pause or what a limit covers, if there is any.
#[derive(sqlx::FromRow)]
struct Read {
    seen: i64,
    number: Option<i64>,
    queue: Option<String>,
    job_type: Option<String>,
    gate: Option<i64>,
    revision: Option<i64>,
    most: Option<i32>,
    timed: Option<bool>,
    keyed: Option<bool>,
}

impl Read {
    fn row(self) -> Option<PauseRow> {
        let limit = self.gate.map(|gate| LimitRow {
            gate,
            revision: self.revision.unwrap_or_default(),
            most: self.most,
            timed: self.timed.unwrap_or_default(),
            keyed: self.keyed.unwrap_or_default(),
        });
        Some(PauseRow { number: self.number?, queue: self.queue?, job_type: self.job_type?, limit })
    }
}

impl Scout {
    /// To be called before each claim: nothing is claimed by pauses that were not read. Returns whether others are in force than before.
    pub(super) async fn mind_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        self.declare_limits().await;
        let (told, unread) = (self.context.bell.take_news(), self.context.queues.pauses().now().is_none());
        let changed = if told || unread || Instant::now() >= self.vigil.due { self.read_pauses(worker).await? } else { false };
        if let Some(number) = self.vigil.owed
            && self.context.queues.pauses().are_heeded()
        {
            let statement = sqlx::query(self.context.store.sql(include_str!("../../sql/vouch.sql"))).bind(worker).bind(number);
            let said = bounded(statement.execute(self.link.get().await?)).await;
            self.link.note(said)?;
            self.vigil.owed = None;
        }
        Ok(changed)
    }

    /// Says what this worker's code says of limits, once. What stands in the way of that stops only what it limits.
    async fn declare_limits(&mut self) {
        if self.declare_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let done = match self.link.get().await {
            Ok(connection) => self.own_limits.declare(connection, self.context.store).await,
            Err(error) => Err(error),
        };
        match self.link.note(done) {
            Ok(()) => (self.declare_at, self.vigil.due) = (None, Instant::now()),
            Err(error) => {
                complain(&error, "cannot say what this worker's code limits; what that covers waits, and it tries again");
                self.declare_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    async fn read_pauses(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        // Should it fail, the next pass tries again.
        self.vigil.due = Instant::now();
        let statement = sqlx::query_as(self.context.store.sql(include_str!("../../sql/pauses.sql"))).bind(worker);
        let read: sqlx::Result<Vec<Read>> = bounded(statement.fetch_all(self.link.get().await?)).await;
        let read = self.link.note(read)?;
        let seen = read.first().map_or(0, |row| row.seen);
        let mut rows: Vec<PauseRow> = read.into_iter().filter_map(Read::row).collect();
        let newest = rows.iter().map(|row| row.number).max().unwrap_or(0);
        // What its own code limits waits until that is known to all.
        if self.declare_at.is_some() {
            rows.extend(self.own_limits.scopes().map(|(queue, job_type)| PauseRow { number: 0, queue, job_type, limit: None }));
        }
        let paused = self.context.queues.pauses().read(rows);
        let changed = paused.is_some();
        if let Some(paused) = paused {
            self.context.queues.give_back_paused(&paused).await;
            self.lanes.pause(paused);
            self.claimers.show(&self.context, &self.lanes);
            // Who looks beside this loop may have slept over it.
            self.context.bell.ring();
        }
        (self.vigil.owed, self.vigil.due) = ((seen < newest).then_some(newest), Instant::now() + ANEW);
        Ok(changed)
    }
}

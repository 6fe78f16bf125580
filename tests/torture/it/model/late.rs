//! Jobs with a start deadline, and the expiry of jobs that do not start in time.

use std::collections::BTreeSet;

use queue_core::JobId;
use tests::{operate, protocol};
use uuid::Uuid;

use super::{
    op::{Age, LANES},
    play::{Outcome, Player, equal, fault},
};

/// Statement that moves start deadlines into the past. The statement `DUE` moves the times at which housekeeping checks the deadlines.
const LATE: &str = "update queue.job set system = queue.with_expiry(system, now() - interval '1 minute') where id = any ($1)";
const DUE: &str = "update queue.expiry e set at = now() - interval '1 hour' + o.n * interval '1 us'
    from (select ctid, row_number() over () as n from queue.expiry where id = any ($1)) o where e.ctid = o.ctid";

impl Player {
    /// Enqueues a job that must start within an hour.
    pub(super) async fn enqueue_expiring(&mut self, lane: usize) -> Outcome {
        let (queue, priority) = LANES[lane];
        let options = "jsonb_build_object('queue', $1::text, 'priority', $2::int, 'max_attempts', 3, 'expires_in', 3600)";
        let text = format!("select queue.enqueue('do', '{{}}', {options})");
        let enqueue = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).bind(queue).bind(i32::from(priority));
        let id = enqueue.fetch_one(&mut self.connection).await.map_err(fault)?;
        self.model.enqueue(id, lane, false)?;
        self.model.set_start_deadline(id);
        Ok("enqueued one that expires")
    }

    pub(super) async fn make_late(&mut self, jobs: &[Age]) -> Outcome {
        let picked = self.ids(jobs, |_| true);
        let expiring = self.model.expiring();
        // Adds a job that has a deadline, because the randomly selected jobs rarely have one.
        let last = expiring.iter().rev().nth(jobs[0] % expiring.len().max(1));
        let late: Vec<JobId> = picked.into_iter().chain(last.copied()).filter(|id| expiring.contains(id)).collect();
        for text in [LATE, DUE] {
            sqlx::query(text).bind(&late).execute(&mut self.connection).await.map_err(fault)?;
        }
        self.model.make_late(&late);
        Ok(if late.is_empty() { "nothing" } else { "made late" })
    }

    /// Expires the queued jobs whose start deadline has passed, as housekeeping does.
    pub(super) async fn expire_due(&mut self) -> Outcome {
        let late = Vec::from_iter(self.model.late());
        sqlx::query(DUE).bind(&late).execute(&mut self.connection).await.map_err(fault)?;
        let expired = operate::expire_due(&mut self.connection).await.map_err(fault)?;
        let expected = self.model.expire_due();
        equal("expired", &expired, &i64::try_from(expected).unwrap())?;
        Ok(if expected > 0 { "expired" } else { "expired nothing" })
    }

    /// Expires or releases the jobs of a lease that have not started, as their worker does.
    pub(super) async fn expire_held(&mut self, lease: Age) -> Outcome {
        let Some(lease) = self.lease(lease).cloned() else { return Ok("nothing") };
        let expiring = self.model.expiring();
        // A worker sends only the jobs for which the claim returned a deadline.
        let mut verdicts = lease.all("release");
        verdicts.retain(|one| one.job.attempts == 1 && one.job.crashes == 0 && expiring.contains(&one.job.id));
        let refused = protocol::expire_held(&mut self.connection, &verdicts).await.map_err(fault)?;
        let refused: BTreeSet<(Uuid, Option<JobId>)> = refused.into_iter().collect();
        let (expected, expired) = self.model.expire_held(&verdicts);
        equal("refused", &refused, &expected)?;
        Ok(match expired {
            0 if expected.len() == verdicts.len() => "nothing",
            0 => "gave back what had time left",
            _ => "expired while held",
        })
    }
}

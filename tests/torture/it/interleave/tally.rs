//! Compares the counts that statements report with the tables. Each statement moves some jobs between states. All other jobs must keep
//! their states.

use sqlx::PgConnection;
use tests::operate;

use super::{side_statement::SideStatement, statement::Statement};

/// Numbers of queued, running, finished, dead and blocked jobs, then the sum of all attempts, then the number of failure rows.
pub(super) type Tally = [i64; 7];

const TALLY: &str = "
with entry as (
  select 1 as kind, attempts::bigint as attempts from queue.ready union all select 1, attempts from queue.scheduled
  union all select 1, attempts from queue.parked
  union all select 2, u.attempts from queue.lease l cross join lateral unnest(l.attempts) u (attempts)
  union all select 3, attempts from queue.done
  union all select 3, 1 from queue.done_many m cross join lateral unnest(m.ids)
  union all select 4, attempts from queue.dead
  union all select 5, 0 from queue.blocked
)
select array[count(*) filter (where kind = 1), count(*) filter (where kind = 2), count(*) filter (where kind = 3),
  count(*) filter (where kind = 4), count(*) filter (where kind = 5), coalesce(sum(attempts), 0)::bigint, (select count(*) from queue.failure)]
from entry";

pub(super) async fn tally(on: &mut PgConnection) -> sqlx::Result<Tally> {
    let found: Vec<i64> = sqlx::query_scalar(TALLY).fetch_one(on).await?;
    Ok(found.try_into().unwrap_or_else(|found| panic!("{found:?}")))
}

/// Query for violations of ordering keys: blocked jobs of a key without a head job, head jobs that have finished or are blocked, and jobs
/// that have overtaken the head job of their key.
const STUCK_KEYS: &str = "
select b.id, 'the key has no head' as why from queue.blocked b where not exists (select from queue.active_key a where a.key = b.key)
union all
select a.id, 'the head does not exist' from queue.active_key a
where not exists (select from queue.unfinished_job l where l.id = a.id) or exists (select from queue.blocked b where b.id = a.id)
union all
select j.id, 'the job is not the head' from queue.unfinished_job l join queue.job j on j.id = l.id
where j.key is not null and not exists (select from queue.blocked b where b.id = j.id)
  and not exists (select from queue.active_key a where a.key = j.key and a.id = j.id)";

/// Unblocks the ordering keys that have hints, then returns the violations of ordering keys.
pub(super) async fn stuck_keys(on: &mut PgConnection) -> sqlx::Result<Vec<(i64, String)>> {
    operate::unblock(on).await?;
    sqlx::query_as(STUCK_KEYS).fetch_all(on).await
}

/// Returns whether `found` equals the counts before the run plus the effects that the committed statements reported.
pub(super) fn matches_effects(before: Tally, statements: &[(Statement, i64)], found: Tally) -> bool {
    let among = |statement: &[Statement]| statements.iter().any(|(one, _)| statement.contains(one));
    // If `vague`, one of the statements does not report how many finished jobs it deleted. If `loose`, one of them does not report the
    // attempts and failures of the jobs that it deleted.
    let vague = among(&[Statement::PruneEarly, Statement::PruneDays, Statement::DropDay]);
    let loose = vague || among(&[Statement::PruneDone, Statement::PruneKept]);
    let equal = |sum: &Tally| {
        sum.iter().zip(found).enumerate().all(|(place, (sum, found))| match place {
            2 if vague => found <= *sum,
            5.. if loose => true,
            _ => *sum == found,
        })
    };
    let mut sums = vec![before];
    for (statement, count) in statements {
        let possible = effects(*statement, *count, statements);
        sums = sums.iter().flat_map(|sum| possible.iter().map(|change| std::array::from_fn(|place| sum[place] + change[place]))).collect();
    }
    sums.iter().any(equal)
}

/// Returns the possible changes to the tally if the statement reported `n` jobs. The changes depend on `others`, the concurrent statements.
fn effects(statement: Statement, n: i64, others: &[(Statement, i64)]) -> Vec<Tally> {
    let among = |statement: Statement| others.iter().any(|(one, _)| *one == statement);
    // `off` returns the possible numbers of running jobs that a concurrent statement cancelled.
    let cancelling = among(Statement::CancelRunning) || among(Statement::Side(SideStatement::CancelParent));
    let off = || 0..=if cancelling { 2 } else { 0 };
    match statement {
        Statement::Enqueue
        | Statement::EnqueueRelaxed
        | Statement::InsertAll
        | Statement::EnqueueUnique
        | Statement::EnqueueFair
        | Statement::FireTick => {
            vec![[n, 0, 0, 0, 0, 0, 0]]
        }
        Statement::EnqueueKeyed => vec![[n, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, n, 0, 0]],
        Statement::Unblock => vec![[n, 0, 0, 0, -n, 0, 0]],
        // Cancelling a parent finishes the queued parts of its map, including parts that a concurrent `CountGathers` has just made ready.
        Statement::CancelRunning | Statement::Side(SideStatement::CancelParent) if n > 0 => {
            (0..=4).map(|parts| [-parts, 0, parts, 0, 0, 0, 0]).collect()
        }
        Statement::Side(SideStatement::EndPart) => vec![[-n, 0, n, 0, 0, 0, 0]],
        Statement::Side(SideStatement::RunSchedule | SideStatement::Spawn | SideStatement::AddChunk) => vec![[n, 0, 0, 0, 0, 0, 0]],
        Statement::SettleBatch => batch(n, cancelling),
        Statement::Claim
        | Statement::ClaimBatch
        | Statement::ClaimEach
        | Statement::ClaimLate
        | Statement::ClaimLimited
        | Statement::ClaimFair => {
            vec![[-n, n, 0, 0, 0, n, 0]]
        }
        Statement::Settle => vec![[0, -n, n, 0, 0, 0, 0]],
        // A lease contains one or two jobs.
        Statement::SettleWhole => (n..=2 * n).map(|jobs| [0, -jobs, jobs, 0, 0, 0, 0]).collect(),
        Statement::Forget => vec![[0, -n, 0, 0, 0, -n, 0]],
        // A job that is being cancelled is finished instead of released, parked or restarted. Its attempt remains counted.
        Statement::SettlePart | Statement::ParkHeld | Statement::Restart => vec![[n, -n, 0, 0, 0, -n, 0], [0, -n, n, 0, 0, 0, 0]],
        Statement::Park => vec![[0, -n, 0, n, 0, 0, 0]],
        Statement::GiveBack => off().map(|off| [n, -n - off, off, 0, 0, -n - off, 0]).collect(),
        Statement::Recover => off().map(|off| [n - off, -n, off, 0, 0, 0, n]).collect(),
        Statement::Requeue => (0..=n).map(|late| [n - late, 0, 0, -n, late, -n, 0]).collect(),
        Statement::Cancel => (0..=n).map(|blocked| [blocked - n, 0, n, 0, -blocked, 0, 0]).collect(),
        Statement::ExpireDue => (0..=n).map(|blocked| [blocked - n, 0, n, 0, -blocked, 0, 0]).collect(),
        // If the job's start deadline has not passed, the job is released instead of expired.
        Statement::ExpireHeld => vec![[0, -n, n, 0, 0, -n, 0], [n, -n, 0, 0, 0, -n, 0]],
        // A job that a concurrent `Park` turned into a dead letter has no failure row.
        Statement::Discard | Statement::PruneDead => {
            (0..=i64::from(among(Statement::Park))).map(|parked| [0, 0, 0, -n, 0, -n, parked - n]).collect()
        }
        // A job that was reopened and then cancelled has no attempts. Reopening it again does not change the sum of all attempts.
        Statement::Reopen | Statement::ReopenPlain | Statement::ReopenTwin if among(Statement::Cancel) => {
            vec![[n, 0, -n, 0, 0, -n, 0], [n, 0, -n, 0, 0, 0, 0]]
        }
        Statement::Reopen | Statement::ReopenPlain | Statement::ReopenTwin => vec![[n, 0, -n, 0, 0, -n, 0]],
        Statement::PruneDone | Statement::PruneKept => vec![[0, 0, -n, 0, 0, 0, 0]],
        _ => vec![[0; 7]],
    }
}

/// Returns the possible changes if `n` verdicts of a batch were accepted. One verdict of the batch completes a job, and the other retries a
/// job. If the jobs may have been cancelled concurrently (`off`), the second job may be cancelled instead of retried.
fn batch(n: i64, off: bool) -> Vec<Tally> {
    let complete = [0, -1, 1, 0, 0, 0, 0];
    let mut retried: Vec<Tally> = vec![[1, -1, 0, 0, 0, 0, 1]];
    if off {
        retried.extend([[0, -1, 1, 0, 0, 0, 0], [0, -1, 1, 0, 0, 0, 1]]);
    }
    match n {
        0 => vec![[0; 7]],
        1 => retried.into_iter().chain([complete]).collect(),
        _ => retried.into_iter().map(|retry| std::array::from_fn(|place| retry[place] + complete[place])).collect(),
    }
}

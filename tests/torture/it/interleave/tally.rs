//! What statements say they did, held against the tables: each moves so many jobs from here to there, and nothing else may have been moved.

use sqlx::PgConnection;
use tests::operate;

use super::{act::Act, beside::Beside};

/// How much there is: jobs that wait, run, are over, dead, blocked; the attempts of them all, and the rows of failures.
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

/// Keys that stand though nothing holds them up, heads that are none, and jobs that have overtaken the head of their key.
const STANDING: &str = "
select b.id, 'its key has no head' as why from queue.blocked b where not exists (select from queue.active_key a where a.key = b.key)
union all
select a.id, 'the head is no more' from queue.active_key a
where not exists (select from queue.living l where l.id = a.id) or exists (select from queue.blocked b where b.id = a.id)
union all
select j.id, 'it is not the head' from queue.living l join queue.job j on j.id = l.id
where j.key is not null and not exists (select from queue.blocked b where b.id = j.id)
  and not exists (select from queue.active_key a where a.key = j.key and a.id = j.id)";

/// What is wrong with ordering keys, once all hints are consumed: nothing, it is hoped.
pub(super) async fn standing(on: &mut PgConnection) -> sqlx::Result<Vec<(i64, String)>> {
    operate::unblock(on).await?;
    sqlx::query_as(STANDING).fetch_all(on).await
}

/// Whether `found` is what there was before, and what these acts that have committed say they did: each of so many.
pub(super) fn adds_up(before: Tally, acts: &[(Act, i64)], found: Tally) -> bool {
    let among = |act: &[Act]| acts.iter().any(|(one, _)| act.contains(one));
    // Of these it is not said how much history they deleted; and of what is deleted, not how many attempts and failures it had.
    let vague = among(&[Act::PruneEarly, Act::PruneDays, Act::DropDay]);
    let loose = vague || among(&[Act::PruneDone, Act::PruneKept]);
    let equal = |sum: &Tally| {
        sum.iter().zip(found).enumerate().all(|(place, (sum, found))| match place {
            2 if vague => found <= *sum,
            5.. if loose => true,
            _ => *sum == found,
        })
    };
    let mut sums = vec![before];
    for (act, count) in acts {
        let ways = moves(*act, *count, acts);
        sums = sums.iter().flat_map(|sum| ways.iter().map(|way| std::array::from_fn(|place| sum[place] + way[place]))).collect();
    }
    sums.iter().any(equal)
}

/// In which ways the tables may change if that act says it was of so many, beside the others.
fn moves(act: Act, n: i64, beside: &[(Act, i64)]) -> Vec<Tally> {
    let among = |act: Act| beside.iter().any(|(one, _)| *one == act);
    // Of those that were being cancelled while they ran.
    let cancelling = among(Act::CancelRunning) || among(Act::Beside(Beside::CancelParent));
    let off = || 0..=if cancelling { 2 } else { 0 };
    match act {
        Act::Enqueue | Act::EnqueueRelaxed | Act::InsertAll | Act::EnqueueUnique | Act::EnqueueFair | Act::FireTick => {
            vec![[n, 0, 0, 0, 0, 0, 0]]
        }
        Act::EnqueueKeyed => vec![[n, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, n, 0, 0]],
        Act::Unblock => vec![[n, 0, 0, 0, -n, 0, 0]],
        // Of a parent that is cancelled the parts that wait are over, and of a map that is counted they may have begun.
        Act::CancelRunning | Act::Beside(Beside::CancelParent) if n > 0 => (0..=4).map(|parts| [-parts, 0, parts, 0, 0, 0, 0]).collect(),
        Act::Beside(Beside::EndPart) => vec![[-n, 0, n, 0, 0, 0, 0]],
        Act::Beside(Beside::RunSchedule | Beside::Spawn | Beside::AddChunk) => vec![[n, 0, 0, 0, 0, 0, 0]],
        Act::SettleBatch => batch(n, cancelling),
        Act::Claim | Act::ClaimBatch | Act::ClaimEach | Act::ClaimLate | Act::ClaimLimited | Act::ClaimLines => {
            vec![[-n, n, 0, 0, 0, n, 0]]
        }
        Act::Settle => vec![[0, -n, n, 0, 0, 0, 0]],
        // A lease, of one job or of two.
        Act::SettleWhole => (n..=2 * n).map(|jobs| [0, -jobs, jobs, 0, 0, 0, 0]).collect(),
        Act::Forget => vec![[0, -n, 0, 0, 0, -n, 0]],
        // What is being cancelled is not parked, and does not begin anew; it has had its attempt.
        Act::SettlePart | Act::ParkHeld | Act::Restart => vec![[n, -n, 0, 0, 0, -n, 0], [0, -n, n, 0, 0, 0, 0]],
        Act::Park => vec![[0, -n, 0, n, 0, 0, 0]],
        Act::GiveBack => off().map(|off| [n, -n - off, off, 0, 0, -n - off, 0]).collect(),
        Act::Recover => off().map(|off| [n - off, -n, off, 0, 0, 0, n]).collect(),
        Act::Requeue => (0..=n).map(|late| [n - late, 0, 0, -n, late, -n, 0]).collect(),
        Act::Cancel => (0..=n).map(|blocked| [blocked - n, 0, n, 0, -blocked, 0, 0]).collect(),
        Act::ExpireDue => (0..=n).map(|blocked| [blocked - n, 0, n, 0, -blocked, 0, 0]).collect(),
        // A job to which somebody has given more time goes back.
        Act::ExpireHeld => vec![[0, -n, n, 0, 0, -n, 0], [n, -n, 0, 0, 0, -n, 0]],
        // What was parked has no failure of its own.
        Act::Discard | Act::PruneDead => (0..=i64::from(among(Act::Park))).map(|parked| [0, 0, 0, -n, 0, -n, parked - n]).collect(),
        // One that was cancelled after it was reopened has no attempt to lose.
        Act::Reopen | Act::ReopenPlain | Act::ReopenTwin if among(Act::Cancel) => vec![[n, 0, -n, 0, 0, -n, 0], [n, 0, -n, 0, 0, 0, 0]],
        Act::Reopen | Act::ReopenPlain | Act::ReopenTwin => vec![[n, 0, -n, 0, 0, -n, 0]],
        Act::PruneDone | Act::PruneKept => vec![[0, 0, -n, 0, 0, 0, 0]],
        _ => vec![[0; 7]],
    }
}

/// One completed and one to be tried again, or one of them; what is being cancelled is not tried again.
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

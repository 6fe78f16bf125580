//! Statements under test, each with the rows of the fixture on which it is executed.

use sqlx::PgConnection;
use tests::{
    fair_queues, lanes, limits, operate,
    protocol::{self, Lease},
    signals, timetable,
};
use uuid::Uuid;

use super::{
    fixture::{BY_KEY, Fixture, KEY, LIMIT},
    side_statement::SideStatement,
};

/// Statement of the product, executed on specific rows of the fixture. Operator statements on jobs, except `Reopen*`, are executed on
/// `Fixture::jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Enqueue,
    EnqueueRelaxed,
    InsertAll,
    MeetLanes,
    /// Enqueues a job behind other jobs with the same ordering key.
    EnqueueKeyed,
    /// Replaces the payload of the queued job with the same uniqueness key.
    EnqueueUnique,
    /// Enqueues a job into a fair queue.
    EnqueueFair,
    /// Fires the due tick of a schedule.
    FireTick,
    Claim,
    /// Claims jobs under a limit that has free permits.
    ClaimLimited,
    ClaimKeyed,
    ClaimFair,
    /// Moves all ready jobs that are not in a fair queue yet into their fair queues.
    MoveToFairLanes,
    /// Claims jobs from one lane, as for a batch handler.
    ClaimBatch,
    /// Claims jobs below the floors, in all blocks.
    ClaimLate,
    /// Claims transactional jobs, each under its own lease.
    ClaimEach,
    Settle,
    /// Settles each job of the lease with a different verdict.
    SettleBatch,
    SettlePart,
    SettleWhole,
    /// Completes jobs that leave no record.
    Forget,
    /// Turns a job into a dead letter, because the server keeps rejecting the job's verdict.
    Park,
    /// Parks a job until a signal arrives.
    ParkHeld,
    /// Restarts a job with a new payload.
    Restart,
    GiveBack,
    LockSilent,
    Recover,
    Promote,
    Unblock,
    WakeParked,
    /// Expires the queued jobs whose start deadline has passed.
    ExpireDue,
    /// Expires a leased job, as the worker that holds the job does.
    ExpireHeld,
    Requeue,
    Cancel,
    Discard,
    Reopen,
    ReopenPlain,
    /// Reopens the second job of a history row. `ReopenPlain` reopens the first job of the same row.
    ReopenTwin,
    AddDays,
    DropDay,
    PruneDone,
    PruneWorkers,
    Register,
    Beat,
    LimitBeats,
    Retire,
    Sleep,
    WakeUp,
    Reschedule,
    RunNow,
    SetPriority,
    CancelRunning,
    KeepTypes,
    PruneKept,
    /// Prunes jobs of a type whose retention is almost zero.
    PruneEarly,
    PruneDead,
    /// Prunes all finished jobs in the retained day partitions.
    PruneDays,
    /// Marks all lanes as leaving.
    LeaveLanes,
    PassLanes,
    ReplacedLanes,
    /// Scans all jobs, and deletes the leaving lanes without jobs.
    WalkLanes,
    SetLimit,
    UnsetLimit,
    /// Declares limits, as a worker does when it starts.
    DeclareLimits,
    SlowDown,
    /// Loads the jobs of the fixture's lease, which a concurrent statement may recover.
    Confirm,
    PruneRates,
    /// Executes a statement of the module `side_statement`.
    Side(SideStatement),
}

impl Statement {
    /// Executes the statement. Returns the number of affected rows or jobs.
    pub(super) async fn run(self, on: &mut PgConnection, fixture: &Fixture) -> sqlx::Result<i64> {
        let count = |some: usize| i64::try_from(some).unwrap_or(i64::MAX);
        let Fixture { jobs, lease, worker, .. } = fixture;
        Ok(match self {
            Self::Enqueue => operate::enqueue(on, "default", 100, false).await.map(|_| 1)?,
            Self::EnqueueRelaxed => operate::enqueue_relaxed(on, "default", 100).await.map(|_| 1)?,
            Self::InsertAll => {
                let lanes = operate::ensure_lanes(on, &[("default", 100), ("new", 1)]).await?;
                count(operate::insert_all(on, &[(lanes[0], false), (lanes[1], true)]).await?.len())
            }
            Self::MeetLanes => count(operate::ensure_lanes(on, &[("new", 1), ("default", 100)]).await?.len()),
            Self::EnqueueKeyed => operate::enqueue_text(on, KEY).await.map(|_| 1)?,
            Self::EnqueueUnique => operate::enqueue_with(on, None, Some(KEY)).await.map(|(_, is_new)| i64::from(is_new))?,
            Self::EnqueueFair | Self::ClaimFair | Self::MoveToFairLanes | Self::ClaimKeyed => self.run_on_fair_queues(on, *worker).await?,
            Self::FireTick => timetable::fire(on).await?,
            Self::Claim => count(protocol::claim(on, *worker, 100).await?.jobs.len()),
            Self::ClaimLimited => count(protocol::claim_limited(on, *worker, LIMIT, 100).await?),
            Self::ClaimBatch | Self::ClaimLate | Self::ClaimEach | Self::SettleBatch | Self::SettlePart => self.batch(on, fixture).await?,
            Self::Settle => 2 - count(protocol::settle(on, &lease.all("complete")).await?.len()),
            Self::SettleWhole => 1 - count(protocol::settle_leases(on, &[lease.token]).await?.len()),
            Self::Park => i64::from(protocol::park(on, lease.one(0, "fail")).await? == Some(true)),
            Self::GiveBack => operate::give_back(on, &[lease.token]).await?,
            Self::LockSilent => count(protocol::lock_silent(on).await?.len()),
            Self::Recover => {
                let tokens = protocol::lock_silent(on).await?;
                protocol::take_back(on, &tokens).await?.iter().map(|(_, jobs)| jobs).sum()
            }
            Self::Promote | Self::Unblock | Self::ExpireDue | Self::ExpireHeld => self.keep(on, lease).await?,
            Self::Requeue => count(operate::requeue(on, jobs).await?.len()),
            Self::Cancel => count(operate::cancel(on, jobs).await?.len()),
            Self::Discard => count(operate::discard(on, jobs).await?.len()),
            Self::Reopen => i64::from(operate::reopen(on, fixture.completed).await?),
            Self::ReopenPlain => i64::from(operate::reopen(on, fixture.completed_plainly[0]).await?),
            Self::ReopenTwin => i64::from(operate::reopen(on, fixture.completed_plainly[1]).await?),
            Self::AddDays => i64::from(operate::add_days(on).await?),
            Self::DropDay => i64::from(operate::drop_day(on).await?),
            Self::PruneDone => operate::prune_done(on).await?,
            Self::PruneWorkers => operate::prune_workers(on).await.map(|()| 1)?,
            Self::Register => protocol::register(on).await.map(|_| 1)?,
            Self::Beat => i64::from(protocol::beat(on, *worker).await?),
            Self::LimitBeats => operate::limit_beats(on).await?,
            Self::Retire => operate::retire(on, *worker).await.map(|()| 1)?,
            Self::Sleep => operate::sleep(on, *worker).await.map(|()| 1)?,
            Self::WakeUp => operate::wake_up(on, *worker).await.map(|()| 1)?,
            Self::Reschedule => count(operate::reschedule(on, jobs).await?.len()),
            Self::RunNow => count(operate::run_now(on, jobs).await?.len()),
            Self::SetPriority => count(operate::set_priority(on, jobs, 7).await?.len()),
            Self::CancelRunning => count(operate::cancel_running(on, jobs).await?.len()),
            Self::KeepTypes => operate::keep_types(on, 86_400.0).await?,
            Self::PruneKept => operate::prune_kept(on).await?,
            Self::PruneEarly => operate::keep_types(on, 0.000_001).await? + operate::prune_early(on).await?,
            Self::PruneDead => operate::prune_dead(on).await?,
            Self::PruneDays => operate::prune_days(on, -30.0, 5000).await?,
            Self::LeaveLanes => lanes::leave_lanes(on, -1.0, 100).await?,
            Self::PassLanes => pass_lanes(on).await?,
            Self::ReplacedLanes => lanes::replaced_lanes(on, 100).await?,
            Self::WalkLanes => lanes::walk_lanes(on).await?,
            Self::Side(statement) => statement.run(on, fixture).await?,
            _ => self.limit(on, lease).await?,
        })
    }

    /// Claims jobs from one lane, or settles jobs of a lease individually.
    async fn batch(self, on: &mut PgConnection, Fixture { lease, worker, .. }: &Fixture) -> sqlx::Result<i64> {
        let verdicts = match self {
            Self::ClaimBatch => {
                let lanes = operate::ensure_lanes(on, &[("default", 100)]).await?;
                return Ok(protocol::claim_of(on, *worker, &lanes, &[0], &[5], 5).await?.jobs.len() as i64);
            }
            Self::ClaimEach => {
                let lanes = operate::ensure_lanes(on, &[("default", 100)]).await?;
                return Ok(lanes::claim_each(on, *worker, &lanes, 5, 0).await?.len() as i64);
            }
            Self::ClaimLate => {
                let lanes = operate::ensure_lanes(on, &[("default", 100)]).await?;
                return Ok(protocol::claim_late(on, *worker, (&lanes, &[i64::MAX], &[100]), &[(0, 1 << 31)], 100).await?.jobs.len() as i64);
            }
            Self::SettleBatch => &[lease.one(0, "complete"), lease.one(1, "retry")][..],
            _ => &[lease.one(0, "release")],
        };
        Ok((verdicts.len() - protocol::settle(on, verdicts).await?.len()) as i64)
    }

    /// Executes a housekeeping statement on queued jobs, or expires a leased job.
    async fn keep(self, on: &mut PgConnection, lease: &Lease) -> sqlx::Result<i64> {
        match self {
            Self::Promote => operate::promote(on, 100).await,
            Self::Unblock => operate::unblock(on).await.map(i64::from),
            Self::ExpireDue => operate::expire_due(on).await,
            _ => Ok(i64::from(protocol::expire_held(on, &[lease.one(0, "release")]).await?.is_empty())),
        }
    }

    /// Executes a statement on fair queues, or a claim under the per-key limit.
    async fn run_on_fair_queues(self, on: &mut PgConnection, worker: Uuid) -> sqlx::Result<i64> {
        match self {
            Self::EnqueueFair => fair_queues::enqueue_fair(on, KEY).await.map(|_| 1),
            Self::MoveToFairLanes => fair_queues::move_to_fair_lanes(on, 100).await,
            Self::ClaimKeyed => Ok(i64::try_from(protocol::claim_keyed(on, worker, BY_KEY, 100).await?).unwrap_or(i64::MAX)),
            _ => Ok(i64::try_from(fair_queues::claim_fair(on, worker, 0, 100).await?.lease.jobs.len()).unwrap_or(i64::MAX)),
        }
    }

    /// Executes one of the remaining statements: on limits and rates, on parked or restarted jobs, or `Forget`.
    async fn limit(self, on: &mut PgConnection, lease: &Lease) -> sqlx::Result<i64> {
        match self {
            Self::ParkHeld => Ok(i64::from(signals::park_held(on, &[lease.one(0, "snooze")]).await?.is_empty())),
            Self::Restart => Ok(i64::from(signals::restart(on, &[lease.one(0, "snooze")]).await?.is_empty())),
            Self::WakeParked => signals::wake_parked(on).await,
            Self::SetLimit => limits::set_limit(on, LIMIT, 900).await.map(|()| 1),
            Self::UnsetLimit => limits::unset_limit(on, LIMIT).await.map(i64::from),
            Self::DeclareLimits => limits::declare_limit(on, LIMIT, 800).await.map(i64::from),
            Self::SlowDown => limits::slow_down(on, LIMIT, 60_000.0).await,
            Self::Confirm => limits::confirm(on, lease).await.map(|jobs| jobs as i64),
            Self::Forget => Ok((lease.jobs.len() - protocol::settle_forgotten(on, &lease.all("forget")).await?.len()) as i64),
            _ => limits::prune_rates(on).await,
        }
    }

    /// Returns the names of the SQL files that contain the statement, without extension.
    pub(super) fn files(self) -> &'static [&'static str] {
        match self {
            Self::Enqueue => &["enqueue"],
            Self::EnqueueRelaxed => &["enqueue_relaxed"],
            Self::InsertAll => &["insert_all"],
            Self::MeetLanes => &["ensure_lanes"],
            Self::EnqueueKeyed => &["enqueue_text"],
            Self::EnqueueUnique | Self::EnqueueFair => &["enqueue_with"],
            Self::FireTick => &["fire"],
            Self::Claim | Self::ClaimBatch | Self::ClaimEach => &["claim"],
            Self::ClaimLate => &["claim_late"],
            Self::ClaimLimited => &["claim_limited"],
            Self::ClaimKeyed => &["claim_keyed"],
            Self::ClaimFair => &["claim_fair"],
            Self::MoveToFairLanes => &["move_to_fair_lanes"],
            Self::Settle | Self::SettleBatch | Self::SettlePart => &["settle"],
            Self::SettleWhole => &["settle_leases"],
            Self::Forget => &["settle_forgotten"],
            Self::Park => &["park"],
            Self::GiveBack => &["give_back"],
            Self::LockSilent => &["expired_leases"],
            Self::Recover => &["expired_leases", "recover"],
            Self::Promote => &["promote"],
            Self::Unblock => &["unblock"],
            Self::ParkHeld => &["park_held"],
            Self::Restart => &["restart"],
            Self::WakeParked => &["wake_parked"],
            Self::ExpireDue => &["expire_due"],
            Self::ExpireHeld => &["expire_held"],
            Self::Requeue | Self::Cancel | Self::Discard | Self::Reschedule | Self::RunNow | Self::SetPriority | Self::CancelRunning => {
                &["apply_to_all"]
            }
            Self::Reopen | Self::ReopenPlain | Self::ReopenTwin => &["apply_to_one"],
            Self::AddDays => &["add_days"],
            Self::DropDay => &["drop_day"],
            Self::PruneDone => &["prune_done"],
            Self::PruneWorkers => &["prune_workers"],
            Self::Register => &["register"],
            Self::Beat => &["heartbeat"],
            Self::LimitBeats => &["limit_heartbeats"],
            Self::Retire => &["retire"],
            Self::Sleep => &["sleep"],
            Self::WakeUp => &["wake_up"],
            Self::KeepTypes => &["keep_types"],
            Self::PruneKept => &["prune_kept"],
            Self::PruneEarly => &["keep_types", "prune_early"],
            Self::PruneDead => &["prune_dead"],
            Self::PruneDays => &["prune_days"],
            Self::LeaveLanes => &["leave_lanes"],
            Self::PassLanes => &["pass_lanes"],
            Self::ReplacedLanes => &["replaced_lanes"],
            Self::WalkLanes => &["forget_lanes"],
            Self::Side(statement) => statement.files(),
            Self::SetLimit => &["set_limit"],
            Self::UnsetLimit => &["unset_limit"],
            Self::DeclareLimits => &["declare_limits"],
            Self::SlowDown => &["slow_down"],
            Self::Confirm => &["confirm"],
            Self::PruneRates => &["prune_rates"],
        }
    }

    /// Returns whether the statement deletes finished jobs or dead letters whose retention has ended.
    pub(super) fn forgets(self) -> bool {
        matches!(self, Self::PruneDone | Self::DropDay | Self::PruneKept | Self::PruneEarly | Self::PruneDead | Self::PruneDays)
    }

    /// Returns whether the statement settles the whole lease.
    pub(super) fn ends_the_lease(self) -> bool {
        matches!(self, Self::Settle | Self::SettleBatch | Self::SettleWhole | Self::Forget)
    }

    /// Returns whether the statement deletes all jobs that it settles.
    pub(super) fn leaves_no_record(self) -> bool {
        matches!(self, Self::Forget)
    }
}

async fn pass_lanes(on: &mut PgConnection) -> sqlx::Result<i64> {
    let unseen = lanes::unseen_lanes(&mut *on).await?;
    lanes::pass_lanes(on, &unseen, 100).await
}

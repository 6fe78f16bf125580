//! Lists of the statements, grouped by the process that executes them or by their purpose.

use super::{
    side_statement::{MAPS, PAUSES, REPORTS, SCHEDULES},
    statement::Statement,
};

pub(super) const PRODUCERS: &[Statement] = &[
    Statement::Enqueue,
    Statement::EnqueueRelaxed,
    Statement::InsertAll,
    Statement::MeetLanes,
    Statement::EnqueueKeyed,
    Statement::EnqueueUnique,
    Statement::EnqueueFair,
    Statement::FireTick,
];
pub(super) const WORKERS: &[Statement] = &[
    Statement::Claim,
    Statement::ClaimBatch,
    Statement::ClaimLate,
    Statement::ClaimEach,
    Statement::ClaimLimited,
    Statement::ClaimKeyed,
    Statement::ClaimFair,
    Statement::MoveToFairLanes,
    Statement::Settle,
    Statement::SettleBatch,
    Statement::SettlePart,
    Statement::SettleWhole,
    Statement::Forget,
    Statement::Park,
    Statement::ParkHeld,
    Statement::Restart,
    Statement::GiveBack,
];
pub(super) const EXPIRIES: &[Statement] = &[Statement::ExpireDue, Statement::ExpireHeld];
pub(super) const RECOVERIES: &[Statement] =
    &[Statement::LockSilent, Statement::Recover, Statement::Promote, Statement::Unblock, Statement::WakeParked];
pub(super) const OPERATORS: &[Statement] =
    &[Statement::Requeue, Statement::Cancel, Statement::Discard, Statement::Reopen, Statement::ReopenPlain, Statement::ReopenTwin];
pub(super) const HOUSEKEEPING: &[Statement] = &[Statement::AddDays, Statement::DropDay, Statement::PruneDone, Statement::PruneWorkers];
pub(super) const LANES: &[Statement] = &[Statement::LeaveLanes, Statement::PassLanes, Statement::ReplacedLanes, Statement::WalkLanes];
pub(super) const LIMITS: &[Statement] =
    &[Statement::SetLimit, Statement::UnsetLimit, Statement::DeclareLimits, Statement::SlowDown, Statement::Confirm, Statement::PruneRates];
pub(super) const HEARTBEATS: &[Statement] =
    &[Statement::Register, Statement::Beat, Statement::LimitBeats, Statement::Retire, Statement::Sleep, Statement::WakeUp];

pub(super) const CONTROLS: &[Statement] = &[Statement::Reschedule, Statement::RunNow, Statement::SetPriority, Statement::CancelRunning];
pub(super) const RETENTIONS: &[Statement] =
    &[Statement::KeepTypes, Statement::PruneKept, Statement::PruneEarly, Statement::PruneDead, Statement::PruneDays];

/// Returns all statements.
pub(super) fn all_statements() -> impl Iterator<Item = Statement> {
    [
        PRODUCERS,
        WORKERS,
        RECOVERIES,
        OPERATORS,
        HOUSEKEEPING,
        HEARTBEATS,
        CONTROLS,
        RETENTIONS,
        LANES,
        EXPIRIES,
        SCHEDULES,
        PAUSES,
        REPORTS,
        MAPS,
        LIMITS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

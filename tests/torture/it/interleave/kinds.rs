//! The statements by who runs them.

use super::{
    act::Act,
    beside::{MAPS, PAUSES, REPORTS, SCHEDULES},
};

pub(super) const PRODUCERS: &[Act] = &[
    Act::Enqueue,
    Act::EnqueueRelaxed,
    Act::InsertAll,
    Act::MeetLanes,
    Act::EnqueueKeyed,
    Act::EnqueueUnique,
    Act::EnqueueFair,
    Act::FireTick,
];
pub(super) const WORKERS: &[Act] = &[
    Act::Claim,
    Act::ClaimBatch,
    Act::ClaimLate,
    Act::ClaimEach,
    Act::ClaimLimited,
    Act::ClaimKeyed,
    Act::ClaimLines,
    Act::LineUp,
    Act::Settle,
    Act::SettleBatch,
    Act::SettlePart,
    Act::SettleWhole,
    Act::Forget,
    Act::Park,
    Act::ParkHeld,
    Act::Restart,
    Act::GiveBack,
];
pub(super) const EXPIRIES: &[Act] = &[Act::ExpireDue, Act::ExpireHeld];
pub(super) const RECOVERIES: &[Act] = &[Act::LockSilent, Act::Recover, Act::Promote, Act::Unblock, Act::WakeParked];
pub(super) const OPERATORS: &[Act] = &[Act::Requeue, Act::Cancel, Act::Discard, Act::Reopen, Act::ReopenPlain, Act::ReopenTwin];
pub(super) const HOUSEKEEPING: &[Act] = &[Act::AddDays, Act::DropDay, Act::PruneDone, Act::PruneWorkers];
pub(super) const LANES: &[Act] = &[Act::LeaveLanes, Act::PassLanes, Act::ReplacedLanes, Act::WalkLanes];
pub(super) const LIMITS: &[Act] = &[Act::SetLimit, Act::UnsetLimit, Act::DeclareLimits, Act::SlowDown, Act::Confirm, Act::PruneRates];
pub(super) const HEARTS: &[Act] = &[Act::Register, Act::Beat, Act::LimitBeats, Act::Retire, Act::Sleep, Act::WakeUp];

pub(super) const CONTROLS: &[Act] = &[Act::Reschedule, Act::RunNow, Act::SetPriority, Act::CancelRunning];
pub(super) const RETENTIONS: &[Act] = &[Act::KeepTypes, Act::PruneKept, Act::PruneEarly, Act::PruneDead, Act::PruneDays];

/// All of them.
pub(super) fn acts() -> impl Iterator<Item = Act> {
    [
        PRODUCERS,
        WORKERS,
        RECOVERIES,
        OPERATORS,
        HOUSEKEEPING,
        HEARTS,
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

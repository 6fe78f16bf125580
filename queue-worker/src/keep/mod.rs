//! Maintenance loops: recovery, promotion, expiry, schedules, ordering keys, cancellation of running jobs, and pruning.

mod expire;
mod housekeeper;
mod lock_watcher;
mod lanes;
mod promote;
mod prune;
mod publish;
mod recover;
mod tick;
mod unblock;

pub(crate) use self::{
    expire::run_expiry,
    housekeeper::{Housekeeper, run_housekeeper, run_pruning},
    promote::{promote, wake_others},
    tick::{ScheduleLoop, run_schedules},
    unblock::run_unblock,
};

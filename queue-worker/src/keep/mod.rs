//! What goes on without anybody asking: recovery, promotion, expiry, schedules, ordering keys, cancellation of running jobs, pruning.

mod expire;
mod house;
mod kept;
mod lanes;
mod promote;
mod prune;
mod publish;
mod recover;
mod tick;
mod unblock;

pub(crate) use self::{
    expire::expire_all,
    house::{House, keep_house, keep_pruned},
    promote::{promote, wake_others},
    tick::{Ticks, fire_all},
    unblock::unblock_all,
};

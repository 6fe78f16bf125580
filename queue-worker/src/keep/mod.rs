//! What goes on without anybody asking: recovery, promotion, ordering keys, cancellation of running jobs, pruning.

mod house;
mod lanes;
mod promote;
mod prune;
mod publish;
mod recover;
mod unblock;

pub(crate) use self::{
    house::{House, keep_house, keep_pruned},
    promote::{next_run, promote, wake_others},
    unblock::unblock_all,
};

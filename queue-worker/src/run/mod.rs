//! Who runs what now: the slots of each queue, and the loops of transactional jobs.

mod lookout;
mod running;
mod slots;
mod transact;

pub(crate) use self::{
    slots::{Promised, Queues, SlotContext, Slots},
    transact::{Transact, TransactContext},
};

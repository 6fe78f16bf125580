//! Who runs what now: the slots of each queue, and the loops of transactional jobs.

mod faults;
mod hands;
mod lookout;
mod passed;
mod queues;
mod running;
mod slots;
mod told;
mod transact;

pub use self::told::AttemptOutcome;
pub(crate) use self::{
    faults::is_lost,
    queues::Queues,
    slots::{SlotContext, Slots, demand::Promised},
    told::Teller,
    transact::{Transact, TransactContext},
};

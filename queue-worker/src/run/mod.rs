//! Who runs what now: the slots of each queue, and the loops of transactional jobs.

mod faults;
mod hands;
mod lookout;
mod passed;
mod queues;
mod running;
mod share;
mod slots;
mod told;
mod transact;

#[cfg(feature = "cli")]
pub(crate) use self::faults::is_lost;
pub use self::told::AttemptOutcome;
pub(crate) use self::{
    queues::Queues,
    share::{Share, Shares},
    slots::{SlotContext, Slots, demand::Promised},
    told::Teller,
    transact::{Transact, TransactContext},
};

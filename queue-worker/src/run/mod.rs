//! Who runs what now: the slots of each queue.

mod queues;
mod running;
mod share;
mod slots;
mod told;

pub use self::told::AttemptOutcome;
pub(crate) use self::{
    queues::Queues,
    share::{Share, Shares},
    slots::{
        SlotContext, Slots,
        demand::{Demand, Promised},
        line::Claimant,
    },
    told::Teller,
};

//! Running handlers: the slots of each queue.

mod outcome;
mod queues;
mod running;
mod shared_slots;
mod slots;

pub use self::outcome::AttemptOutcome;
pub(crate) use self::{
    outcome::OutcomeObserver as Teller,
    queues::Queues,
    shared_slots::{SharedSlots as Shares, StoreSlots as Share},
    slots::{
        SlotContext, Slots,
        claimer_queue::ClaimerHandle as Claimant,
        reserve::{SlotRequest as Demand, SlotReservation as Promised},
    },
};

//! Slots of each queue, and the handlers that run in the slots.

mod outcome;
mod queues;
mod running;
mod shared_slots;
mod slots;

pub use self::outcome::AttemptOutcome;
pub(crate) use self::{
    outcome::OutcomeObserver,
    queues::Queues,
    shared_slots::{SharedSlots, StoreSlots},
    slots::{
        SlotContext, Slots,
        claimer_queue::ClaimerHandle,
        reserve::{SlotRequest, SlotReservation},
    },
};

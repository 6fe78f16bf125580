//! The poller that finds lanes with ready jobs, one claimer per group of lanes, and the crash quarantine.

mod claim_timer;
mod claimer;
mod claimers;
mod context;
mod fair_queues;
mod idle;
mod in_flight;
mod key_scan;
mod late_scan;
mod pauses;
mod poll_state;
mod poller;
mod quarantine;
mod send;
mod slot_waiter;
mod slow_down;
mod traffic;

pub(crate) use self::{poller::Poller, slow_down::write_slow_downs};

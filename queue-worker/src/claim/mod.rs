//! Claims jobs. The poller finds lanes with ready jobs. Each claimer claims jobs from one group of lanes. The crash quarantine isolates
//! jobs whose process crashed during an earlier attempt.

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

//! Health checks for supervisors, which tell whether a worker is alive and whether it is ready. They run on a listener and a thread of
//! their own, so that a blocked handler or loop does not block them.

mod checks;
mod listen;

pub(crate) use self::{
    checks::Health,
    listen::{HealthState, listen},
};

//! Health checks for supervisors such as Kubernetes. The checks report whether a worker is alive and whether it is ready. The checks have
//! a separate listener and thread, so a blocked handler or loop does not block them.

mod checks;
mod listen;

pub(crate) use self::{
    checks::Health,
    listen::{HealthState, listen},
};

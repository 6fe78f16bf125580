//! What an operator sees and may do.

mod control;
mod record;

pub use self::record::{AttemptFailure, JobRecord};

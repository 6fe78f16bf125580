//! How far a worker is with the pauses. Decides nothing.

use std::time::{Duration, Instant};

/// How far this worker is with the pauses.
pub(super) struct Vigil {
    /// When to read them, told or not: a notification may be lost.
    pub(super) due: Instant,
    /// Up to which pause to say that nothing begins here, as soon as that is so.
    pub(super) owed: Option<i64>,
}

/// How soon to look again whether all go by them.
const SOON: Duration = Duration::from_millis(20);

impl Vigil {
    pub(super) fn new() -> Self {
        Self { due: Instant::now(), owed: None }
    }

    /// When the loop is to look again at the latest.
    pub(super) fn until(&self, until: Instant) -> Instant {
        self.owed.map_or(until, |_| until.min(Instant::now() + SOON))
    }
}

//! The lanes of jobs that may have ended a process.

use super::{Lanes, lane::Lane};

impl Lanes {
    /// Those in which one could begin, of some key.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = &Lane> {
        self.open().filter(|lane| lane.solo && !self.groups.is_shut_to_all(lane.id))
    }
}

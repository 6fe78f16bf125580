//! What is told of jobs that have expired: a count, and one line of the log for all that one statement ended.

use queue_core::JobId;

use super::book::Tallies;

/// So many ids are named.
const NAMED: usize = 20;

impl Tallies {
    /// Tells of these, once it is committed.
    pub(crate) fn tell_expired(&self, jobs: &[JobId]) {
        if !jobs.is_empty() {
            self.note_expired(jobs);
            let first = jobs.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(" ");
            tracing::warn!(
                jobs = jobs.len(),
                first,
                "expired: no worker began these jobs in time, and they are not run; `requeue` those that should be"
            );
        }
    }
}

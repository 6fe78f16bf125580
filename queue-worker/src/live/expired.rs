//! What is told of jobs that have expired: one line of the log for all that one statement ended.

use queue_core::JobId;

/// So many ids are named.
const NAMED: usize = 20;

/// Tells of these, once it is committed.
pub(crate) fn tell_expired(jobs: &[JobId]) {
    if !jobs.is_empty() {
        let first = jobs.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(" ");
        tracing::warn!(
            jobs = jobs.len(),
            first,
            "expired: no worker began these jobs in time, and they are not run; `requeue` those that should be"
        );
    }
}

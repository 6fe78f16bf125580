//! Counts expired jobs, and logs one line for all jobs that one statement expired.

use queue_core::JobId;

use super::buffer::MetricsBuffer;

/// Maximum number of job ids per log line.
const MAX_IDS: usize = 20;

impl MetricsBuffer {
    /// Counts and logs jobs whose expiry has been committed.
    pub(crate) fn report_expired(&self, jobs: &[JobId]) {
        if !jobs.is_empty() {
            self.record_expired(jobs);
            let first = jobs.iter().take(MAX_IDS).map(ToString::to_string).collect::<Vec<_>>().join(" ");
            tracing::warn!(
                jobs = jobs.len(),
                first,
                "expired: no worker started these jobs before their deadline, so they do not run; `requeue` those that should"
            );
        }
    }
}

//! Claimed jobs, the input of attempts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    context::{Fence, Registration},
    define::{Dependents, Ending, JobId, OrderingKey, Retain, SystemAttributes, Verdict},
    trace::{AttemptSpanInfo, TraceRelation},
};

/// Job that the caller may run under the lease `token`, or under a lock on the job's entry.
pub struct ClaimedJob {
    /// Lease token; nil for a job whose entry is locked instead of leased.
    pub token: Uuid,
    /// Job id, unique within the store.
    pub id: JobId,
    /// Lane from which the job was claimed.
    pub lane: i64,
    /// Name of the queue that contains the lane.
    pub queue: Arc<str>,
    /// Time of the claim by the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// Attempt number, starting at 1.
    pub attempt: i16,
    /// Number of attempts that were lost because their process ended.
    pub crashes: i16,
    /// Maximum number of attempts, set when the job was enqueued.
    pub max_attempts: i16,
    /// Stored name of the job type, which may be an alias.
    pub job_type: &'static str,
    /// Version of the payload, starting at 1.
    pub version: u16,
    /// Payload as JSON text; `None` if the job's row is missing. The attempt decodes the payload, so an invalid payload fails only this
    /// job.
    pub payload: Option<String>,
    /// Metadata as JSON text, parsed when the handler reads it.
    pub meta: Option<String>,
    /// System attributes as JSON text, such as the dependents, the expiry and the schedule tick.
    pub system: Option<String>,
    /// Ordering key, or `None` if the job has no key.
    pub key: Option<OrderingKey>,
    /// Deadline for the start of the handler, set only under a rate limit. A job that misses the deadline is released.
    pub start_deadline: Option<Instant>,
}

impl ClaimedJob {
    /// Returns the attempt number, starting at 1.
    pub fn number(&self) -> u32 {
        self.attempt.unsigned_abs().into()
    }

    /// Returns the job's maximum number of attempts.
    pub fn most_attempts(&self) -> u32 {
        self.max_attempts.unsigned_abs().into()
    }

    /// Returns the ending that releases a job whose attempt was not started or was interrupted. The attempt is not charged.
    pub fn released(&self) -> Ending {
        Ending::new(Verdict::Release, self.attempt, self.key).with_dependents(self.dependents())
    }

    /// Returns the ending of a job that was cancelled before its attempt started. The attempt is not charged.
    pub fn cancelled(&self) -> Ending {
        Ending::new(Verdict::Cancel, self.attempt - 1, self.key).with_dependents(self.dependents())
    }

    /// Returns the ending of a job that expired before it started.
    pub fn expired(&self) -> Ending {
        Ending::new(Verdict::Expire, self.attempt, self.key).with_dependents(self.dependents())
    }

    /// Returns the kind of dependents (a map or other jobs) that are notified when the job ends.
    pub fn dependents(&self) -> Dependents {
        SystemAttributes::parse(self.system.as_deref()).dependents()
    }

    /// Returns the time between the claim and the job's expiry. Returns `None` if the job cannot expire, because it has no expiry, or
    /// because an earlier attempt or a crash has been counted.
    pub fn may_begin_within(&self) -> Option<Duration> {
        let system = self.system.as_deref().filter(|_| self.attempt == 1 && self.crashes == 0);
        let by = SystemAttributes::parse(system).expires_at()?;
        Some((by - self.claimed_at).to_std().unwrap_or_default())
    }

    /// Returns the attributes of the attempt's span.
    pub(super) fn span_info(&self, relation: TraceRelation) -> AttemptSpanInfo<'_> {
        let Self { id, job_type, attempt, queue, meta, .. } = self;
        AttemptSpanInfo { job: id, job_type, attempt: *attempt, queue, meta: meta.as_deref(), relation }
    }

    /// Returns the fence for the writes of the attempt.
    pub(super) fn fence(&self, registration: &Registration) -> Fence {
        let Self { token, id, lane, attempt, crashes, key, .. } = *self;
        let (keep, dependents) = (registration.options().retain != Retain::None, self.dependents());
        Fence { token, id, lane, attempt, crashes, keep, dependents, key, since: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(expires_at: &str, attempt: i16, crashes: i16) -> ClaimedJob {
        let claimed_at = DateTime::UNIX_EPOCH + Duration::from_mins(1);
        let (token, id, system) = (Uuid::nil(), JobId(1), Some(format!(r#"{{"expires_at": "{expires_at}"}}"#)));
        ClaimedJob {
            token,
            id,
            lane: 1,
            queue: Arc::default(),
            attempt,
            crashes,
            max_attempts: 1,
            job_type: "x",
            version: 1,
            payload: None,
            meta: Some(r#"{"expires_at": "1970-01-01T00:00:59.999999Z", "child_of": "17"}"#.to_owned()),
            system,
            key: None,
            start_deadline: None,
            claimed_at,
        }
    }

    #[test]
    fn a_job_may_start_until_it_expires_unless_it_has_started_and_metadata_is_ignored() {
        let (soon, past) = ("1970-01-01T00:01:01.500000Z", "1970-01-01T00:00:59.999999Z");
        assert_eq!(claimed(soon, 1, 0).may_begin_within(), Some(Duration::from_millis(1500)));
        assert_eq!(claimed(past, 1, 0).may_begin_within(), Some(Duration::ZERO));
        assert_eq!((claimed(past, 2, 0).may_begin_within(), claimed(past, 1, 1).may_begin_within()), (None, None));
        assert_eq!((claimed("", 1, 0).may_begin_within(), claimed(past, 1, 0).dependents()), (None, Dependents::None));
    }
}

//! A job as its attempt is given it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    context::{Fence, Registration},
    define::{Ending, JobId, OrderingKey, Retain, System, Tells, Verdict},
    trace::{Beginning, TraceRelation},
};

/// A job that somebody has the right to run: under the lease `token`, or under the lock on its entry.
pub struct ClaimedJob {
    /// Names the lease; nil under a lock.
    pub token: Uuid,
    /// The job's id.
    pub id: JobId,
    /// The lane it was taken from.
    pub lane: i64,
    /// The queue of that.
    pub queue: Arc<str>,
    /// When it was taken, by the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// The number of the attempt that begins; the first is 1.
    pub attempt: i16,
    /// How many attempts ended with their process.
    pub crashes: i16,
    /// How many attempts the job has in all.
    pub max_attempts: i16,
    /// The name of its type, which may be an alias.
    pub job_type: &'static str,
    /// The version of its payload.
    pub version: u16,
    /// As text: it is decoded by its own attempt, so that one bad payload harms nobody else. `None` if its row is missing.
    pub payload: Option<String>,
    /// Its metadata, as text: it is read when its handler asks.
    pub meta: Option<String>,
    /// Optional attributes that the store keeps, as JSON text: who waits for its end, when it expires, which tick enqueued it.
    pub system: Option<String>,
    /// Its ordering key.
    pub key: Option<OrderingKey>,
    /// Its start is counted until then by the rate of a limit: its handler begins by then, or the job goes back.
    pub room_until: Option<Instant>,
}

impl ClaimedJob {
    /// The number of the attempt.
    pub fn number(&self) -> u32 {
        self.attempt.unsigned_abs().into()
    }

    /// How many attempts the job has in all.
    pub fn most_attempts(&self) -> u32 {
        self.max_attempts.unsigned_abs().into()
    }

    /// The ending of a job that goes back: not begun, or broken off. No attempt is charged.
    pub fn released(&self) -> Ending {
        Ending::new(Verdict::Release, self.attempt, self.key).telling(self.tells())
    }

    /// The ending of a job that was cancelled before its attempt began, which does not count.
    pub fn cancelled(&self) -> Ending {
        Ending::new(Verdict::Cancel, self.attempt - 1, self.key).telling(self.tells())
    }

    /// The ending of a job that is not begun because its time is over.
    pub fn expired(&self) -> Ending {
        Ending::new(Verdict::Expire, self.attempt, self.key).telling(self.tells())
    }

    /// Which jobs wait for its end.
    pub fn tells(&self) -> Tells {
        System::read(self.system.as_deref()).tells()
    }

    /// How long after its claim it may still begin, by the database's clock; `None` if it may at any time, or has begun before.
    pub fn may_begin_within(&self) -> Option<Duration> {
        let system = self.system.as_deref().filter(|_| self.attempt == 1 && self.crashes == 0);
        let by = System::read(system).expires_at()?;
        Some((by - self.claimed_at).to_std().unwrap_or_default())
    }

    /// What its span has of it.
    pub(super) fn beginning(&self, relation: TraceRelation) -> Beginning<'_> {
        let Self { id, job_type, attempt, queue, meta, .. } = self;
        Beginning { job: id, job_type, attempt: *attempt, queue, meta: meta.as_deref(), relation }
    }

    /// What a transaction of the handler's own writes its ending under.
    pub(super) fn fence(&self, registration: &Registration) -> Fence {
        let Self { token, id, lane, attempt, crashes, key, .. } = *self;
        let (keep, tells) = (registration.options().retain != Retain::None, self.tells());
        Fence { token, id, lane, attempt, crashes, keep, tells, key, since: Instant::now() }
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
            room_until: None,
            claimed_at,
        }
    }

    #[test]
    fn a_job_may_begin_until_it_expires_unless_it_has_begun_and_its_metadata_mean_nothing() {
        let (soon, past) = ("1970-01-01T00:01:01.500000Z", "1970-01-01T00:00:59.999999Z");
        assert_eq!(claimed(soon, 1, 0).may_begin_within(), Some(Duration::from_millis(1500)));
        assert_eq!(claimed(past, 1, 0).may_begin_within(), Some(Duration::ZERO));
        assert_eq!((claimed(past, 2, 0).may_begin_within(), claimed(past, 1, 1).may_begin_within()), (None, None));
        assert_eq!((claimed("", 1, 0).may_begin_within(), claimed(past, 1, 0).tells()), (None, Tells::Nobody));
    }
}

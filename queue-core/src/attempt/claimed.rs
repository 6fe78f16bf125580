//! A job as its attempt is given it.

use std::time::Instant;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    context::{Fence, Registration},
    define::{Ending, JobId, OrderingKey, Retain, Verdict},
};

/// A job that somebody has the right to run: under the lease `token`, or under the lock on its entry.
pub struct ClaimedJob {
    /// Names the lease; nil under a lock.
    pub token: Uuid,
    /// The job's id.
    pub id: JobId,
    /// The lane it was taken from.
    pub lane: i64,
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
    /// Its ordering key.
    pub key: Option<OrderingKey>,
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
        Ending::new(Verdict::Release, self.attempt, self.key)
    }

    /// The ending of a job that was cancelled before its attempt began, which does not count.
    pub fn cancelled(&self) -> Ending {
        Ending::new(Verdict::Cancel, self.attempt - 1, self.key)
    }

    /// What a transaction of the handler's own writes its ending under.
    pub(super) fn fence(&self, registration: &Registration) -> Fence {
        let Self { token, id, lane, attempt, crashes, key, .. } = *self;
        Fence { token, id, lane, attempt, crashes, keep: registration.options().retain != Retain::None, key, since: Instant::now() }
    }
}

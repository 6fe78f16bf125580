//! A job as its attempt is given it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    context::{Fence, Registration},
    define::{Ending, JobId, OrderingKey, Retain, Tells, Verdict},
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
    /// What waits for its end, as JSON text; for [`tells`](Self::tells).
    pub system: Option<String>,
    /// Its ordering key.
    pub key: Option<OrderingKey>,
    /// Its start is counted until then by the rate of a limit: its handler begins by then, or the job goes back.
    pub room_until: Option<Instant>,
}

/// What metadata say of a job's time.
#[derive(serde::Deserialize)]
struct Meta {
    expires_at: String,
}

/// A time in the form in which `queue.expiry_text` writes it. Any other is not ours: the database would not end the job by it.
fn as_written(text: &str) -> Option<DateTime<Utc>> {
    let form = [(10, b'T'), (19, b'.'), (26, b'Z')];
    let is_ours = text.len() == 27 && form.iter().all(|(place, letter)| text.as_bytes()[*place] == *letter);
    if is_ours { text.parse().ok() } else { None }
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
        let Some(system) = &self.system else { return Tells::Nobody };
        // A look in vain costs little; one that is left out would leave others waiting.
        if system.starts_with("{\"part_of\"") { Tells::Gather } else { Tells::Others }
    }

    /// How long after its claim it may still begin, by the database's clock; `None` if it may at any time, or has begun before.
    pub fn may_begin_within(&self) -> Option<Duration> {
        let meta = self.meta.as_deref().filter(|meta| self.attempt == 1 && self.crashes == 0 && meta.contains("\"expires_at\""))?;
        let Meta { expires_at } = serde_json::from_str(meta).ok()?;
        let by = as_written(&expires_at)?;
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

    fn claimed(meta: &str, attempt: i16, crashes: i16) -> ClaimedJob {
        let claimed_at = DateTime::UNIX_EPOCH + Duration::from_mins(1);
        let (token, id, meta) = (Uuid::nil(), JobId(1), Some(meta.to_owned()));
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
            meta,
            system: None,
            key: None,
            room_until: None,
            claimed_at,
        }
    }

    #[test]
    fn a_job_tells_whom_the_store_says_and_nobody_for_what_its_users_wrote() {
        for (system, tells) in [
            (Some(r#"{"child_of": "17"}"#), Tells::Others),
            (Some(r#"{"node_of": "nightly"}"#), Tells::Others),
            (Some(r#"{"node_of": "part_of"}"#), Tells::Others),
            (Some(r#"{"part_of": "17/pages"}"#), Tells::Gather),
            (None, Tells::Nobody),
        ] {
            for meta in [r#"{"child_of": "17"}"#, r#"{"node_of": null, "part_of": 1}"#, "{}"] {
                let job = ClaimedJob { system: system.map(str::to_owned), ..claimed(meta, 1, 0) };
                assert_eq!(job.tells(), tells, "{system:?}, {meta}");
            }
        }
    }

    #[test]
    fn a_job_may_begin_for_as_long_as_its_metadata_say_unless_it_has_begun() {
        let meta = |time: &str| format!(r#"{{"a": {{"expires_at": 1}}, "expires_at": "{time}"}}"#);
        let (soon, past) = (meta("1970-01-01T00:01:01.500000Z"), meta("1970-01-01T00:00:59.999999Z"));
        assert_eq!(claimed(&soon, 1, 0).may_begin_within(), Some(Duration::from_millis(1500)));
        assert_eq!(claimed(&past, 1, 0).may_begin_within(), Some(Duration::ZERO));
        assert_eq!((claimed(&past, 2, 0).may_begin_within(), claimed(&past, 1, 1).may_begin_within()), (None, None));
        for other in ["1970-01-01T00:00:01Z", "1970-01-01 00:00:01.000000Z", "1970-01-01T00:00:01.00000+00", "soon", ""] {
            assert_eq!(claimed(&meta(other), 1, 0).may_begin_within(), None, "{other}");
        }
        for meta in [r#"{"expires_at": null}"#, r#"{"expires_at": 7}"#, r#"{"a": {"expires_at": "1970-01-01T00:00:01.000000Z"}}"#, "{}"] {
            assert_eq!(claimed(meta, 1, 0).may_begin_within(), None, "{meta}");
        }
    }
}

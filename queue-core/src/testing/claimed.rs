//! Jobs in the form that a claim returns, for handlers that run without a database.

use chrono::Utc;
use uuid::Uuid;

use crate::{
    attempt::ClaimedJob,
    context::{Registration, RegistryError, States},
    define::{JobId, JobType},
    payload,
};

/// Builds a job in the form that a claim returns. `max_attempts` defaults to the maximum of the job type.
pub(super) fn claimed<T: JobType>(job: &T, number: i64, attempt: u32, max_attempts: Option<u32>) -> ClaimedJob {
    let options = T::OPTIONS;
    let payload = payload::encode(job.as_serde(), payload::DEFAULT_LIMIT)
        .unwrap_or_else(|error| panic!("the payload of `{}` cannot be stored: {error}", options.name));
    ClaimedJob {
        token: Uuid::nil(),
        id: JobId(number),
        lane: 0,
        queue: options.queue.into(),
        claimed_at: Utc::now(),
        attempt: narrow(attempt),
        crashes: 0,
        max_attempts: max_attempts.map_or(options.max_attempts, narrow),
        job_type: options.name,
        version: options.version,
        payload: Some(payload),
        meta: None,
        system: None,
        key: None,
        start_deadline: None,
    }
}

/// Converts an attempt number. Numbers saturate at 32767, as in a claim.
fn narrow(attempts: u32) -> i16 {
    i16::try_from(attempts).unwrap_or(i16::MAX)
}

/// Checks that a worker with the given states would run the job type.
pub(super) fn check(registration: &Registration, states: &States) -> Result<(), RegistryError> {
    let missing: Vec<(&str, &str)> = registration.missing_states(states).collect();
    if missing.is_empty() { Ok(()) } else { Err(RegistryError::missing_state(&missing)) }
}

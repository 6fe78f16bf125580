//! Names that other job systems give to options.

/// Pairs of another system's name and the option of `#[job]` that is meant.
const SYNONYMS: &[(&str, &str)] = &[
    ("attempts", "max_attempts"),
    ("concurrency", "limit"),
    ("cron_tz", "tz"),
    ("deadline", "expires"),
    ("debounce", "unique"),
    ("dedup", "unique"),
    ("delay", "backoff"),
    ("expiry", "expires"),
    ("group", "key"),
    ("group_key", "key"),
    ("idempotency_key", "unique"),
    ("interval", "every"),
    ("job_type", "name"),
    ("max_concurrency", "limit"),
    ("max_retries", "max_attempts"),
    ("ordering_key", "key"),
    ("partition_key", "key"),
    ("rate", "limit"),
    ("rate_limit", "limit"),
    ("retention", "retain"),
    ("retries", "max_attempts"),
    ("retry", "max_attempts"),
    ("retry_delay", "backoff"),
    ("schedule", "cron"),
    ("singleton_key", "unique"),
    ("throttle", "limit"),
    ("time_zone", "tz"),
    ("timezone", "tz"),
    ("ttl", "expires"),
    ("unique_for", "unique"),
    ("unique_key", "unique"),
];

/// Returns the option that is meant by another system's name.
pub(crate) fn option_for(name: &str) -> Option<&'static str> {
    SYNONYMS.iter().find(|(synonym, _)| *synonym == name).map(|(_, option)| *option)
}

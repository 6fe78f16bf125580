//! Option names from other job systems, with hints that suggest the equivalent in this library: an option of `#[job]` or an enqueue method.

use proc_macro2::Ident;

/// Option names from other job systems, each with a hint for the error message about an unknown option.
const HINTS: &[(&[&str], &str)] = &[
    (&["attempts", "max_retries", "retries"], "did you mean `max_attempts = 5`? The first attempt counts too"),
    (&["retry"], "did you mean `max_attempts = 5` or `backoff = exponential(\"1s\", max = \"10m\")`?"),
    (&["delay", "retry_delay"], "did you mean `backoff = fixed(\"10s\")`? A later start is set at the enqueue, with `.after(..)`"),
    (&["deadline"], "did you mean `timeout = \"30s\"` for an attempt, or `expires = \"10m\"` for its start?"),
    (&["expiry", "ttl"], "did you mean `expires = \"10m\"`?"),
    (&["max_runtime", "visibility_timeout"], "did you mean `timeout = \"30s\"`?"),
    (&["cron_tz", "time_zone", "timezone"], "did you mean `tz = \"Europe/Berlin\"`?"),
    (&["schedule"], "did you mean `cron = \"30 4 * * MON-FRI\"`?"),
    (&["interval"], "did you mean `every = \"15m\"`?"),
    (&["retention"], "did you mean `retain = \"30d\"`?"),
    (&["concurrency", "max_concurrency"], "did you mean `limit(concurrency = 10)`?"),
    (&["rate", "rate_limit", "throttle"], "did you mean `limit(rate = \"30/1m\")`?"),
    (&["debounce"], "did you mean `unique(fields(user), on_conflict = debounce)`?"),
    (&["dedup", "dedupe", "idempotency_key", "singleton_key", "unique_key"], "did you mean `unique(fields(user, month))`?"),
    (&["unique_for"], "did you mean `unique(fields(user), while = \"1h\")`?"),
    (&["group", "group_key", "ordering_key", "partition_key"], "did you mean `key = self.account_id`?"),
    (&["metadata", "tags"], "metadata is set at the enqueue, with `.meta(..)`"),
    (&["run_at"], "a later start is set at the enqueue, with `.at(..)`"),
];

/// Returns the hint for an option name from another job system.
pub(crate) fn hint(name: &Ident) -> Option<&'static str> {
    HINTS.iter().find(|(names, _)| names.iter().any(|known| name == known)).map(|(_, hint)| *hint)
}

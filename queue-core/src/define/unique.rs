//! Unique jobs: the uniqueness key, the time during which a job holds it, and the outcome of an enqueue whose key is held by another job.
//!
//! The SQL function `queue.enqueue_with` stores the keys and enforces uniqueness.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use serde_json::Value;

/// Time during which a job holds its uniqueness key. Keys are scoped to the queue and the job type, so other types and queues may use the
/// same key.
///
/// A job keeps the setting of the enqueue that created the job. Later enqueues with the same key do not change the setting.
///
/// ```no_run
/// use queue_core::{Job, job, options::While};
/// use std::time::Duration;
///
/// #[job(send_only, unique(fields(customer), while = queued))]
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// struct Report { customer: u32 }
///
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// Report { customer: 1 }.enqueue(pool).await?; // holds the key until a worker claims the job
/// Report { customer: 2 }.enqueue(pool).unique_while(While::For(Duration::from_secs(3600))).await?; // for one hour
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum While {
    /// The job holds the key until the job is completed, cancelled, expired or dead, so no two live jobs have the same key. Only a forced
    /// requeue by an operator ignores the key.
    #[default]
    Live,
    /// The job holds the key until a worker claims the job, so an enqueue after the claim creates another job. A retried job holds its
    /// key again, unless another job has taken the key.
    ///
    /// If an enqueue finds a waiting job that holds its key, no worker claims that job before the enqueue's transaction ends. The handler
    /// of the job therefore sees everything that the transaction has written.
    Queued,
    /// The job holds the key until its history is pruned at the end of its retention, which the type's
    /// [`retain`](crate::options::Options::retain) or the store determines. Finished work is therefore not repeated. A dead letter holds
    /// the key until the dead letter is discarded or its retention ends. A completed job of a type with `retain = "none"` leaves no
    /// history, so its key is free when the job completes.
    Kept,
    /// The job holds the key for the given duration after the enqueue, regardless of the job's state. The duration is measured by the
    /// database's clock and is at least 1 ms.
    For(Duration),
}

impl While {
    /// Returns the text form that the SQL functions accept.
    pub(crate) fn to_sql(self) -> String {
        match self {
            Self::Live => "live".to_owned(),
            Self::Queued => "queued".to_owned(),
            Self::Kept => "kept".to_owned(),
            Self::For(time) => format!("{} milliseconds", time.as_millis()),
        }
    }

    /// Returns whether the duration of [`While::For`] is accepted: at least 1 ms, and at most 1,000 years so that adding it to the
    /// database's clock cannot overflow.
    pub(crate) fn is_in_range(self) -> bool {
        const MAX_HOLD: Duration = Duration::from_hours(24 * 365 * 1000);
        !matches!(self, Self::For(time) if time < Duration::from_millis(1) || time > MAX_HOLD)
    }
}

/// Reaction to an enqueue whose key is held by another job. In each case, the returned handle refers to the job that holds the key, and
/// [`JobHandle::outcome`](crate::JobHandle::outcome) reports the conflict.
///
/// ```no_run
/// use queue_core::{Job, OnConflict};
///
/// # #[queue_core::job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Report { pages: u32 }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// Report { pages: 10 }.enqueue(pool).unique("monthly").await?;
/// Report { pages: 20 }.enqueue(pool).unique("monthly").on_conflict(OnConflict::Replace).await?; // replaces the payload of the first job
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// Leaves the existing job unchanged.
    #[default]
    Keep,
    /// Replaces the payload, its version and the expiry time of the existing job if the job is waiting. All other attributes are unchanged.
    /// A running job is left unchanged.
    Replace,
    /// Postpones the existing job to the start time of the new enqueue, if the job is waiting and the new start time is later. The
    /// job gets the expiry time of the new enqueue; its payload is unchanged. A running job is left unchanged.
    Debounce,
}

impl OnConflict {
    /// Returns the text form that the SQL functions accept.
    pub(crate) fn to_sql(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Debounce => "debounce",
        }
    }
}

/// Outcome of an enqueue.
///
/// ```no_run
/// use queue_core::{EnqueueOutcome, Job};
///
/// # #[queue_core::job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Report { customer: u32 }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let report = Report { customer: 1 }.enqueue(pool).unique("report-1").await?;
/// match report.outcome() {
///     EnqueueOutcome::New => println!("enqueued {}", report.id()),
///     _ => println!("already enqueued as {}", report.id()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnqueueOutcome {
    /// A new job was created.
    #[default]
    New,
    /// No job was created. The job that holds the key is unchanged.
    Kept,
    /// No job was created. The job that holds the key now has the payload of this enqueue.
    Replaced,
    /// No job was created. The job that holds the key was postponed to the start time of this enqueue, if the start time was later.
    Debounced,
}

impl EnqueueOutcome {
    /// Parses the outcome that the SQL functions return.
    pub(crate) fn from_sql(outcome: &str) -> Self {
        match outcome {
            "kept" => Self::Kept,
            "replaced" => Self::Replaced,
            "debounced" => Self::Debounced,
            _ => Self::New,
        }
    }
}

/// Uniqueness settings of a job type, as in `#[job(unique(..))]`.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// use queue_core::{
///     JobType, OnConflict, job,
///     options::{Unique, While},
/// };
///
/// #[job(send_only, unique(fields(user), while = "1h", on_conflict = replace))]
/// #[derive(Serialize, Deserialize)]
/// struct Digest { user: i64, text: String }
///
/// let hourly = Unique::fields().held(While::For(Duration::from_secs(3600))).on_conflict(OnConflict::Replace);
/// assert_eq!(Digest::OPTIONS.unique, Some(hourly));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    pub(crate) held: While,
    pub(crate) on_conflict: OnConflict,
}

impl Unique {
    /// Creates the default settings. In `#[job(unique(..))]`, `fields(a, b)` lists the payload fields that form the key. If the list is
    /// empty, all jobs of the type have the same key.
    #[must_use]
    pub const fn fields() -> Self {
        Self { held: While::Live, on_conflict: OnConflict::Keep }
    }

    /// Sets how long a job holds its key, as in `while = queued`. The values are `live` (the default), `queued`, `kept`, and durations
    /// such as `"1h"`. See [`While`].
    #[must_use]
    pub const fn held(mut self, held: While) -> Self {
        self.held = held;
        self
    }

    /// Sets the reaction to an enqueue whose key is held, as in `on_conflict = replace`. The values are `keep` (the default), `replace`
    /// and `debounce`. See [`OnConflict`].
    #[must_use]
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }
}

/// Key computed from a job's fields. Equal field values produce equal keys in every process and release.
///
/// Each field is written as JSON with sorted object keys and prefixed with its length, so that `("a", "bc")` and `("ab", "c")` differ.
/// Negative zero is written as zero, as in jsonb.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use queue_core::{JobType, job, options::UniqueKey};
///
/// #[job(send_only, unique(fields(user)))]
/// #[derive(Serialize, Deserialize)]
/// struct Digest { user: i64, text: String }
///
/// let digest = Digest { user: 7, text: "no news".into() };
/// assert_eq!(digest.unique_key(), UniqueKey::fields().field(&7)); // `text` is not part of the key
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    text: Option<Result<String, String>>,
}

impl UniqueKey {
    /// Creates the key of a type without the option `unique`, whose jobs have no uniqueness key.
    #[must_use]
    pub const fn none() -> Self {
        Self { text: None }
    }

    /// Creates an empty key. Add fields with [`field`](Self::field).
    #[must_use]
    pub fn fields() -> Self {
        Self { text: Some(Ok("fields".to_owned())) }
    }

    /// Adds a field to the key.
    #[must_use]
    pub fn field(mut self, field: &(impl Serialize + ?Sized)) -> Self {
        if let Some(Ok(text)) = &mut self.text {
            match serde_json::to_value(field) {
                Ok(value) => {
                    let mut json = String::new();
                    write_sorted(&value, &mut json);
                    // Writing to a `String` does not fail.
                    let _ = write!(text, "/{}:{json}", json.len());
                }
                Err(error) => self.text = Some(Err(error.to_string())),
            }
        }
        self
    }

    /// Returns the key, or the error of a field's `Serialize` implementation. Returns `None` for a key from [`Self::none`].
    pub(crate) fn into_text(self) -> Option<Result<String, String>> {
        self.text
    }
}

/// Writes `value` as JSON with sorted object keys, so that the key does not depend on the iteration order of a map. The recursion depth
/// is bounded, because the payload that contains the value has already been encoded, and the encoder rejects deep nesting.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in entries {
                write_sorted(&Value::String(key.clone()), out);
                out.push(':');
                write_sorted(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Number(number) if number.is_f64() && number.as_f64() == Some(0.0) => out.push_str("0.0"),
        // Writing a scalar to a `String` does not fail.
        scalar => drop(write!(out, "{scalar}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn key(key: UniqueKey) -> String {
        key.into_text().unwrap().unwrap()
    }

    #[test]
    fn f12_a_key_is_of_its_fields_and_nothing_else() {
        let pair = |a: &str, b: &str| key(UniqueKey::fields().field(a).field(b));
        assert_eq!(pair("a", "bc"), "fields/3:\"a\"/4:\"bc\"");
        assert_ne!(pair("a", "bc"), pair("ab", "c"));
        assert_ne!(pair("a\"/3:\"b", ""), pair("a", "b"));
        assert_ne!(key(UniqueKey::fields()), key(UniqueKey::fields().field("")));
        assert_ne!(key(UniqueKey::fields().field(&1)), key(UniqueKey::fields().field("1")));
        assert_ne!(key(UniqueKey::fields().field(&u64::MAX)), key(UniqueKey::fields().field(&(u64::MAX - 1))));
        assert_eq!(UniqueKey::none().field("a").into_text(), None);
    }

    #[test]
    fn f12_a_map_makes_the_same_key_in_any_order_and_zero_has_no_sign() {
        let map = || (0..50).map(|n| (format!("k{n}"), vec![HashMap::from([(n, -0.0)])])).collect::<HashMap<_, _>>();
        let (one, other) = (map(), map());
        assert_eq!(key(UniqueKey::fields().field(&one)), key(UniqueKey::fields().field(&other)));
        assert_eq!(key(UniqueKey::fields().field(&-0.0)), key(UniqueKey::fields().field(&0.0)));
        assert_eq!(key(UniqueKey::fields().field(&[1.5, -0.0])), "fields/10:[1.5,0.0,]");
    }

    #[test]
    fn a_field_that_cannot_be_written_makes_no_key() {
        let pairs = HashMap::from([((1, 2), 3)]);
        assert!(UniqueKey::fields().field(&pairs).field("a").into_text().unwrap().is_err());
    }

    #[test]
    fn a_time_is_at_least_a_millisecond() {
        assert!(While::For(Duration::from_millis(1)).is_in_range() && While::Live.is_in_range());
        assert!(!While::For(Duration::from_micros(999)).is_in_range() && !While::For(Duration::MAX).is_in_range());
        assert_eq!(While::For(Duration::from_hours(1)).to_sql(), "3600000 milliseconds");
    }
}

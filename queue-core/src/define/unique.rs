//! Unique jobs: the key of a job, how long the job holds it, and what happens to an enqueue whose key is held.
//!
//! Pure: the SQL function `queue.enqueue_with` stores the keys and implements the protocol.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use serde_json::Value;

/// How long a job holds its uniqueness key. Keys are scoped to the queue and the job type: other types and queues may use the same key.
///
/// The setting at the enqueue of the job that holds the key counts, not that of later enqueues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum While {
    /// Until the job is completed, cancelled, expired or dead: no two live jobs have the same key. A requeue by an operator does not check
    /// the key.
    #[default]
    Live,
    /// While the job waits and no worker has claimed it, so that changes after its start lead to another job. A job that is retried holds
    /// its key again, unless another job has taken it.
    ///
    /// A waiting job that an enqueue finds is not claimed before the transaction of that enqueue ends, so it sees what the transaction has
    /// written.
    Queued,
    /// Until the job's history is pruned, after its type's [`retain`](crate::Options::retain) or the retention of the store. So finished
    /// work is not repeated. A dead letter holds the key until it is discarded or its own retention ends. A type with `retain = "none"`
    /// leaves no history once a job has completed.
    Kept,
    /// For this duration from the enqueue, regardless of the job's state. By the database's clock; at least 1 ms.
    For(Duration),
}

impl While {
    /// Returns the value for the SQL functions.
    pub(crate) fn to_sql(self) -> String {
        match self {
            Self::Live => "live".to_owned(),
            Self::Queued => "queued".to_owned(),
            Self::Kept => "kept".to_owned(),
            Self::For(time) => format!("{} milliseconds", time.as_millis()),
        }
    }

    /// Whether the database can add the duration to its clock.
    pub(crate) fn is_in_range(self) -> bool {
        const MAX_HOLD: Duration = Duration::from_hours(24 * 365 * 1000);
        !matches!(self, Self::For(time) if time < Duration::from_millis(1) || time > MAX_HOLD)
    }
}

/// What happens to an enqueue whose key is held. In each case the handle refers to the job that holds the key, and reports that
/// ([`JobHandle::outcome`](crate::JobHandle::outcome)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// Leaves the existing job unchanged.
    #[default]
    Keep,
    /// Replaces the payload of the existing job if that is waiting; nothing else changes. A running job is left unchanged.
    Replace,
    /// Postpones the existing job to the time of this enqueue, if it is waiting and that time is later; its payload is unchanged. A running
    /// job is left unchanged.
    Debounce,
}

impl OnConflict {
    /// Returns the value for the SQL functions.
    pub(crate) fn to_sql(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Debounce => "debounce",
        }
    }
}

/// Outcome of an enqueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new job was created.
    #[default]
    New,
    /// No new job: the job that holds the key is unchanged.
    Kept,
    /// No new job: the job that holds the key now has this payload.
    Replaced,
    /// No new job: the job that holds the key was postponed to the time of this enqueue, if that is later.
    Debounced,
}

impl Enqueued {
    /// Parses the value that the SQL functions return.
    pub(crate) fn from_sql(outcome: &str) -> Self {
        match outcome {
            "kept" => Self::Kept,
            "replaced" => Self::Replaced,
            "debounced" => Self::Debounced,
            _ => Self::New,
        }
    }
}

/// Settings of `#[job(unique(..))]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    pub(crate) held: While,
    pub(crate) on_conflict: OnConflict,
}

impl Unique {
    /// `fields(a, b)`: payload fields that form the key. Without any, all jobs of the type have the same key.
    #[must_use]
    pub const fn fields() -> Self {
        Self { held: While::Live, on_conflict: OnConflict::Keep }
    }

    /// `while = live`, `queued`, `kept`, or a duration such as `"1h"`: see [`While`]. Default: `live`.
    #[must_use]
    pub const fn held(mut self, held: While) -> Self {
        self.held = held;
        self
    }

    /// `on_conflict = keep`, `replace` or `debounce`: see [`OnConflict`]. Default: `keep`.
    #[must_use]
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }
}

/// Key of a job's fields: equal for equal fields, in every process and release.
///
/// Each field is written as JSON with sorted object keys, prefixed with its length, so that `("a", "bc")` and `("ab", "c")` differ. Zero
/// has no sign, as in jsonb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    text: Option<Result<String, String>>,
}

impl UniqueKey {
    /// Creates the key of a type that names no fields.
    #[must_use]
    pub const fn none() -> Self {
        Self { text: None }
    }

    /// Creates the key of a type that names fields, before the first of them.
    #[must_use]
    pub fn fields() -> Self {
        Self { text: Some(Ok("fields".to_owned())) }
    }

    /// Adds the next field.
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

    /// Returns the key, or the error of a field's `Serialize`; `None` if the type names no fields.
    pub(crate) fn into_text(self) -> Option<Result<String, String>> {
        self.text
    }
}

/// Writes JSON independently of the order in which a map yields its keys. The depth is bounded, because the payload around the value was
/// encoded before.
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
        // Neither operation fails: a scalar is written to a `String`.
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

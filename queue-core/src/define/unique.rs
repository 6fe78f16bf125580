//! Unique jobs: which key a job has, how long the key is held, and what becomes of an enqueue that finds it held.
//!
//! Pure: the keys themselves are kept by the SQL function `queue.enqueue_with`, where the protocol is.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use serde_json::Value;

/// How long a job holds its uniqueness key. A key is held by the queue and the job type: others may use the same one.
///
/// What was said when the job was enqueued counts, not what the next one with its key says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum While {
    /// Until it is completed, cancelled, expired or dead: no two jobs with the key are alive. An operator's requeue does not ask for the key.
    #[default]
    Live,
    /// While it waits and no worker has claimed it, so that what happens after its start gives cause for another. A job that comes back for a
    /// retry holds its key again, unless another has taken it.
    ///
    /// A job that is found waiting is not claimed before the transaction that found it ends: it sees what that has written.
    Queued,
    /// As long as it is known at all: until its history goes, as its type's [`retain`](crate::Options::retain) or the store's retention says. So
    /// what has been done is not done again. A dead letter is known until it is discarded or its own retention is over; of a type with
    /// `retain = "none"` nothing is known once it has completed.
    Kept,
    /// For so long from its enqueue, whatever becomes of it. By the database's clock; at least 1 ms.
    For(Duration),
}

impl While {
    /// As the SQL functions take it.
    pub(crate) fn to_sql(self) -> String {
        match self {
            Self::Live => "live".to_owned(),
            Self::Queued => "queued".to_owned(),
            Self::Kept => "kept".to_owned(),
            Self::For(time) => format!("{} milliseconds", time.as_millis()),
        }
    }

    /// Whether it is a time that the database can add to its clock.
    pub(crate) fn fits(self) -> bool {
        const LONGEST: Duration = Duration::from_hours(24 * 365 * 1000);
        !matches!(self, Self::For(time) if time < Duration::from_millis(1) || time > LONGEST)
    }
}

/// What becomes of an enqueue whose key is held. In each case the handle is that of the job that holds it, and says so
/// ([`JobHandle::outcome`](crate::JobHandle::outcome)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// The job stays as it is.
    #[default]
    Keep,
    /// The job gets this payload, if it waits; nothing else of it changes. One that runs is kept as it is.
    Replace,
    /// The job runs when this one would have, if it waits and that is later; its payload stays. One that runs is kept as it is.
    Debounce,
}

impl OnConflict {
    /// As the SQL functions take it.
    pub(crate) fn to_sql(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Debounce => "debounce",
        }
    }
}

/// What came of an enqueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new job.
    #[default]
    New,
    /// None: the job that holds the key stays as it is.
    Kept,
    /// None: the job that holds the key has this payload now.
    Replaced,
    /// None: the job that holds the key runs when this one would have, if that is later.
    Debounced,
}

impl Enqueued {
    /// As the SQL functions say it.
    pub(crate) fn from_sql(outcome: &str) -> Self {
        match outcome {
            "kept" => Self::Kept,
            "replaced" => Self::Replaced,
            "debounced" => Self::Debounced,
            _ => Self::New,
        }
    }
}

/// What `#[job(unique(..))]` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    pub(crate) held: While,
    pub(crate) on_conflict: OnConflict,
}

impl Unique {
    /// `fields(a, b)`: the payload's fields that make the key. Without any, all jobs of the type have the same one.
    #[must_use]
    pub const fn fields() -> Self {
        Self { held: While::Live, on_conflict: OnConflict::Keep }
    }

    /// `while = live`, `queued`, `kept`, or a duration such as `"1h"`: see [`While`]. Default: live.
    #[must_use]
    pub const fn held(mut self, held: While) -> Self {
        self.held = held;
        self
    }

    /// `on_conflict = keep`, `replace` or `debounce`: see [`OnConflict`]. Default: keep.
    #[must_use]
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }
}

/// The key that a job's fields make: equal for equal fields, in every process and release.
///
/// Each field is written as JSON with the keys of its objects in order, after its length, so that `("a", "bc")` and `("ab", "c")` differ. Zero
/// has no sign, as in jsonb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    text: Option<Result<String, String>>,
}

impl UniqueKey {
    /// That of a type that names no fields.
    #[must_use]
    pub const fn none() -> Self {
        Self { text: None }
    }

    /// The key of a job whose type names fields, before the first of them.
    #[must_use]
    pub fn fields() -> Self {
        Self { text: Some(Ok("fields".to_owned())) }
    }

    /// With the next field.
    #[must_use]
    pub fn field(mut self, field: &(impl Serialize + ?Sized)) -> Self {
        if let Some(Ok(text)) = &mut self.text {
            match serde_json::to_value(field) {
                Ok(value) => {
                    let mut json = String::new();
                    write_sorted(&value, &mut json);
                    // Writing to a text does not fail.
                    let _ = write!(text, "/{}:{json}", json.len());
                }
                Err(error) => self.text = Some(Err(error.to_string())),
            }
        }
        self
    }

    /// The key, or what a field's `Serialize` said; `None` if the type names no fields.
    pub(crate) fn into_text(self) -> Option<Result<String, String>> {
        self.text
    }
}

/// JSON that does not depend on the order in which a map gives its keys. Its depth is bounded: the payload around it was encoded before.
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
        // Neither fails: the text of a scalar is written to a text.
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
        assert!(While::For(Duration::from_millis(1)).fits() && While::Live.fits());
        assert!(!While::For(Duration::from_micros(999)).fits() && !While::For(Duration::MAX).fits());
        assert_eq!(While::For(Duration::from_hours(1)).to_sql(), "3600000 milliseconds");
    }
}

//! The column `job.system`: optional attributes of a job that the store keeps.

use chrono::{DateTime, Utc};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::ending::{OrderingKey, Tells};

/// The tick of a schedule that enqueued a job; see [`Context::tick`](crate::Context::tick).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// The schedule's name.
    pub schedule: String,
    /// The time for which the job runs; of one that was run by hand, when that was.
    pub at: DateTime<Utc>,
}

/// Parsed `job.system`. An invalid value does not prevent reading the others.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct System<'a> {
    child_of: Option<IgnoredAny>,
    node_of: Option<IgnoredAny>,
    part_of: Option<IgnoredAny>,
    skips: Option<IgnoredAny>,
    #[serde(borrow)]
    expires_at: Option<&'a RawValue>,
    #[serde(borrow)]
    schedule: Option<&'a RawValue>,
    #[serde(borrow)]
    tick: Option<&'a RawValue>,
}

impl<'a> System<'a> {
    /// Reads the column's JSON text.
    pub(crate) fn read(text: Option<&'a str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Which jobs wait for its end.
    pub(crate) fn tells(&self) -> Tells {
        // A look in vain costs little; one that is left out would leave others waiting.
        match (self.child_of.or(self.node_of), self.part_of) {
            (Some(_), _) => Tells::Others,
            (None, Some(_)) => Tells::Gather,
            (None, None) => Tells::Nobody,
        }
    }

    /// When it expires. Only the form that `queue.expiry_text` writes counts: the database ends no job by another.
    pub(crate) fn expires_at(&self) -> Option<DateTime<Utc>> {
        let text: &str = serde_json::from_str(self.expires_at?.get()).ok()?;
        let form = [(10, b'T'), (19, b'.'), (26, b'Z')];
        let is_ours = text.len() == 27 && form.iter().all(|(place, letter)| text.as_bytes()[*place] == *letter);
        if is_ours { text.parse().ok() } else { None }
    }

    /// The tick that enqueued it.
    pub(crate) fn tick(&self) -> Option<Tick> {
        let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
        Some(Tick { schedule: text(self.schedule?)?, at: text(self.tick?)?.parse().ok()? })
    }
}

impl OrderingKey {
    /// The key of a job with these columns `key` and `system`.
    pub fn of(key: Option<i64>, system: Option<&str>) -> Option<Self> {
        Some(Self { id: key?, skips_dead: System::read(system).skips.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_keeps_is_read_whatever_else_is_there() {
        for (text, tells, expires, skips) in [
            (r#"{"child_of": "17"}"#, Tells::Others, false, false),
            (r#"{"node_of": "nightly", "expires_at": "1970-01-01T00:00:01.000000Z"}"#, Tells::Others, true, false),
            (r#"{"node_of": "part_of"}"#, Tells::Others, false, false),
            (r#"{"part_of": "17/pages", "skips": true}"#, Tells::Gather, false, true),
            (r#"{"expires_at": "1970-01-01T00:00:01.000000Z", "unique": "skips", "skips": true}"#, Tells::Nobody, true, true),
            (r#"{"tick": {"skips": true}, "expires_at": 7}"#, Tells::Nobody, false, false),
            (r#"{"expires_at": "1970-01-01T00:00:01Z"}"#, Tells::Nobody, false, false),
            (r#"{"expires_at": "1970-01-01 00:00:01.000000Z"}"#, Tells::Nobody, false, false),
            (r#"{"expires_at": "1970-01-01T00:00:01.00000+00"}"#, Tells::Nobody, false, false),
            (r#"{"expires_at": null, "part_of": 1}"#, Tells::Gather, false, false),
            ("{}", Tells::Nobody, false, false),
            ("7", Tells::Nobody, false, false),
        ] {
            let system = System::read(Some(text));
            let key = OrderingKey::of(Some(7), Some(text)).unwrap();
            assert_eq!((system.tells(), system.expires_at().is_some(), key.skips_dead), (tells, expires, skips), "{text}");
        }
        let of_tick = System::read(Some(r#"{"schedule": "nightly", "tick": "1970-01-01T00:00:01.000Z"}"#)).tick();
        let at = DateTime::UNIX_EPOCH + chrono::Duration::seconds(1);
        assert_eq!(of_tick, Some(Tick { schedule: "nightly".to_owned(), at }));
        assert_eq!(System::read(Some(r#"{"schedule": "nightly", "tick": 7}"#)).tick(), None);
        assert_eq!((OrderingKey::of(None, Some(r#"{"skips": true}"#)), System::read(None).tells()), (None, Tells::Nobody));
    }
}

//! Job attributes that the store sets in the column `job.system`.

use chrono::{DateTime, Utc};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::ending::{Dependents, OrderingKey};

/// Schedule tick for which a job was enqueued; see [`Context::tick`](crate::Context::tick).
///
/// ```
/// # use queue_core::Context;
/// # fn example(cx: &Context) {
/// if let Some(tick) = cx.tick() {
///     println!("tick of schedule {}, planned for {}", tick.schedule, tick.at);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// Name of the tick's schedule.
    pub schedule: String,
    /// Planned time of the tick, or the time of a manual run.
    pub at: DateTime<Utc>,
}

/// Parsed value of the column `job.system`. An invalid attribute does not affect the other attributes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SystemAttributes<'a> {
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

impl<'a> SystemAttributes<'a> {
    /// Parses the column's JSON text. A missing or invalid text yields no attributes.
    pub(crate) fn parse(text: Option<&'a str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns which jobs are notified when the job ends.
    pub(crate) fn dependents(&self) -> Dependents {
        // An attribute with an invalid value also counts. An unnecessary notification is cheap, but a missed notification would leave a
        // job waiting.
        match (self.child_of.or(self.node_of), self.part_of) {
            (Some(_), _) => Dependents::Jobs,
            (None, Some(_)) => Dependents::Gather,
            (None, None) => Dependents::None,
        }
    }

    /// Returns the expiry time. Returns `None` if the attribute is missing or not in the format of `queue.expiry_text`. The database also
    /// ignores a value in another format.
    pub(crate) fn expires_at(&self) -> Option<DateTime<Utc>> {
        let text: &str = serde_json::from_str(self.expires_at?.get()).ok()?;
        let form = [(10, b'T'), (19, b'.'), (26, b'Z')];
        let is_ours = text.len() == 27 && form.iter().all(|(place, letter)| text.as_bytes()[*place] == *letter);
        if is_ours { text.parse().ok() } else { None }
    }

    /// Returns the schedule tick for which the job was enqueued. Returns `None` if no schedule enqueued the job, or if an attribute of the
    /// tick is invalid.
    pub(crate) fn tick(&self) -> Option<Tick> {
        let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
        Some(Tick { schedule: text(self.schedule?)?, at: text(self.tick?)?.parse().ok()? })
    }
}

impl OrderingKey {
    /// Returns the ordering key of a job from the columns `key` and `system`.
    pub fn of(key: Option<i64>, system: Option<&str>) -> Option<Self> {
        Some(Self { id: key?, skips_dead: SystemAttributes::parse(system).skips.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_beside_invalid_ones() {
        for (text, dependents, expires, skips) in [
            (r#"{"child_of": "17"}"#, Dependents::Jobs, false, false),
            (r#"{"node_of": "nightly", "expires_at": "1970-01-01T00:00:01.000000Z"}"#, Dependents::Jobs, true, false),
            (r#"{"node_of": "part_of"}"#, Dependents::Jobs, false, false),
            (r#"{"part_of": "17/pages", "skips": true}"#, Dependents::Gather, false, true),
            (r#"{"expires_at": "1970-01-01T00:00:01.000000Z", "unique": "skips", "skips": true}"#, Dependents::None, true, true),
            (r#"{"tick": {"skips": true}, "expires_at": 7}"#, Dependents::None, false, false),
            (r#"{"expires_at": "1970-01-01T00:00:01Z"}"#, Dependents::None, false, false),
            (r#"{"expires_at": "1970-01-01 00:00:01.000000Z"}"#, Dependents::None, false, false),
            (r#"{"expires_at": "1970-01-01T00:00:01.00000+00"}"#, Dependents::None, false, false),
            (r#"{"expires_at": null, "part_of": 1}"#, Dependents::Gather, false, false),
            ("{}", Dependents::None, false, false),
            ("7", Dependents::None, false, false),
        ] {
            let system = SystemAttributes::parse(Some(text));
            let key = OrderingKey::of(Some(7), Some(text)).unwrap();
            assert_eq!((system.dependents(), system.expires_at().is_some(), key.skips_dead), (dependents, expires, skips), "{text}");
        }
        let of_tick = SystemAttributes::parse(Some(r#"{"schedule": "nightly", "tick": "1970-01-01T00:00:01.000Z"}"#)).tick();
        let at = DateTime::UNIX_EPOCH + chrono::Duration::seconds(1);
        assert_eq!(of_tick, Some(Tick { schedule: "nightly".to_owned(), at }));
        assert_eq!(SystemAttributes::parse(Some(r#"{"schedule": "nightly", "tick": 7}"#)).tick(), None);
        assert_eq!(
            (OrderingKey::of(None, Some(r#"{"skips": true}"#)), SystemAttributes::parse(None).dependents()),
            (None, Dependents::None)
        );
    }
}

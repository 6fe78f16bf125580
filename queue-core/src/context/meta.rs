//! Metadata of a job, and the schedule tick that enqueued the job.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value, value::RawValue};

use crate::define::{SystemAttributes, Tick};

/// Metadata and system attributes of a job as JSON text. The metadata is parsed on first use.
#[derive(Default)]
pub(super) struct Meta {
    text: Option<String>,
    system: Option<String>,
    entries: OnceLock<Map<String, Value>>,
}

impl Meta {
    pub(super) fn new(text: Option<String>, system: Option<String>) -> Self {
        Self { text, system, entries: OnceLock::new() }
    }

    pub(super) fn entries(&self) -> &Map<String, Value> {
        self.entries.get_or_init(|| read_meta(self.text.as_deref()))
    }

    pub(super) fn tick(&self) -> Option<Tick> {
        SystemAttributes::parse(self.system.as_deref()).tick()
    }
}

/// Parses metadata from JSON text. Stored metadata is always an object. A number too large for `f64`, which only SQL can write, becomes a
/// string.
pub(crate) fn read_meta(text: Option<&str>) -> Map<String, Value> {
    let entries: BTreeMap<String, Box<RawValue>> = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::String(raw.get().to_owned()));
    entries.into_iter().map(|(key, raw)| (key, value(&raw))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_metadata_is_empty_and_a_number_too_large_becomes_text() {
        assert_eq!(read_meta(None), Map::new());
        assert_eq!(read_meta(Some("{}")), Map::new());
        let huge = "1".repeat(400);
        let read = read_meta(Some(&format!(r#"{{"a": 1, "huge": {huge}, "list": [1.5, null]}}"#)));
        assert_eq!(Value::Object(read), serde_json::json!({"a": 1, "huge": huge, "list": [1.5, null]}));
    }
}

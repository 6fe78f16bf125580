//! Redaction of payloads, outputs and logs. Performs no I/O.

use queue_core::{
    operate::{AttemptLog, JobRecord},
    registry::Registry,
};
use serde_json::{Value, value::RawValue};

use crate::dashboard::options::Options;

/// Text that replaces redacted values.
const HIDDEN: &str = "(hidden)";

/// Redacts the payload and the output of a job according to `options`.
pub(super) fn redact(options: &Options, job: &mut JobRecord) {
    let keys = hidden(options, &job.job_type);
    if keys.is_empty() {
        return;
    }
    for json in [&mut job.payload, &mut job.output].into_iter().flatten() {
        // A document nested too deeply for the parser is redacted completely.
        let mut value = serde_json::from_str(json.get()).unwrap_or_else(|_| Value::from(HIDDEN));
        hide(&mut value, &keys);
        *json = RawValue::from_string(value.to_string()).unwrap_or_default();
    }
}

/// Redacts the logs if payloads are hidden or if the job type has redacted keys, because a handler may have logged confidential values.
pub(super) fn redact_logs(options: &Options, job_type: &str, logs: &mut [AttemptLog]) {
    if options.hide_payloads || !hidden(options, job_type).is_empty() {
        for log in logs {
            HIDDEN.clone_into(&mut log.text);
        }
    }
}

/// Returns the payload and output keys to redact for a job type. Job type names in `options` may be aliases.
fn hidden<'o>(options: &'o Options, job_type: &str) -> Vec<&'o str> {
    let registry = Registry::linked().unwrap_or_default();
    let name = |stored: &str| registry.get(stored).map_or_else(|| stored.to_owned(), |known| known.options().name.to_owned());
    let own = name(job_type);
    options.redacted.iter().filter(|(of, _)| name(of) == own).flat_map(|(_, keys)| keys.iter().map(String::as_str)).collect()
}

fn hide(value: &mut Value, keys: &[&str]) {
    if keys.contains(&"*") && !matches!(value, Value::Object(_)) {
        *value = Value::from(HIDDEN);
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if keys.contains(&"*") || keys.contains(&key.as_str()) { *value = Value::from(HIDDEN) } else { hide(value, keys) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, keys)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hiding(mut value: Value, keys: &[&str]) -> String {
        hide(&mut value, keys);
        value.to_string()
    }

    #[test]
    fn values_of_redacted_keys_are_hidden_at_any_depth() {
        let mail = serde_json::json!({ "to": "ada", "parts": [{ "body": { "html": 1 }, "size": 2 }] });
        assert_eq!(hiding(mail.clone(), &["body", "to"]), r#"{"parts":[{"body":"(hidden)","size":2}],"to":"(hidden)"}"#);
        assert_eq!(hiding(mail, &["*"]), r#"{"parts":"(hidden)","to":"(hidden)"}"#);
        assert_eq!([hiding("x".into(), &["*"]), hiding("x".into(), &["a"])], [r#""(hidden)""#, r#""x""#]);
    }
}

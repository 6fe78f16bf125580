//! Decoding of payloads into their Rust types. Errors contain the path and the kind of a mismatch, but no values.
//!
//! Text that is not JSON is a terminal failure, and so is an old payload that cannot be upgraded. Any other payload that does not fit the
//! type may come from a release newer or older than the running one. The job is therefore retried until its attempts are used up, with a
//! backoff long enough for a deploy.

use std::{any::type_name, cmp::Ordering, time::Duration};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, error::Category};
use serde_path_to_error::{Path, Segment};

use super::Context;
use crate::{
    define::{Backoff, Failure, JobType, OldPayload},
    payload::path_step,
    seal::{OpenError, is_sealed, open},
};

/// Minimum backoff for payloads that do not fit the type. With three attempts, the two delays add up to half a minute.
const DEPLOY_BACKOFF: Backoff = Backoff::exponential(Duration::from_secs(10)).max(Duration::from_mins(5));

/// Decodes the payload of the attempt. If the type has the option `seal`, a sealed payload is unsealed first.
pub(super) fn decode_payload<T: JobType>(payload: &str, cx: &Context) -> Result<T, Failure> {
    if T::OPTIONS.seal.is_none() {
        return decode_clear(payload, cx.version(), cx.attempt());
    }
    match cx.with_seal_scope(|scope| open(payload, scope)) {
        // The payload is not encrypted: the job was enqueued from SQL, or before its type had the option `seal`.
        Ok(None) => decode_clear(payload, cx.version(), cx.attempt()),
        Ok(Some(clear)) => decode_clear(&clear, cx.version(), cx.attempt()),
        Err(OpenError::Unavailable(why)) => {
            let why = format!("the payload cannot be opened: {why}, or requeue this job after that");
            Err(Failure::retry_in(retry_delay(cx.attempt(), &T::OPTIONS.backoff), why))
        }
        Err(OpenError::Invalid(why)) => {
            Err(Failure::terminal(format!("the sealed payload cannot be opened: {why}; fix that, then requeue this job")))
        }
    }
}

/// Decodes an unsealed payload of the given version.
fn decode_clear<T: JobType>(payload: &str, version: u16, attempt: u32) -> Result<T, Failure> {
    let (newest, backoff) = (T::OPTIONS.version, &T::OPTIONS.backoff);
    match version.cmp(&newest) {
        Ordering::Equal => decode(payload, attempt, backoff).map(T::from_serde),
        Ordering::Less => T::upgrade(OldPayload::new(version, payload)),
        Ordering::Greater => {
            let why = format!(
                "the payload has version {version}, but this release supports `{}` up to version {newest}; deploy a newer release, or requeue this \
                 job afterwards",
                T::OPTIONS.name
            );
            Err(Failure::retry_in(retry_delay(attempt, backoff), why))
        }
    }
}

/// Return type of an upgrade function: the job type, or a `Result` with a static error text. A static text cannot contain payload data.
#[diagnostic::on_unimplemented(
    message = "an upgrade returns `{T}` or `Result<{T}, &'static str>`, not `{Self}`",
    label = "not what the payload becomes"
)]
pub trait Upgraded<T> {
    /// Converts the return value of an upgrade function into a `Result`.
    fn into_result(self) -> Result<T, &'static str>;
}

impl<T> Upgraded<T> for T {
    fn into_result(self) -> Result<T, &'static str> {
        Ok(self)
    }
}

impl<T> Upgraded<T> for Result<T, &'static str> {
    fn into_result(self) -> Result<T, &'static str> {
        self
    }
}

/// Decodes the payload of an older version and upgrades it with `by`. The expansion of `#[job]` calls this function.
pub fn upgrade<T: JobType, Old: DeserializeOwned, R: Upgraded<T>>(old: OldPayload<'_>, by: impl FnOnce(Old) -> R) -> Result<T, Failure> {
    let (version, newest) = (old.version(), T::OPTIONS.version);
    let read: Old = serde_json::from_str(old.text()).map_err(|error| {
        if let Some(why) = describe_syntax_error(old.text(), &error) {
            return Failure::terminal(format!("the payload of version {version} is not valid JSON: {why}"));
        }
        let (old_type, fault) = (type_name::<Old>(), describe_mismatch::<Old>(old.text(), &error));
        Failure::terminal(format!(
            "the payload of version {version} does not fit `{old_type}`, the type it is upgraded from: {fault}; deploy a release that reads it, then requeue this job"
        ))
    })?;
    by(read).into_result().map_err(|why| {
        Failure::terminal(format!(
            "the payload of version {version} cannot be upgraded to version {newest}: {why}; deploy a release that can, then requeue this job"
        ))
    })
}

/// Text in the error of a job whose payload can never be decoded. A requeue would fail again, so commands and log messages do not suggest
/// it for such a job.
pub const WOULD_FAIL_AGAIN: &str = "a requeue would fail again";

/// Decodes the payload. Invalid JSON is a terminal failure. A payload that does not fit the type fails the attempt, and the job is
/// retried after a backoff.
pub(super) fn decode<T: DeserializeOwned>(payload: &str, attempt: u32, backoff: &Backoff) -> Result<T, Failure> {
    serde_json::from_str(payload).map_err(|error| {
        let rust_type = type_name::<T>();
        if let Some(why) = describe_syntax_error(payload, &error) {
            return Failure::terminal(format!("the payload for `{rust_type}` is not valid JSON: {why}"));
        }
        let fault = describe_mismatch::<T>(payload, &error);
        Failure::retry_in(
            retry_delay(attempt, backoff),
            format!(
                "the payload does not fit the type `{rust_type}`: {fault}; deploy a release that reads it, or requeue this job afterwards"
            ),
        )
    })
}

/// Describes a JSON syntax error by its cause and position, and names a remedy. Returns `None` if the payload is valid JSON that does not
/// fit the type. `serde_json` reports some mismatches as syntax errors, such as a number in place of an enum. The payload is therefore
/// parsed again as untyped JSON.
fn describe_syntax_error(payload: &str, error: &serde_json::Error) -> Option<String> {
    if error.classify() == Category::Data || serde_json::from_str::<Value>(payload).is_ok() {
        return None;
    }
    let (text, line, column) = (error.to_string(), error.line(), error.column());
    let (why, remedy) = if text.starts_with("number out of range") {
        ("a number exceeds 64 bits", " with a string instead of the number")
    } else if text.starts_with("recursion limit exceeded") {
        ("arrays and objects are nested too deeply", " with the inner part encoded as a string")
    } else if serde_json::from_str::<IgnoredAny>(payload).is_ok() {
        return None;
    } else {
        ("invalid JSON", "")
    };
    Some(format!("{why} (line {line}, column {column}); enqueue it again{remedy} and discard this job: {WOULD_FAIL_AGAIN}"))
}

/// Returns the retry delay: the backoff of the type, but at least [`DEPLOY_BACKOFF`].
fn retry_delay(attempt: u32, backoff: &Backoff) -> Duration {
    backoff.wait(attempt, 0.5).max(DEPLOY_BACKOFF.wait(attempt, 0.5))
}

/// Decodes a payload of the given version and encodes it in the current version. The error is a short description of the mismatch.
#[cfg(feature = "testing")]
pub(super) fn reencode<T: JobType>(payload: &serde_json::Value, version: u16) -> Result<serde_json::Value, String> {
    let text = payload.to_string();
    let read: T = if version == T::OPTIONS.version {
        serde_json::from_str(&text).map(T::from_serde).map_err(|error| describe_mismatch::<T::Serde>(&text, &error))?
    } else {
        decode_clear(&text, version, 1).map_err(|failure| failure.to_string())?
    };
    serde_json::to_value(read.as_serde()).map_err(|error| error.to_string())
}

/// Describes a mismatch and its path. Decodes the payload a second time with path tracking, which the first decoding omits for speed.
fn describe_mismatch<T: DeserializeOwned>(payload: &str, first: &serde_json::Error) -> String {
    if is_sealed(payload) {
        return "it is sealed, but this release defines the type without `seal`".to_owned();
    }
    let reread = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(payload));
    match reread {
        Err(error) => format!("{} at `{}`", sanitize_message(&error.inner().to_string()), format_path(error.path())),
        Ok(_) => format!("{} at line {}, column {}", sanitize_message(&first.to_string()), first.line(), first.column()),
    }
}

/// Formats a path such as `$.user.names[3]`. Keys come from the payload, but are usually field names. Long keys are truncated.
fn format_path(path: &Path) -> String {
    path.iter().fold("$".to_owned(), |path, segment| match segment {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } => path + &path_step(key),
        Segment::Enum { variant } => path + &path_step(variant),
        Segment::Unknown => path + ".?",
    })
}

/// Value kinds that occur in error messages of `serde`.
const SERDE_KINDS: [&str; 12] = [
    "boolean",
    "integer",
    "floating point",
    "character",
    "string",
    "byte array",
    "null",
    "unit value",
    "sequence",
    "map",
    "newtype struct",
    "enum",
];

/// Maximum number of characters in a list of expected values.
const MAX_LIST_CHARS: usize = 200;

/// Removes all parts of a data error's message that may come from the payload. A custom `Deserialize` implementation may include values
/// in its message.
fn sanitize_message(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let expected = || message.rsplit_once(", expected ").map(|(_, expected)| truncate_list(expected));
    for fault in ["missing field", "duplicate field", "unknown field"] {
        let name = message.strip_prefix(fault).and_then(|rest| rest.trim_start().strip_prefix('`')?.split_once('`'));
        if let Some((name, _)) = name.filter(|(name, _)| is_name(name)) {
            return format!("{fault} `{name}`");
        }
    }
    for fault in ["invalid type", "invalid value", "invalid length"] {
        let Some(found) = message.strip_prefix(fault).and_then(|rest| rest.strip_prefix(": ")) else { continue };
        let found = SERDE_KINDS.iter().find(|kind| found.starts_with(**kind)).map(|kind| format!(": {kind}")).unwrap_or_default();
        return expected().map_or_else(|| fault.to_owned(), |expected| format!("{fault}{found}, expected {expected}"));
    }
    if message.starts_with("unknown variant ") {
        return expected().map_or_else(|| "unknown variant".to_owned(), |expected| format!("unknown variant, expected {expected}"));
    }
    if message.starts_with("data did not match any variant of untagged enum ") {
        return "no variant of an untagged enum matches".to_owned();
    }
    if message == "expected value" {
        return "not a variant of an enum".to_owned();
    }
    if message == "number out of range" {
        return message.to_owned();
    }
    "refused by its `Deserialize`".to_owned()
}

/// Truncates a list of more than [`MAX_LIST_CHARS`] characters at a word boundary, and appends an ellipsis.
fn truncate_list(list: &str) -> String {
    let mut letters = list.chars();
    let mut short: String = letters.by_ref().take(MAX_LIST_CHARS).collect();
    if letters.next().is_some() {
        short.truncate(short.rfind(' ').unwrap_or(short.len()));
        short.push_str(" ...");
    }
    short
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, de::Error as _};

    use super::*;
    use crate::define::FailureKind;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Mail {
        subject: String,
        #[serde(default)]
        to: Vec<u32>,
        #[serde(default)]
        kind: Kind,
        #[serde(default)]
        tags: BTreeMap<String, bool>,
        #[serde(default)]
        own: Own,
        #[serde(default)]
        large: u128,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code, reason = "only read")]
    enum Kind {
        #[default]
        Plain,
        Dated {
            day: u8,
        },
    }

    #[derive(Debug, Default)]
    struct Own;

    impl<'de> Deserialize<'de> for Own {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            Err(D::Error::custom(format!("{text} is no such thing")))
        }
    }

    fn failure(payload: &str) -> Failure {
        decode::<Mail>(payload, 1, &Backoff::DEFAULT).unwrap_err()
    }

    #[test]
    fn a_long_list_is_truncated_at_a_word_boundary() {
        assert_eq!(truncate_list("one of `a`, `b`"), "one of `a`, `b`");
        let long = "`variant`, ".repeat(40);
        assert_eq!(truncate_list(&long), format!("{} ...", "`variant`, ".repeat(18).trim_end()));
    }

    #[test]
    fn a_mismatch_is_described_by_path_and_kind_without_values() {
        for (payload, expected) in [
            (r#"{"to": [1]}"#, "missing field `subject` at `$`"),
            (r#"{"subject": "s", "to": [1, "hunter2, expected hunter2"]}"#, "invalid type: string, expected u32 at `$.to[1]`"),
            (r#"{"subject": "s", "to": [1, -5]}"#, "invalid value: integer, expected u32 at `$.to[1]`"),
            (r#"{"subject": 5}"#, "invalid type: integer, expected a string at `$.subject`"),
            (r#"{"subject": "s", "kind": "hunter2"}"#, "unknown variant, expected `plain` or `dated` at `$.kind`"),
            (r#"{"subject": "s", "kind": {"dated": {"day": 1.5}}}"#, "invalid type: floating point, expected u8 at `$.kind.dated.day`"),
            (r#"{"subject": "s", "kind": 7}"#, "not a variant of an enum at `$.kind`"),
            (r#"{"subject": "s", "kind": {}}"#, "not a variant of an enum at `$.kind`"),
            (r#"{"subject": "s", "kind": {"dated": {"day": 1}, "hunter2": 1}}"#, "not a variant of an enum at `$.kind`"),
            (r#"{"subject": "s", "large": -1}"#, "number out of range at `$.large`"),
            (r#"{"subject": "s", "kind": {"dated": {}}}"#, "missing field `day` at `$.kind.dated`"),
            (r#"{"subject": "s", "tags": {"é b": null}}"#, "invalid type: null, expected a boolean at `$.tags[\"é b\"]`"),
            (r#"{"subject": "s", "subject": "t"}"#, "duplicate field `subject` at `$"),
            (r#"{"subject": "s", "subjekt": "hunter2"}"#, "unknown field `subjekt` at `$"),
            (r#"{"subject": "s", "own": "hunter2"}"#, "refused by its `Deserialize` at `$.own`"),
            (r#"["hunter2", 5]"#, "invalid type: integer, expected a sequence at `$[1]`"),
            (r#""hunter2""#, "invalid type: string, expected struct Mail at `$`"),
        ] {
            let failure = failure(payload);
            assert!(matches!(failure.kind(), FailureKind::RetryIn(_)), "{payload}: {failure:?}");
            let message = failure.to_string();
            assert!(message.contains(expected) && message.contains("::Mail`") && message.contains("requeue"), "{payload}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn invalid_json_is_a_terminal_failure() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (payload, why) in [
            (
                r#"{"subject": 1e400}"#,
                "a number exceeds 64 bits (line 1, column 17); enqueue it again with a string instead of the number and discard",
            ),
            (&deep, "arrays and objects are nested too deeply (line 1, "),
            ("{", "invalid JSON (line 1, "),
            (r#"{"subject": "s"} {}"#, "invalid JSON (line 1, "),
        ] {
            let failure = decode::<serde_json::Value>(payload, 1, &Backoff::DEFAULT).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Terminal, "{payload}");
            let message = failure.to_string();
            assert!(message.contains(why) && message.contains("discard") && !message.contains("deploy"), "{payload}: {message}");
        }
    }

    #[test]
    fn the_retry_delay_is_the_larger_of_the_deploy_backoff_and_the_type_backoff() {
        let wait = |backoff: Backoff, attempt| match decode::<Mail>("{}", attempt, &backoff).unwrap_err().kind() {
            FailureKind::RetryIn(wait) => wait.as_secs(),
            other => panic!("{other:?}"),
        };
        let (quick, slow) = (Backoff::fixed(Duration::from_millis(50)), Backoff::fixed(Duration::from_hours(1)));
        assert_eq!([1, 2, 3, 20].map(|attempt| wait(quick, attempt)), [10, 20, 40, 300]);
        assert_eq!(wait(slow, 1), 3600);
    }
}

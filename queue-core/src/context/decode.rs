//! From a payload's text to its Rust type; or why this release cannot read it: the place and the kind of the fault, never a value.
//!
//! What is no JSON for any reader is a terminal failure. What does not fit the type may be what a newer or an older release has written, so it
//! is tried again by whoever claims it then, after a wait that leaves a deploy some time, until its attempts have run out.

use std::{any::type_name, cmp::Ordering, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use super::Context;
use crate::{
    define::{Backoff, Failure, JobType, OldPayload},
    payload::path_step,
    seal::{Unopened, is_sealed, open},
};

/// The least waits of a job whose payload does not fit, whatever its type says: with three attempts a deploy has half a minute.
const DEPLOY: Backoff = Backoff::exponential(Duration::from_secs(10)).max(Duration::from_mins(5));

/// The payload of this attempt, opened if it is sealed.
pub(super) fn read<T: JobType>(payload: &str, cx: &Context) -> Result<T, Failure> {
    if T::OPTIONS.seal.is_none() {
        return read_clear(payload, cx.version(), cx.attempt());
    }
    match cx.with_place(|bound| open(payload, bound)) {
        // From before the type was sealed, or from SQL.
        Ok(None) => read_clear(payload, cx.version(), cx.attempt()),
        Ok(Some(clear)) => read_clear(&clear, cx.version(), cx.attempt()),
        Err(Unopened::Here(why)) => {
            let why = format!("the payload cannot be opened: {why}, or requeue this job after that");
            Err(Failure::retry_in(wait(cx.attempt(), &T::OPTIONS.backoff), why))
        }
        Err(Unopened::Ever(why)) => {
            Err(Failure::terminal(format!("the sealed payload cannot be opened: {why}; mend that, and requeue this job")))
        }
    }
}

/// A payload of this version in clear, read for attempt number `attempt`.
fn read_clear<T: JobType>(payload: &str, version: u16, attempt: u32) -> Result<T, Failure> {
    let (newest, backoff) = (T::OPTIONS.version, &T::OPTIONS.backoff);
    match version.cmp(&newest) {
        Ordering::Equal => decode(payload, attempt, backoff),
        Ordering::Less => T::upgrade(OldPayload::new(version, payload)),
        Ordering::Greater => {
            let why = format!("the payload is of version {version}, and this release knows `{}` up to {newest}", T::OPTIONS.name);
            Err(Failure::retry_in(wait(attempt, backoff), why))
        }
    }
}

/// What an upgrade returns: the job's type, or that or what is wrong. A text that is known when the program is built holds nothing of a payload.
#[diagnostic::on_unimplemented(
    message = "an upgrade returns `{T}` or `Result<{T}, &'static str>`, not `{Self}`",
    label = "not what the payload becomes"
)]
pub trait Upgraded<T> {
    /// The same as a result.
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

/// The old payload, read as what `by` takes, and made by it what it is now. For the expansion of `#[job]`.
pub fn upgrade<T: JobType, Old: DeserializeOwned, R: Upgraded<T>>(old: OldPayload<'_>, by: impl FnOnce(Old) -> R) -> Result<T, Failure> {
    let (version, newest) = (old.version(), T::OPTIONS.version);
    let read: Old = serde_json::from_str(old.text()).map_err(|error| {
        if error.classify() != Category::Data {
            return Failure::terminal(format!("the payload of version {version} cannot be read as JSON: {}", syntax(&error)));
        }
        let (was, fault) = (type_name::<Old>(), fault::<Old>(old.text(), &error));
        Failure::terminal(format!(
            "the payload of version {version} does not fit `{was}`, from which it is upgraded: {fault}; after a deploy that reads it, requeue this job"
        ))
    })?;
    by(read).into_result().map_err(|why| {
        Failure::terminal(format!(
            "the payload of version {version} cannot be upgraded to version {newest}: {why}; after a deploy that can, requeue this job"
        ))
    })
}

/// The payload, read for attempt number `attempt` of a type with this backoff.
pub(super) fn decode<T: DeserializeOwned>(payload: &str, attempt: u32, backoff: &Backoff) -> Result<T, Failure> {
    serde_json::from_str(payload).map_err(|error| {
        let rust_type = type_name::<T>();
        if error.classify() != Category::Data {
            return Failure::terminal(format!("the payload cannot be read as JSON for `{rust_type}`: {}", syntax(&error)));
        }
        let fault = fault::<T>(payload, &error);
        Failure::retry_in(
            wait(attempt, backoff),
            format!(
                "the payload does not fit the type `{rust_type}`: {fault}; deploy a release that reads it, or requeue this job after that"
            ),
        )
    })
}

/// What is wrong with a text that is no JSON to any release, where, and what to do.
fn syntax(error: &serde_json::Error) -> String {
    let (text, line, column) = (error.to_string(), error.line(), error.column());
    let (why, instead) = if text.starts_with("number out of range") {
        ("a number is beyond 64 bits", " with a string in its place")
    } else if text.starts_with("recursion limit exceeded") {
        ("arrays and objects lie too deep in one another", " with the inner part as a string")
    } else {
        ("it is no JSON", "")
    };
    format!("{why} (line {line}, column {column}); enqueue it anew{instead} and discard this job: a requeue would end the same")
}

/// Until a release may be there that reads it.
fn wait(attempt: u32, backoff: &Backoff) -> Duration {
    backoff.wait(attempt, 0.5).max(DEPLOY.wait(attempt, 0.5))
}

/// A payload of this version, read and written again; or why it cannot be read, in as few words as possible.
#[cfg(feature = "testing")]
pub(super) fn reread<T: JobType>(payload: &serde_json::Value, version: u16) -> Result<serde_json::Value, String> {
    let text = payload.to_string();
    let read: T = if version == T::OPTIONS.version {
        serde_json::from_str(&text).map_err(|error| fault::<T>(&text, &error))?
    } else {
        read_clear(&text, version, 1).map_err(|failure| failure.to_string())?
    };
    serde_json::to_value(&read).map_err(|error| error.to_string())
}

/// Reads it once more, to learn where the fault is: jobs that are fine do not pay for that.
fn fault<T: DeserializeOwned>(payload: &str, first: &serde_json::Error) -> String {
    if is_sealed(payload) {
        return "it is sealed, and this release reads the type without `seal`".to_owned();
    }
    let reread = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(payload));
    match reread {
        Err(error) => format!("{} at `{}`", kind(&error.inner().to_string()), place(error.path())),
        Ok(_) => format!("{} at line {}, column {}", kind(&first.to_string()), first.line(), first.column()),
    }
}

/// `$.user.names[3]`: keys are names in nearly every payload, and cut when long.
fn place(path: &Path) -> String {
    path.iter().fold("$".to_owned(), |path, segment| match segment {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } => path + &path_step(key),
        Segment::Enum { variant } => path + &path_step(variant),
        Segment::Unknown => path + ".?",
    })
}

/// What `serde` calls the kinds of values that it meets.
const MET: [&str; 12] = [
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

/// No list of what was expected is shown longer.
const LONGEST: usize = 200;

/// Of the message of a data error only what is known not to come from the payload. A type's own `Deserialize` may say anything, values too.
fn kind(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let expected = || message.rsplit_once(", expected ").map(|(_, expected)| shortened(expected));
    for fault in ["missing field", "duplicate field", "unknown field"] {
        let name = message.strip_prefix(fault).and_then(|rest| rest.trim_start().strip_prefix('`')?.split_once('`'));
        if let Some((name, _)) = name.filter(|(name, _)| is_name(name)) {
            return format!("{fault} `{name}`");
        }
    }
    for fault in ["invalid type", "invalid value", "invalid length"] {
        let Some(met) = message.strip_prefix(fault).and_then(|rest| rest.strip_prefix(": ")) else { continue };
        let met = MET.iter().find(|known| met.starts_with(**known)).map(|met| format!(": {met}")).unwrap_or_default();
        return expected().map_or_else(|| fault.to_owned(), |expected| format!("{fault}{met}, expected {expected}"));
    }
    if message.starts_with("unknown variant ") {
        return expected().map_or_else(|| "unknown variant".to_owned(), |expected| format!("unknown variant, expected {expected}"));
    }
    if message.starts_with("data did not match any variant of untagged enum ") {
        return "no variant of an untagged enum matches".to_owned();
    }
    "refused by its `Deserialize`".to_owned()
}

/// Not longer than that, and what is left out is shown by an ellipsis.
fn shortened(list: &str) -> String {
    let mut letters = list.chars();
    let mut short: String = letters.by_ref().take(LONGEST).collect();
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
    fn a_list_that_is_too_long_ends_with_a_whole_word_and_an_ellipsis() {
        assert_eq!(shortened("one of `a`, `b`"), "one of `a`, `b`");
        let long = "`variant`, ".repeat(40);
        assert_eq!(shortened(&long), format!("{} ...", "`variant`, ".repeat(18).trim_end()));
    }

    #[test]
    fn a_payload_that_does_not_fit_is_told_by_place_and_kind_and_never_by_value() {
        for (payload, wanted) in [
            (r#"{"to": [1]}"#, "missing field `subject` at `$`"),
            (r#"{"subject": "s", "to": [1, "hunter2, expected hunter2"]}"#, "invalid type: string, expected u32 at `$.to[1]`"),
            (r#"{"subject": "s", "to": [1, -5]}"#, "invalid value: integer, expected u32 at `$.to[1]`"),
            (r#"{"subject": 5}"#, "invalid type: integer, expected a string at `$.subject`"),
            (r#"{"subject": "s", "kind": "hunter2"}"#, "unknown variant, expected `plain` or `dated` at `$.kind`"),
            (r#"{"subject": "s", "kind": {"dated": {"day": 1.5}}}"#, "invalid type: floating point, expected u8 at `$.kind.dated.day`"),
            (r#"{"subject": "s", "kind": {"dated": {}}}"#, "missing field `day` at `$.kind.dated`"),
            (r#"{"subject": "s", "tags": {"é b": null}}"#, "invalid type: null, expected a boolean at `$.tags[\"é b\"]`"),
            (r#"{"subject": "s", "subject": "t"}"#, "duplicate field `subject` at `$"),
            (r#"{"subject": "s", "subjekt": "hunter2"}"#, "unknown field `subjekt` at `$"),
            (r#"{"subject": "s", "own": "hunter2"}"#, "refused by its `Deserialize` at `$.own`"),
            (r#"["hunter2", 5]"#, "invalid type: integer, expected a sequence at `$[1]`"),
            (r#""hunter2""#, "invalid type: string, expected struct Mail at `$`"),
        ] {
            let said = failure(payload);
            assert!(matches!(said.kind(), FailureKind::RetryIn(_)), "{payload}: {said:?}");
            let said = said.to_string();
            assert!(said.contains(wanted) && said.contains("::Mail`") && said.contains("requeue"), "{payload}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn what_nobody_can_read_is_not_tried_again() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (payload, why) in [
            (
                r#"{"subject": 1e400}"#,
                "a number is beyond 64 bits (line 1, column 17); enqueue it anew with a string in its place and discard",
            ),
            (&deep, "arrays and objects lie too deep in one another (line 1, "),
            ("{", "it is no JSON (line 1, "),
            (r#"{"subject": "s"} {}"#, "it is no JSON (line 1, "),
        ] {
            let said = decode::<serde_json::Value>(payload, 1, &Backoff::DEFAULT).unwrap_err();
            assert_eq!(said.kind(), FailureKind::Terminal, "{payload}");
            let said = said.to_string();
            assert!(said.contains(why) && said.contains("discard") && !said.contains("deploy"), "{payload}: {said}");
        }
    }

    #[test]
    fn a_deploy_has_time_whatever_the_backoff_says_and_a_longer_backoff_stays() {
        let wait = |backoff: Backoff, attempt| match decode::<Mail>("{}", attempt, &backoff).unwrap_err().kind() {
            FailureKind::RetryIn(wait) => wait.as_secs(),
            other => panic!("{other:?}"),
        };
        let (quick, slow) = (Backoff::fixed(Duration::from_millis(50)), Backoff::fixed(Duration::from_hours(1)));
        assert_eq!([1, 2, 3, 20].map(|attempt| wait(quick, attempt)), [10, 20, 40, 300]);
        assert_eq!(wait(slow, 1), 3600);
    }
}

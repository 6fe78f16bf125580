//! Text form of a trace context, as specified in <https://www.w3.org/TR/trace-context/>. Malformed text is ignored, as if the job had no
//! trace context.

use std::str::FromStr as _;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use serde::Deserialize;
use serde_json::Value;

use super::{TRACEPARENT, TraceContext};

/// Maximum length of `tracestate` in bytes. Longer values are ignored.
const MAX_STATE_BYTES: usize = 512;

/// Length in bytes of a `traceparent` of version 00: `00-` trace id `-` span id `-` flags.
const TRACEPARENT_BYTES: usize = 55;

/// Trace context fields in a job's metadata. Jobs enqueued in SQL may have arbitrary values in these fields.
#[derive(Deserialize)]
struct TraceFields {
    traceparent: Option<Value>,
    tracestate: Option<Value>,
}

/// Parses the trace context from a job's metadata. `meta` is JSON text.
pub(super) fn parse_meta(meta: Option<&str>) -> Option<SpanContext> {
    let meta = meta.filter(|meta| meta.contains(TRACEPARENT))?;
    let TraceFields { traceparent, tracestate } = serde_json::from_str(meta).ok()?;
    parse(traceparent.as_ref()?.as_str()?, tracestate.as_ref().and_then(Value::as_str))
}

fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<SpanContext> {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !traceparent.is_ascii() || traceparent.len() < TRACEPARENT_BYTES {
        return None;
    }
    let (prefix, suffix) = traceparent.split_at(TRACEPARENT_BYTES);
    let mut parts = prefix.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let has_valid_lengths = [version, trace, span, flags].map(str::len) == [2, 32, 16, 2] && parts.next().is_none();
    // A version later than 00 may append fields after another dash.
    let has_valid_suffix = suffix.is_empty() || (version != "00" && suffix.starts_with('-'));
    if !has_valid_lengths || !has_valid_suffix || version == "ff" || ![version, trace, span, flags].into_iter().all(is_hex) {
        return None;
    }
    let state = tracestate.filter(|state| state.len() <= MAX_STATE_BYTES).and_then(|state| TraceState::from_str(state).ok());
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, flags, true, state.unwrap_or_default());
    context.is_valid().then_some(context)
}

/// Formats a trace context for storage with a job.
pub(super) fn format(context: &SpanContext) -> TraceContext {
    let flags = (context.trace_flags() & TraceFlags::SAMPLED).to_u8();
    let state = context.trace_state().header();
    TraceContext {
        traceparent: format!("00-{:032x}-{:016x}-{flags:02x}", context.trace_id(), context.span_id()),
        tracestate: Some(state).filter(|state| (1..=MAX_STATE_BYTES).contains(&state.len()) && !state.contains('\0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_formatted_context_is_parsed_again() {
        let state = "vendor=1,other=x";
        let context = parse(VALID, Some(state)).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        let carried = TraceContext { traceparent: VALID.to_owned(), tracestate: Some(state.to_owned()) };
        assert_eq!(format(&context), carried);
        let meta = format!(r#"{{"traceparent": "{VALID}", "tracestate": "{state}", "huge": {}}}"#, "1".repeat(400));
        assert_eq!(parse_meta(Some(&meta)), Some(context));
    }

    #[test]
    fn malformed_text_is_no_context() {
        let wrong = [
            String::new(),
            VALID[..54].to_owned(),
            format!("{VALID}-more"),
            VALID.to_uppercase(),
            VALID.replacen("00-", "ff-", 1),
            VALID.replacen("00-", "0x-", 1),
            VALID.replace('-', "_"),
            VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            VALID.replace("b7ad6b7169203331", &"0".repeat(16)),
            VALID.replace("b7ad6b7169203331", "+7ad6b7169203331"),
            VALID.replace("b7ad6b7169203331", "é7ad6b71692033"),
            "-".repeat(55),
            "\u{1f600}".repeat(20),
        ];
        for wrong in &wrong {
            assert_eq!(parse(wrong, None), None, "{wrong}");
        }
        for meta in ["", "traceparent", r#"{"traceparent": null}"#, r#"{"traceparent": {"a": 1}}"#, r#"{"a": "traceparent"}"#, "[]"] {
            assert_eq!(parse_meta(Some(meta)), None, "{meta}");
        }
        assert_eq!(parse_meta(None), None);
    }

    #[test]
    fn the_known_fields_of_a_later_version_are_parsed() {
        for later in [VALID.replacen("00-", "cc-", 1), format!("{}-what-comes", VALID.replacen("00-", "01-", 1))] {
            assert!(parse(&later, None).is_some(), "{later}");
        }
        assert_eq!(parse(&format!("{}x", VALID.replacen("00-", "01-", 1)), None), None);
    }

    #[test]
    fn a_state_that_is_too_long_or_malformed_is_omitted() {
        let entries = format!("a={},b={}", "x".repeat(250), "x".repeat(250));
        let (fits, too_long) = (format!("{entries},c=1234"), format!("{entries},c=12345"));
        let state = |state: &str| parse(VALID, Some(state)).unwrap().trace_state().header();
        assert_eq!((state(&fits), state(&too_long), state("no state")), (fits.clone(), String::new(), String::new()));
        let long = TraceState::from_key_value([("a", "x".repeat(200)), ("b", "x".repeat(200)), ("c", "x".repeat(200))]).unwrap();
        let context = parse(VALID, None).unwrap();
        let context = SpanContext::new(context.trace_id(), context.span_id(), context.trace_flags(), false, long);
        assert_eq!(format(&context).tracestate, None, "it is not truncated: half an entry would be invalid");
    }
}

//! The context of a trace as text: <https://www.w3.org/TR/trace-context/>. What is not of that form is no context, and no error.

use std::str::FromStr as _;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use serde::Deserialize;
use serde_json::Value;

use super::{Carried, TRACEPARENT};

/// Vendors that say more of a trace are not listened to.
const LONGEST_STATE: usize = 512;

/// Of `00-` trace id `-` span id `-` flags.
const LENGTH: usize = 55;

/// What metadata say of a trace. Whoever enqueues by SQL may have written anything there.
#[derive(Deserialize)]
struct Said {
    traceparent: Option<Value>,
    tracestate: Option<Value>,
}

/// The context in a job's metadata, which are JSON text.
pub(super) fn of_meta(meta: Option<&str>) -> Option<SpanContext> {
    let meta = meta.filter(|meta| meta.contains(TRACEPARENT))?;
    let Said { traceparent, tracestate } = serde_json::from_str(meta).ok()?;
    read(traceparent.as_ref()?.as_str()?, tracestate.as_ref().and_then(Value::as_str))
}

fn read(traceparent: &str, tracestate: Option<&str>) -> Option<SpanContext> {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !traceparent.is_ascii() || traceparent.len() < LENGTH {
        return None;
    }
    let (form, more) = traceparent.split_at(LENGTH);
    let mut parts = form.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let has_form = [version, trace, span, flags].map(str::len) == [2, 32, 16, 2] && parts.next().is_none();
    // A later version may say more, behind another dash.
    let may_say_more = more.is_empty() || (version != "00" && more.starts_with('-'));
    if !has_form || !may_say_more || version == "ff" || ![version, trace, span, flags].into_iter().all(is_hex) {
        return None;
    }
    let state = tracestate.filter(|state| state.len() <= LONGEST_STATE).and_then(|state| TraceState::from_str(state).ok());
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, flags, true, state.unwrap_or_default());
    context.is_valid().then_some(context)
}

/// As a job carries it.
pub(super) fn write(context: &SpanContext) -> Carried {
    let flags = (context.trace_flags() & TraceFlags::SAMPLED).to_u8();
    let state = context.trace_state().header();
    Carried {
        traceparent: format!("00-{:032x}-{:016x}-{flags:02x}", context.trace_id(), context.span_id()),
        tracestate: Some(state).filter(|state| (1..=LONGEST_STATE).contains(&state.len()) && !state.contains('\0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_written_is_read_again() {
        let state = "vendor=1,other=x";
        let context = read(RIGHT, Some(state)).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        let carried = Carried { traceparent: RIGHT.to_owned(), tracestate: Some(state.to_owned()) };
        assert_eq!(write(&context), carried);
        let meta = format!(r#"{{"traceparent": "{RIGHT}", "tracestate": "{state}", "huge": {}}}"#, "1".repeat(400));
        assert_eq!(of_meta(Some(&meta)), Some(context));
    }

    #[test]
    fn what_has_not_the_form_is_no_context() {
        let wrong = [
            String::new(),
            RIGHT[..54].to_owned(),
            format!("{RIGHT}-more"),
            RIGHT.to_uppercase(),
            RIGHT.replacen("00-", "ff-", 1),
            RIGHT.replacen("00-", "0x-", 1),
            RIGHT.replace('-', "_"),
            RIGHT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            RIGHT.replace("b7ad6b7169203331", &"0".repeat(16)),
            RIGHT.replace("b7ad6b7169203331", "+7ad6b7169203331"),
            RIGHT.replace("b7ad6b7169203331", "é7ad6b71692033"),
            "-".repeat(55),
            "\u{1f600}".repeat(20),
        ];
        for wrong in &wrong {
            assert_eq!(read(wrong, None), None, "{wrong}");
        }
        for meta in ["", "traceparent", r#"{"traceparent": null}"#, r#"{"traceparent": {"a": 1}}"#, r#"{"a": "traceparent"}"#, "[]"] {
            assert_eq!(of_meta(Some(meta)), None, "{meta}");
        }
        assert_eq!(of_meta(None), None);
    }

    #[test]
    fn a_later_version_is_read_by_what_it_has_of_this_one() {
        for later in [RIGHT.replacen("00-", "cc-", 1), format!("{}-what-comes", RIGHT.replacen("00-", "01-", 1))] {
            assert!(read(&later, None).is_some(), "{later}");
        }
        assert_eq!(read(&format!("{}x", RIGHT.replacen("00-", "01-", 1)), None), None);
    }

    #[test]
    fn a_state_that_is_too_long_or_wrong_is_left_out() {
        let entries = format!("a={},b={}", "x".repeat(250), "x".repeat(250));
        let (fits, too_long) = (format!("{entries},c=1234"), format!("{entries},c=12345"));
        let state = |state: &str| read(RIGHT, Some(state)).unwrap().trace_state().header();
        assert_eq!((state(&fits), state(&too_long), state("no state")), (fits.clone(), String::new(), String::new()));
        let long = TraceState::from_key_value([("a", "x".repeat(200)), ("b", "x".repeat(200)), ("c", "x".repeat(200))]).unwrap();
        let context = read(RIGHT, None).unwrap();
        let context = SpanContext::new(context.trace_id(), context.span_id(), context.trace_flags(), false, long);
        assert_eq!(write(&context).tracestate, None, "it is not cut either: half an entry is a lie");
    }
}

//! Tests `encode` without a database. Integration tests store payloads in a database.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{error::MAX_DEPTH, *};

const LIMIT: usize = 4096;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn encode_error<T: Serialize + ?Sized>(job: &T) -> PayloadError {
    encode(job, LIMIT).unwrap_err()
}

fn nul(path: &str) -> PayloadError {
    PayloadError::Nul { path: path.to_owned() }
}

fn lone_surrogate(path: &str) -> PayloadError {
    PayloadError::LoneSurrogate { path: path.to_owned() }
}

fn not_finite(path: &str) -> PayloadError {
    PayloadError::NotFinite { path: path.to_owned() }
}

fn number_too_large(path: &str) -> PayloadError {
    PayloadError::NumberTooLarge { path: path.to_owned() }
}

#[test]
fn f01_nul_anywhere_is_refused_with_its_path() {
    assert_eq!(encode_error("a\0b"), nul("$"));
    assert_eq!(encode_error(&'\0'), nul("$"));
    assert_eq!(encode_error(&json!({"user": {"names": ["a", "b", "c", "\0"]}})), nul("$.user.names[3]"));
    assert_eq!(encode_error(&json!({"user": {"a\0b": 1}})), nul("$.user[\"a\\u0000\"]"));
    assert_eq!(encode_error(&((), BTreeMap::from([("a", raw(r#"{"b": [true, "x\u0000"]}"#))]))), nul("$[1].a.b[1]"));
    assert_eq!(encode_error(&[raw(r#"{"a\u0000b": 1}"#)]), nul("$[0][\"a\\u0000b\"]"));
    assert_eq!(encode_error(&Shape::Pair(Some("\0".into()), 1.0)), nul("$.Pair[0]"));
    assert_eq!(encode(r"\u0000", LIMIT).unwrap(), r#""\\u0000""#, "a backslash and five characters, no NUL");
    assert_eq!(encode(&raw(r#""\\u0000""#), LIMIT).unwrap(), r#""\\u0000""#);
}

#[test]
fn f04_half_a_surrogate_pair_is_refused() {
    for half in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\ud800x""#, r#""\uDE00\uD83D""#] {
        assert_eq!(encode_error(&BTreeMap::from([("a", raw(half))])), lone_surrogate("$.a"), "{half}");
    }
    assert_eq!(encode_error(&raw(r#"{"a": {"\ud800": 1}}"#)), lone_surrogate(r#"$.a["\ud800"]"#));
    assert_eq!(encode(&raw(r#""\uD83D\uDE00 \u00e9\/""#), LIMIT).unwrap(), "\"😀 é/\"");
}

#[test]
fn f05_integers_of_64_bits_are_exact_and_wider_ones_refused() {
    for exact in [json!(9_007_199_254_740_993_u64), json!(u64::MAX), json!(i64::MIN)] {
        let text = encode(&exact, LIMIT).unwrap();
        assert_eq!(text, exact.to_string());
        assert_eq!(encode(&raw(&text), LIMIT).unwrap(), text);
    }
    assert_eq!(encode(&(u128::from(u64::MAX), i128::from(i64::MIN)), LIMIT).unwrap(), "[18446744073709551615, -9223372036854775808]");
    assert_eq!(encode_error(&(1, u128::from(u64::MAX) + 1)), number_too_large("$[1]"));
    assert_eq!(encode_error(&(i128::from(i64::MIN) - 1)), number_too_large("$"));
    assert_eq!(encode_error(&raw(r#"{"a": [0, -9223372036854775809]}"#)), number_too_large("$.a[1]"));
    assert_eq!(encode_error(&raw("[1e400]")), number_too_large("$[0]"));
    assert_eq!(encode(&BTreeMap::from([(u128::MAX, 1)]), LIMIT).unwrap(), format!("{{\"{}\": 1}}", u128::MAX), "a key is a string");
}

#[test]
fn f05_floats_come_back_as_floats() {
    assert_eq!(encode(&[1e16, -1e-7, 1.5, 0.1, -0.0], LIMIT).unwrap(), "[10000000000000000.0, -0.0000001, 1.5, 0.1, -0.0]");
    assert_eq!(encode(&[1e16_f32, 0.1, f32::MAX], LIMIT).unwrap(), "[10000000000000000.0, 0.1, 340282350000000000000000000000000000000.0]");
    assert_eq!(encode(&raw("[1E5, 1.50, 1e-2]"), LIMIT).unwrap(), "[100000.0, 1.50, 0.01]");
}

#[test]
fn f06_not_a_number_and_infinity_are_refused() {
    assert_eq!(encode_error(&f64::NAN), not_finite("$"));
    assert_eq!(encode_error(&BTreeMap::from([("a b", vec![0.0, f32::INFINITY])])), not_finite("$[\"a b\"][1]"));
    assert_eq!(encode_error(&Shape::Named { of: vec![1.0, f64::NEG_INFINITY] }), not_finite("$.Named.of[1]"));
    assert_eq!(encode_error(&(Some(Wrap(Shape::Pair(None, f64::NAN))),)), not_finite("$[0].Pair[1]"));
    assert_eq!(encode_error(&Keyed(f64::NAN)), not_finite("$"));
    assert_eq!(encode(&(None::<f64>, f64::MIN_POSITIVE > 0.0), LIMIT).unwrap(), "[null, true]");
}

#[test]
fn f08_the_size_limit_applies_to_the_text_that_jsonb_prints() {
    let numbers = vec![1e300; 10];
    let text = encode(&numbers, LIMIT).unwrap();
    assert_eq!(text.len(), 10 * 303 + 9 * 2 + 2);
    assert_eq!(encode(&numbers, text.len() - 1), Err(PayloadError::TooLarge { size: text.len(), limit: text.len() - 1 }));
    let other = raw(&format!("[\n{}\n]", ["1e300"; 10].join("\t,\r\n ")));
    assert_eq!(encode(&other, LIMIT), Ok(text));
    assert_eq!(encode_error(&raw(r#"{"a":1e131071}"#)), number_too_large("$.a"));
}

#[test]
fn f09_the_depth_limit_is_that_of_serde_json() {
    for depth in [1, 126, 127, 128, 129, 5_000] {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        let read = serde_json::from_str::<Value>(&text);
        let encoded = encode(&raw(&text), usize::MAX);
        assert_eq!(encoded.is_ok(), read.is_ok(), "{depth}");
        assert_eq!(encoded.is_ok(), depth <= MAX_DEPTH, "{depth}");
        if depth > MAX_DEPTH {
            assert_eq!(encoded, Err(PayloadError::TooDeep { limit: MAX_DEPTH }));
        }
        assert_eq!(encode(&chain(depth), usize::MAX).is_ok(), depth <= MAX_DEPTH, "{depth}");
    }
    let side_by_side = vec![json!([[{}], [{}]]); 200];
    assert!(encode(&side_by_side, usize::MAX).is_ok());
}

#[test]
fn f10_a_million_levels_do_not_overflow_the_stack() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert_eq!(encode_error(&raw(&deep)), PayloadError::TooDeep { limit: MAX_DEPTH });
    assert_eq!(encode_error(&chain(1_000_000)), PayloadError::TooDeep { limit: MAX_DEPTH });
}

#[test]
fn f13_one_byte_over_the_limit_is_refused() {
    assert_eq!(encode(&"x".repeat(98), 100).unwrap().len(), 100);
    assert_eq!(encode(&"x".repeat(99), 100), Err(PayloadError::TooLarge { size: 101, limit: 100 }));
    assert_eq!(encode(&raw(&format!("[{}]", "1,".repeat(40) + "1")), 100), Err(PayloadError::TooLarge { size: 101, limit: 100 }));
    assert_eq!(encode(&(), 0), Err(PayloadError::TooLarge { size: 4, limit: 0 }));
}

#[test]
fn f13_a_huge_payload_is_rejected_before_it_is_encoded_completely() {
    let encoded_items = RefCell::new(0);
    let endless = std::iter::repeat_n("x".repeat(1024), 300 * 1024).inspect(|_| *encoded_items.borrow_mut() += 1);
    let error = encode_error(&OneShot(RefCell::new(Some(endless))));
    assert!(matches!(error, PayloadError::TooLarge { size, limit: LIMIT } if size > LIMIT && size < 2 * LIMIT), "{error:?}");
    assert_eq!(encoded_items.into_inner(), 4);
}

#[test]
fn f14_plain_payloads_round_trip() {
    assert_eq!(encode(&(), LIMIT).unwrap(), "null");
    assert_eq!(encode(&json!({}), LIMIT).unwrap(), "{}");
    assert_eq!(encode("a", LIMIT).unwrap(), "\"a\"");
    assert_eq!(encode(&7, LIMIT).unwrap(), "7");
    let shapes = vec![
        Shape::Unit,
        Shape::New(Some(Wrap(3))),
        Shape::Pair(Some("é\u{1}\"\\\n".into()), 1e16),
        Shape::Named { of: vec![0.5] },
        Shape::Map(BTreeMap::from([(-1, true)]), (1, 'x')),
    ];
    let text = encode(&shapes, LIMIT).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Shape>>(&text).unwrap(), shapes);
    assert_eq!(
        text,
        r#"["Unit", {"New": 3}, {"Pair": ["é\u0001\"\\\n", 10000000000000000.0]}, {"Named": {"of": [0.5]}}, {"Map": [{"-1": true}, [1, "x"]]}]"#
    );
}

#[test]
fn f18_an_error_names_the_fix_and_contains_no_value() {
    let secret = "hunter2";
    for error in [
        encode_error(&json!({"password": format!("{secret}\0")})),
        encode_error(&json!({"password": secret.repeat(LIMIT)})),
        encode_error(&raw(r#"{"password": "hunter2\ud800"}"#)),
        encode_error(&(secret, f64::NAN)),
        encode_error(&BTreeMap::from([(vec![secret], 1)])),
    ] {
        let message = error.to_string();
        assert!(message.contains(';') || message.contains("key must be a string"), "{message}");
        assert!(!format!("{message}{error:?}").contains(secret), "{message}");
        assert!(message.len() < 200 && !message.ends_with('.'), "{message}");
    }
}

#[test]
fn errors_of_serialize_are_reported_even_if_it_hides_them() {
    assert_eq!(encode_error(&BTreeMap::from([([1], 1)])), PayloadError::Encode("key must be a string".into()));
    assert_eq!(encode_error(&Hiding(json!("a\0"))), nul("$[0]"));
    assert_eq!(encode_error(&Hiding(f64::NAN)), not_finite("$[0]"));
    assert_eq!(encode_error(&Hiding(Failing)), not_json(), "`[, 1]` is not JSON");
    let PayloadError::Encode(message) = encode_error(&Failing) else { panic!("unexpected error") };
    assert_eq!(message, "é".repeat(200) + "…");
}

#[test]
fn forged_raw_values_are_refused_and_do_not_panic() {
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::RawValue")]
    struct Forged<'a> {
        #[serde(rename = "$serde_json::private::RawValue")]
        text: &'a str,
    }
    for text in ["", "]]]", "\"", "\"\\", "\"é\\", "\\é", "é", "tru", "1,2", "--1", "1e", "-", "1e5e5", "1.e5", "+1", "{\"a\":1}}", "\u{0}"]
    {
        assert!(encode(&Forged { text }, LIMIT).is_err() || text == "1.e5", "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_value_without_nul_comes_back_equal(value in value()) {
        let text = encode(&value, usize::MAX).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), &value);
        prop_assert_eq!(&encode(&raw(&value.to_string()), usize::MAX).unwrap(), &text, "a RawValue is written the same");
        prop_assert_eq!(encode(&value, text.len()).unwrap(), text, "the limit is the length of the text");
    }

    #[test]
    fn any_float_is_written_exactly_and_without_an_exponent(bits in prop_oneof![any::<u64>(), halfway()]) {
        let (wide, narrow) = (f64::from_bits(bits), f32::from_bits(bits as u32));
        if wide.is_finite() {
            let text = encode(&wide, LIMIT).unwrap();
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
            prop_assert!(text.contains('.') && !text.contains('e'), "{}", text);
            prop_assert_eq!(encode(&raw(&text), LIMIT).unwrap(), text.as_str());
            for other in [format!("{wide:e}"), serde_json::to_string(&wide).unwrap(), format!("{wide:.16e}")] {
                prop_assert_eq!(encode(&raw(&other), LIMIT).map(|text| text.parse()), Ok(Ok(wide)), "as formatted by other writers");
            }
        }
        if narrow.is_finite() {
            let text = encode(&narrow, LIMIT).unwrap();
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), bits as u32);
            prop_assert!(text.contains('.') && !text.contains('e'), "{}", text);
        }
    }

    #[test]
    fn any_raw_json_is_encoded_or_refused(text in "[\\[\\]{}\",:0-9eE.\\\\u dD+-]{0,24}") {
        if let Ok(value) = RawValue::from_string(text)
            && let Ok(text) = encode(&value, LIMIT)
        {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
            prop_assert_eq!(encode(&raw(&text), LIMIT).unwrap(), text, "an accepted text is accepted again");
        }
    }
}

/// Generates arbitrary JSON values. Floats have at most ten digits and small exponents, so `serde_json` reads them exactly without its
/// feature `float_roundtrip`.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (any::<i32>(), -12..6).prop_map(|(digits, exponent)| json!(format!("{digits}e{exponent}").parse::<f64>().unwrap())),
        "[^\0]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(MAX_DEPTH as u32, 256, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[^\0]{0,6}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

/// Generates the bit patterns of floats, many of which are halfway between two decimals of 16 digits.
fn halfway() -> impl Strategy<Value = u64> {
    (100_000_000_000_000_u64..10_000_000_000_000_000).prop_map(|quarters| (quarters as f64 / 4.0).to_bits())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrap<T>(T);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Unit,
    New(Option<Wrap<u8>>),
    Pair(Option<String>, f64),
    Named { of: Vec<f64> },
    Map(BTreeMap<i32, bool>, (u8, char)),
}

/// Deeply nested arrays. Dropping a `Chain` does not recurse.
struct Chain(Option<Box<Chain>>);

fn chain(depth: usize) -> Chain {
    (1..depth).fold(Chain(None), |inner, _| Chain(Some(Box::new(inner))))
}

impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut link) = next {
            next = link.0.take();
        }
    }
}

/// Map with one entry, whose key is the field of the struct.
struct Keyed<K>(K);

impl<K: Serialize> Serialize for Keyed<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(&self.0, 1)])
    }
}

/// Sequence that can be serialized only once.
struct OneShot<I>(RefCell<Option<I>>);

impl<I: Iterator<Item = String>> Serialize for OneShot<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.take().expect("serialized once"))
    }
}

struct Failing;

impl Serialize for Failing {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("é".repeat(300)))
    }
}

/// Sequence whose `Serialize` implementation ignores the error of its first element.
struct Hiding<T>(T);

impl<T: Serialize> Serialize for Hiding<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        let _ = seq.serialize_element(&self.0);
        let _ = seq.serialize_element(&1);
        seq.end().map_err(|_| serde::ser::Error::custom("something else"))
    }
}

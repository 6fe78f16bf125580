//! Where in a payload a fault is, read from the text written before it.
//!
//! It runs only when a payload is refused. A path shows keys, which are names in nearly every payload, cut when long; never a value.

use std::ops::Range;

/// No key in a path shows more characters than this.
const LONGEST_KEY: usize = 64;

/// The path of the value, or of the key, that the text breaks off in or before: `$.user.names[3]`.
pub(super) fn end_of(text: &[u8]) -> String {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'{' => frames.push(Frame::Object(None)),
            b'[' => frames.push(Frame::Array(0)),
            b'}' | b']' => drop(frames.pop()),
            b',' => match frames.last_mut() {
                Some(Frame::Object(key)) => *key = None,
                Some(Frame::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                at = start + string_len(&text[start..]);
                if let Some(Frame::Object(key @ None)) = frames.last_mut() {
                    *key = Some(start..at);
                }
            }
            _ => {}
        }
    }
    frames.iter().fold("$".to_owned(), |path, frame| match frame {
        Frame::Array(index) => format!("{path}[{index}]"),
        Frame::Object(None) => path,
        Frame::Object(Some(key)) => path + &step(&text[key.clone()]),
    })
}

/// How many bytes the string has that the text begins with, quotes included; all of them when it is not closed.
pub(super) fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// A value being written: the member of an object whose key stands there in the text, or the element of an array.
enum Frame {
    Object(Option<Range<usize>>),
    Array(usize),
}

/// A key as it is written in a path.
pub(crate) fn path_step(key: &str) -> String {
    step(serde_json::Value::from(key).to_string().as_bytes())
}

/// A key as it is written in a path, from its JSON text: bare when it is a plain name, else in brackets and still escaped.
fn step(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    let inner = key.strip_prefix('"').unwrap_or(&key);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let shown: String = inner.chars().take(LONGEST_KEY).collect();
    let cut = if shown.len() < inner.len() { "…" } else { "" };
    if !inner.is_empty() && inner.chars().all(|c| c == '_' || c == '-' || c.is_ascii_alphanumeric()) {
        format!(".{shown}{cut}")
    } else {
        format!("[\"{shown}{cut}\"]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_where_the_text_breaks_off() {
        for (text, path) in [
            ("", "$"),
            ("\"a\\\"[b", "$"),
            ("[", "$[0]"),
            ("[1, [], {\"a\": [2]}, ", "$[3]"),
            ("{\"user\": {\"names\": [\"a\", \"b, {\", 3, ", "$.user.names[3]"),
            ("{\"a\": 1, \"b\": {}, \"c\": [[1], [1, ", "$.c[1][1]"),
            ("{\"a\": 1, ", "$"),
            ("{\"a\": {\"b\\\" c\\u0000", "$.a[\"b\\\" c\\u0000\"]"),
            ("{\"\": ", "$[\"\"]"),
        ] {
            assert_eq!(end_of(text.as_bytes()), path, "{text}");
        }
    }

    #[test]
    fn a_long_key_is_cut() {
        let path = end_of(format!("{{\"{}\": ", "é".repeat(1000)).as_bytes());
        assert_eq!(path, format!("$[\"{}…\"]", "é".repeat(64)));
    }
}

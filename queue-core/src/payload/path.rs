//! Path of a fault in a payload, computed from the JSON text before the fault.
//!
//! The path is computed only when a payload is rejected. A path contains keys, which are usually field names, but never values. Long keys
//! are truncated.

use std::ops::Range;

/// Maximum length of a key in a path, in characters.
const MAX_KEY_CHARS: usize = 64;

/// Returns the path of the value or key at which `text` ends, such as `$.user.names[3]`.
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

/// Returns the length in bytes of the string at the start of `text`, including the quotes. An unterminated string extends to the end.
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

/// Object or array that encloses the current position. Stores the text range of an object's current key, or an array's current index.
enum Frame {
    Object(Option<Range<usize>>),
    Array(usize),
}

/// Formats a key as a step of a path.
pub(crate) fn path_step(key: &str) -> String {
    step(serde_json::Value::from(key).to_string().as_bytes())
}

/// Formats a key, given as JSON text, as a step of a path. A plain name is written after a dot. Any other key is escaped and written in
/// brackets.
fn step(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    let inner = key.strip_prefix('"').unwrap_or(&key);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let shown: String = inner.chars().take(MAX_KEY_CHARS).collect();
    let ellipsis = if shown.len() < inner.len() { "…" } else { "" };
    if !inner.is_empty() && inner.chars().all(|c| c == '_' || c == '-' || c.is_ascii_alphanumeric()) {
        format!(".{shown}{ellipsis}")
    } else {
        format!("[\"{shown}{ellipsis}\"]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_points_to_the_end_of_the_text() {
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
    fn a_long_key_is_truncated() {
        let path = end_of(format!("{{\"{}\": ", "é".repeat(1000)).as_bytes());
        assert_eq!(path, format!("$[\"{}…\"]", "é".repeat(64)));
    }
}

//! Texts of handlers, made such that the database takes them: an error's text, and JSON text of an output.

/// The longest error text that is kept, in bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// The longest output that is kept, in bytes of JSON text.
const LONGEST_OUTPUT: usize = 16 * 1024 * 1024;

/// Why an output is refused, if it is.
pub(crate) fn check_output(output: Option<&str>) -> Result<(), String> {
    match output {
        Some(text) if text.len() > LONGEST_OUTPUT => {
            Err(format!("the output is longer than {LONGEST_OUTPUT} bytes; store a reference instead"))
        }
        _ => Ok(()),
    }
}

/// An error text that the database takes: without NUL, at most 8 KiB.
pub(crate) fn storable_error(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
    }
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// JSON text in which an escaped NUL, which jsonb cannot hold, is U+FFFD.
pub(crate) fn storable_output(json: String) -> String {
    if !json.contains("\\u0000") {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = after.strip_prefix("\\u0000") {
            out.push_str("\\ufffd");
            rest = after;
        } else {
            // The backslash and what it escapes, which may be another. A forged `RawValue` may end here, or go on with anything.
            let escape = 1 + after.chars().nth(1).map_or(0, char::len_utf8);
            out.push_str(&after[..escape]);
            rest = &after[escape..];
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f02_a_nul_in_an_output_becomes_the_replacement_character() {
        assert_eq!(storable_output(r#""a\u0000b""#.to_owned()), r#""a\ufffdb""#);
        assert_eq!(storable_output(r#""a\\u0000b\"\u0000""#.to_owned()), r#""a\\u0000b\"\ufffd""#);
        assert_eq!(storable_output(r"\u0000\é\".to_owned()), r"\ufffd\é\", "what is no json goes on to the database, which refuses it");
    }

    #[test]
    fn f17_a_long_error_is_cut_at_a_character() {
        let text = storable_error("é".repeat(LONGEST_ERROR));
        assert_eq!(text.len(), LONGEST_ERROR);
        assert_eq!(storable_error(format!("x{}", "é".repeat(LONGEST_ERROR))).len(), LONGEST_ERROR - 1);
    }
}

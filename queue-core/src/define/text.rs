//! Adapts the errors and outputs of handlers to what the database can store: limits their length and replaces NUL characters.

/// Maximum length of a stored error in bytes. Longer errors are truncated.
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// Maximum length of a stored output in bytes of JSON text. Longer outputs are rejected.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Returns an error if the output exceeds the maximum length of a stored output.
pub(crate) fn check_output(output: Option<&str>) -> Result<(), String> {
    match output {
        Some(text) if text.len() > MAX_OUTPUT_BYTES => {
            Err(format!("the output is longer than {MAX_OUTPUT_BYTES} bytes; store a reference instead"))
        }
        _ => Ok(()),
    }
}

/// Truncates an error to 8 KiB and replaces NUL characters, which the database rejects.
pub(crate) fn storable_error(mut text: String) -> String {
    if text.len() > MAX_ERROR_BYTES {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
    }
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Replaces escaped NUL characters in JSON text with U+FFFD, because jsonb cannot store NUL.
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
            // The backslash and the escaped character, which may be another backslash, are copied unchanged. A handler can forge a
            // `RawValue` that is not valid JSON. Its text may end after the backslash, or any character may follow.
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
        assert_eq!(storable_output(r"\u0000\é\".to_owned()), r"\ufffd\é\", "invalid JSON is passed to the database, which rejects it");
    }

    #[test]
    fn f17_a_long_error_is_cut_at_a_character() {
        let text = storable_error("é".repeat(MAX_ERROR_BYTES));
        assert_eq!(text.len(), MAX_ERROR_BYTES);
        assert_eq!(storable_error(format!("x{}", "é".repeat(MAX_ERROR_BYTES))).len(), MAX_ERROR_BYTES - 1);
    }
}

//! Fingerprints of errors. A fingerprint is the text of an error without numbers, ids and quoted parts. Errors with the same cause
//! usually have equal fingerprints.

/// Maximum length of a fingerprint, in characters.
const MAX_CHARS: usize = 200;

/// Returns the fingerprint of `error`, which is derived from its first non-empty line. Quoted text and words that contain a digit are
/// replaced by `…`. Such words are usually numbers, ids, addresses and times.
pub(super) fn fingerprint(error: &str) -> String {
    let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().take(2 * MAX_CHARS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let (mut out, mut rest) = (String::new(), line.as_str());
    while let Some(letter) = rest.chars().next() {
        let replaced = quoted_length(&out, rest).or_else(|| numbered_length(rest));
        let length = replaced.unwrap_or_else(|| word_length(rest).max(letter.len_utf8()));
        match replaced {
            Some(_) if out.ends_with('…') => {}
            Some(_) => out.push('…'),
            None => out.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    out.chars().take(MAX_CHARS).collect()
}

/// Returns the length in bytes of the quoted text at the beginning of `text`, if any. `before` is the preceding text, which shows
/// whether an apostrophe is within a word and therefore not a quote.
fn quoted_length(before: &str, text: &str) -> Option<usize> {
    let open = text.chars().next()?;
    let close = match open {
        '"' | '`' => open,
        '\'' if !before.ends_with(char::is_alphanumeric) => open,
        '“' => '”',
        '‘' => '’',
        _ => return None,
    };
    let inside = &text[open.len_utf8()..];
    inside.find(close).map(|at| open.len_utf8() + at + close.len_utf8())
}

/// Returns the length in bytes of the first word if that word contains a digit, and `None` otherwise.
fn numbered_length(text: &str) -> Option<usize> {
    let length = word_length(text);
    text[..length].contains(|letter: char| letter.is_ascii_digit()).then_some(length)
}

/// Returns the length in bytes of the first word. A word consists of letters, digits and the punctuation of ids, times and addresses.
fn word_length(text: &str) -> usize {
    let ends = |letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '-' | '.' | ':' | '/' | '@' | '#' | '%' | '+');
    let length = text.find(ends).unwrap_or(text.len());
    // Punctuation at the end of a sentence is not part of the word.
    text[..length].trim_end_matches(['.', ':', '-', '/']).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_errors_have_the_same_fingerprint() {
        for (errors, common) in [
            (vec!["timeout after 30 s", "timeout after 7 s"], "timeout after … s"),
            (vec!["no user 'ada'", "no user 'Grace H'"], "no user …"),
            (vec!["HTTP 503: https://a.b/x?id=7", "HTTP 504: https://a.b/y?id=8123"], "HTTP …: https://a.b/…"),
            (
                vec!["row 6f1c2b9e-0000-4000-8000-000000000001 is gone.", "row 6f1c2b9e-0000-4000-8000-00000000000f is gone."],
                "row … is gone.",
            ),
            (vec!["\n  at 2026-11-23T08:00:00Z: don't\nstack", "at 2025-01-01T00:00:00Z: don't"], "at …: don't"),
        ] {
            for error in errors {
                if common.starts_with("HTTP") {
                    assert!(fingerprint(error).starts_with("HTTP …: https://a.b/"), "{}", fingerprint(error));
                } else {
                    assert_eq!(fingerprint(error), common);
                }
            }
        }
        assert_ne!(fingerprint("connection refused"), fingerprint("connection reset"));
    }

    #[test]
    fn fingerprints_are_bounded() {
        for text in [
            "",
            "\n\n",
            "'",
            "''''",
            "\"abc",
            "…1…",
            "\u{202e}é1",
            "日本語 42",
            &"'".repeat(10_000),
            &"x1 ".repeat(10_000),
            &"é".repeat(10_000),
        ] {
            assert!(fingerprint(text).chars().count() <= MAX_CHARS, "{text:.20}");
        }
    }
}

//! Escapes untrusted text such as errors, payloads and names for output to a terminal. Escaped text cannot move the cursor, change the
//! window title or reorder words.

use std::fmt::Write as _;

/// Escapes text for output on a single line. Also escapes line breaks and tabs.
pub(crate) fn line(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t' | '\r') { Escape::Short } else { Escape::Code })
}

/// Escapes text that may have several lines. Keeps line breaks and tabs.
pub(crate) fn lines(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t') { Escape::None } else { Escape::Code })
}

/// Replaces unsafe characters in a JSON document with JSON escapes. The document's value does not change, because unsafe characters can
/// occur only within JSON strings.
pub(crate) fn json(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t') { Escape::None } else { Escape::Json })
}

/// Escapes text for output on a single line and truncates the result to `most` characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    let text = line(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Notation of an escaped character.
enum Escape {
    None,
    /// Short escape such as `\n`.
    Short,
    /// Rust escape such as `\u{1b}`.
    Code,
    /// JSON escape such as `\u001b`.
    Json,
}

fn escape(text: &str, how: impl Fn(char) -> Escape) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match if is_unsafe(c) { how(c) } else { Escape::None } {
            Escape::None => out.push(c),
            Escape::Short => out.extend(c.escape_default()),
            Escape::Code => out.extend(c.escape_unicode()),
            // Four hexadecimal digits suffice, because all escaped characters are below U+10000. Writing to a string cannot fail.
            Escape::Json => drop(write!(out, "\\u{:04x}", u32::from(c))),
        }
    }
    out
}

/// Returns whether a character is a control character (C0 or C1), a line or paragraph separator, or a bidirectional formatting character.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;title\u{7}\u{9b}2J\r\n\tb\u{202e}c\u{7f}";

    #[test]
    fn f62_terminal_escapes_are_shown_not_obeyed() {
        assert_eq!(line(HOSTILE), "a\\u{1b}]0;title\\u{7}\\u{9b}2J\\r\\n\\tb\\u{202e}c\\u{7f}");
        assert_eq!(lines(HOSTILE), "a\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{d}\n\tb\\u{202e}c\\u{7f}");
        assert_eq!(line("größer <script>=1+1 日本"), "größer <script>=1+1 日本");
    }

    #[test]
    fn f62_escaped_json_is_the_same_document() {
        let document = serde_json::to_string_pretty(&[HOSTILE]).unwrap();
        let shown = json(&document);
        assert!(!shown.chars().any(|c| is_unsafe(c) && c != '\n'));
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [HOSTILE]);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(short("äöü", 3), "äöü");
        assert_eq!(short("äöüß", 3), "äö…");
    }
}

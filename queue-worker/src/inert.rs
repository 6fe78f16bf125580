//! Texts from elsewhere (errors, payloads, names), made harmless for a terminal: it must not move the cursor, change the title, or show words
//! in another order because a job's error said so.

use std::fmt::Write as _;

/// One line: line breaks and tabs are escaped like everything else that is not to be printed.
pub(crate) fn line(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t' | '\r') { Escape::Short } else { Escape::Code })
}

/// Several lines: line breaks and tabs stay.
pub(crate) fn lines(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t') { Escape::None } else { Escape::Code })
}

/// A JSON document stays the same document: what is escaped can only stand in a string.
pub(crate) fn json(text: &str) -> String {
    escape(text, |c| if matches!(c, '\n' | '\t') { Escape::None } else { Escape::Json })
}

/// One line of at most `most` characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    let text = line(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// How a character that acts instead of being seen is shown.
enum Escape {
    None,
    /// As `\n`.
    Short,
    /// As `\u{1b}`.
    Code,
    /// As `\u001b`.
    Json,
}

fn escape(text: &str, how: impl Fn(char) -> Escape) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match if acts(c) { how(c) } else { Escape::None } {
            Escape::None => out.push(c),
            Escape::Short => out.extend(c.escape_default()),
            Escape::Code => out.extend(c.escape_unicode()),
            // All that acts is below U+10000. Writing to a string cannot fail.
            Escape::Json => drop(write!(out, "\\u{:04x}", u32::from(c))),
        }
    }
    out
}

/// Control characters of both sets, line separators, and those that reorder text.
fn acts(c: char) -> bool {
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
        assert!(!shown.chars().any(|c| acts(c) && c != '\n'));
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [HOSTILE]);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(short("äöü", 3), "äöü");
        assert_eq!(short("äöüß", 3), "äö…");
    }
}

//! Bounded text buffer that keeps the first and the last lines and counts the dropped lines.

use std::{collections::VecDeque, fmt};

/// Log text up to a size limit in bytes.
#[derive(Debug)]
pub(in crate::attempt) struct LogRing {
    /// Beginning of the text, up to half of the limit.
    head: Vec<u8>,
    /// End of the text, up to half of the limit. Empty until `head` is full.
    tail: VecDeque<u8>,
    limit: usize,
    /// Number of dropped bytes, and number of dropped line breaks.
    dropped: (u64, u64),
}

/// Text of a closed log, with the number of lines that are missing or truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::attempt) struct LogExcerpt {
    /// Log lines, with a marker in place of the dropped lines.
    pub(in crate::attempt) text: String,
    /// Number of dropped or truncated lines.
    pub(in crate::attempt) cut: u64,
}

impl LogRing {
    pub(in crate::attempt) fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), limit, dropped: (0, 0) }
    }

    pub(in crate::attempt) fn push(&mut self, text: &str) {
        let free = self.limit.div_ceil(2) - self.head.len();
        let (first, mut rest) = text.as_bytes().split_at(free.min(text.len()));
        self.head.extend_from_slice(first);
        let tail_limit = self.limit / 2;
        if rest.len() > tail_limit {
            let (excess, last) = rest.split_at(rest.len() - tail_limit);
            let all = self.tail.len();
            self.drop_front(all);
            self.dropped = (self.dropped.0 + excess.len() as u64, self.dropped.1 + count_line_ends(excess.iter()));
            rest = last;
        }
        self.drop_front((self.tail.len() + rest.len()).saturating_sub(tail_limit));
        self.tail.extend(rest);
    }

    fn drop_front(&mut self, count: usize) {
        let lines = self.tail.drain(..count).filter(|byte| *byte == b'\n').count() as u64;
        self.dropped = (self.dropped.0 + count as u64, self.dropped.1 + lines);
    }

    /// Returns the text. If the middle was dropped, the text is cut at line boundaries where possible.
    pub(in crate::attempt) fn finish(self) -> LogExcerpt {
        let Self { mut head, tail, dropped: (bytes, lines), .. } = self;
        let mut tail: Vec<u8> = tail.into();
        if bytes == 0 {
            head.append(&mut tail);
            return LogExcerpt { text: String::from_utf8_lossy(&head).into_owned(), cut: 0 };
        }
        let end = head.iter().rposition(|byte| *byte == b'\n').map_or_else(|| whole_chars_len(&head), |end| end + 1);
        let begin = tail.iter().position(|byte| *byte == b'\n').filter(|end| end + 1 < tail.len()).map_or(0, |end| end + 1);
        let begin = begin + tail[begin..].iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
        let (head_rest, tail_rest) = (&head[end..], &tail[..begin]);
        let bytes = bytes + (head_rest.len() + tail_rest.len()) as u64;
        let cut = (lines + count_line_ends(tail_rest.iter())).max(1);
        let (head, tail) = (String::from_utf8_lossy(&head[..end]), String::from_utf8_lossy(&tail[begin..]));
        let end = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
        let lines = if cut == 1 { "line" } else { "lines" };
        LogExcerpt { text: format!("{head}{end}[{cut} {lines} left out or cut, {bytes} bytes]\n{tail}"), cut }
    }
}

/// Returns the length of the longest prefix that is valid UTF-8.
fn whole_chars_len(text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        Err(error) => error.valid_up_to(),
    }
}

fn count_line_ends<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.filter(|byte| **byte == b'\n').count() as u64
}

/// Writer that replaces control characters and characters that change the text direction. Text after a line break is indented, so that it
/// cannot imitate a new log line.
pub(in crate::attempt) struct SanitizedWriter<'a>(pub(in crate::attempt) &'a mut LogRing);

impl fmt::Write for SanitizedWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, unsafe_char)) = rest.char_indices().find(|(_, letter)| is_unsafe_char(*letter)) {
            let (plain, after) = rest.split_at(at);
            self.0.push(plain);
            match unsafe_char {
                '\n' => self.0.push("\n    "),
                // The Unicode symbols for control characters are in the same order as the control characters.
                '\0'..='\u{1f}' => {
                    self.0.push(char::from_u32(0x2400 + u32::from(unsafe_char)).unwrap_or('\u{fffd}').encode_utf8(&mut [0; 4]));
                }
                _ => self.0.push("\u{fffd}"),
            }
            rest = &after[unsafe_char.len_utf8()..];
        }
        self.0.push(rest);
        Ok(())
    }
}

/// Returns whether the character is a control character other than a tab, or changes the text direction.
fn is_unsafe_char(letter: char) -> bool {
    (letter.is_control() && letter != '\t') || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn ring(limit: usize, pieces: &[&str]) -> LogExcerpt {
        let mut ring = LogRing::new(limit);
        for piece in pieces {
            ring.push(piece);
        }
        ring.finish()
    }

    #[test]
    fn text_within_the_limit_is_unchanged() {
        assert_eq!(ring(8, &["one\n", "two\n"]), LogExcerpt { text: "one\ntwo\n".to_owned(), cut: 0 });
        assert_eq!(ring(1, &[]), LogExcerpt { text: String::new(), cut: 0 });
    }

    #[test]
    fn the_first_and_the_last_of_too_many_lines_are_kept() {
        let mut ring = LogRing::new(40);
        (0..1_000_000).for_each(|line| ring.push(&format!("{line}\n")));
        assert!(ring.head.capacity() + ring.tail.capacity() <= 200);
        let LogExcerpt { text, cut } = ring.finish();
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with('[')).collect();
        assert!(kept.contains(&"0") && kept.last() == Some(&"999999"), "{text}");
        assert_eq!(cut as usize + kept.len(), 1_000_000, "{text}");
        assert!(text.contains(&format!("[{cut} lines left out or cut, ")), "{text}");
    }

    #[test]
    fn a_long_line_keeps_its_start_and_its_end_as_whole_characters() {
        let LogExcerpt { text, cut } = ring(11, &[&"ä".repeat(1000), "\n"]);
        assert_eq!((text.as_str(), cut), ("äää\n[1 line left out or cut, 1990 bytes]\nää\n", 1));
        let LogExcerpt { text, .. } = ring(1, &["xyz\n"]);
        assert_eq!(text, "x\n[1 line left out or cut, 3 bytes]\n");
    }

    #[test]
    fn control_characters_are_replaced_by_symbols() {
        let mut ring = LogRing::new(1000);
        write!(SanitizedWriter(&mut ring), "a\0b\u{1b}[31mred\r\nmore\ttab\u{9b}\u{202e}\u{7f}").unwrap();
        assert_eq!(ring.finish().text, "a\u{2400}b\u{241b}[31mred\u{240d}\n    more\ttab\u{fffd}\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn any_input_becomes_bounded_text_without_nul(limit in 1_usize..200, pieces in proptest::collection::vec(".{0,60}", 0..20)) {
            let mut ring = LogRing::new(limit);
            for piece in &pieces {
                write!(SanitizedWriter(&mut ring), "{piece}").unwrap();
                ring.push("\n");
            }
            let all = ring.head.len() + ring.tail.len();
            prop_assert!(all <= limit);
            let LogExcerpt { text, cut } = ring.finish();
            prop_assert!(!text.contains('\0') && text.len() <= limit + 80 && cut <= 1 + pieces.iter().map(|piece| 1 + piece.matches('\n').count() as u64).sum::<u64>(), "{text}");
        }
    }
}

//! A bounded text of lines: its begin and its end are kept, and of the middle how much there was. Pure.

use std::{collections::VecDeque, fmt};

/// What is kept of lines that may be any number, in no more bytes than its limit.
#[derive(Debug)]
pub(in crate::attempt) struct Ring {
    /// The first half.
    head: Vec<u8>,
    /// The last half, once there is more than the first.
    tail: VecDeque<u8>,
    limit: usize,
    /// How many bytes and ends of lines the tail has lost.
    lost: (u64, u64),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::attempt) struct KeptLog {
    /// The lines, each with its end. What is left out is told in its place.
    pub(in crate::attempt) text: String,
    /// How many lines are left out, or cut.
    pub(in crate::attempt) cut: u64,
}

impl Ring {
    pub(in crate::attempt) fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), limit, lost: (0, 0) }
    }

    pub(in crate::attempt) fn push(&mut self, text: &str) {
        let room = self.limit.div_ceil(2) - self.head.len();
        let (first, mut rest) = text.as_bytes().split_at(room.min(text.len()));
        self.head.extend_from_slice(first);
        let most = self.limit / 2;
        if rest.len() > most {
            let (over, last) = rest.split_at(rest.len() - most);
            let all = self.tail.len();
            self.lose(all);
            self.lost = (self.lost.0 + over.len() as u64, self.lost.1 + ends(over.iter()));
            rest = last;
        }
        self.lose((self.tail.len() + rest.len()).saturating_sub(most));
        self.tail.extend(rest);
    }

    fn lose(&mut self, count: usize) {
        let over = self.tail.drain(..count).filter(|byte| *byte == b'\n').count() as u64;
        self.lost = (self.lost.0 + count as u64, self.lost.1 + over);
    }

    /// Whole lines, if there are any on either side of what is left out.
    pub(in crate::attempt) fn finish(self) -> KeptLog {
        let Self { mut head, tail, lost: (bytes, lines), .. } = self;
        let mut tail: Vec<u8> = tail.into();
        if bytes == 0 {
            head.append(&mut tail);
            return KeptLog { text: String::from_utf8_lossy(&head).into_owned(), cut: 0 };
        }
        let end = head.iter().rposition(|byte| *byte == b'\n').map_or_else(|| whole(&head), |end| end + 1);
        let begin = tail.iter().position(|byte| *byte == b'\n').filter(|end| end + 1 < tail.len()).map_or(0, |end| end + 1);
        let begin = begin + tail[begin..].iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
        let (over, under) = (&head[end..], &tail[..begin]);
        let bytes = bytes + (over.len() + under.len()) as u64;
        let cut = (lines + ends(under.iter())).max(1);
        let (head, tail) = (String::from_utf8_lossy(&head[..end]), String::from_utf8_lossy(&tail[begin..]));
        let end = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
        let lines = if cut == 1 { "line" } else { "lines" };
        KeptLog { text: format!("{head}{end}[{cut} {lines} left out or cut, {bytes} bytes]\n{tail}"), cut }
    }
}

/// How many of these bytes are whole characters.
fn whole(text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        Err(error) => error.valid_up_to(),
    }
}

fn ends<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.filter(|byte| **byte == b'\n').count() as u64
}

/// Writes into it what a terminal, a browser and the database show as it is. A line that goes on is indented, so that none can pass for another.
pub(in crate::attempt) struct Clean<'a>(pub(in crate::attempt) &'a mut Ring);

impl fmt::Write for Clean<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, odd)) = rest.char_indices().find(|(_, letter)| is_odd(*letter)) {
            let (plain, after) = rest.split_at(at);
            self.0.push(plain);
            match odd {
                '\n' => self.0.push("\n    "),
                // The pictures of control characters stand in their order.
                '\0'..='\u{1f}' => self.0.push(char::from_u32(0x2400 + u32::from(odd)).unwrap_or('\u{fffd}').encode_utf8(&mut [0; 4])),
                _ => self.0.push("\u{fffd}"),
            }
            rest = &after[odd.len_utf8()..];
        }
        self.0.push(rest);
        Ok(())
    }
}

/// Control characters, and those that turn the direction of a text.
fn is_odd(letter: char) -> bool {
    (letter.is_control() && letter != '\t') || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn ring(limit: usize, pieces: &[&str]) -> KeptLog {
        let mut ring = Ring::new(limit);
        for piece in pieces {
            ring.push(piece);
        }
        ring.finish()
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        assert_eq!(ring(8, &["one\n", "two\n"]), KeptLog { text: "one\ntwo\n".to_owned(), cut: 0 });
        assert_eq!(ring(1, &[]), KeptLog { text: String::new(), cut: 0 });
    }

    #[test]
    fn of_too_many_lines_the_first_and_the_last_are_kept() {
        let mut ring = Ring::new(40);
        (0..1_000_000).for_each(|line| ring.push(&format!("{line}\n")));
        assert!(ring.head.capacity() + ring.tail.capacity() <= 200);
        let KeptLog { text, cut } = ring.finish();
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with('[')).collect();
        assert!(kept.contains(&"0") && kept.last() == Some(&"999999"), "{text}");
        assert_eq!(cut as usize + kept.len(), 1_000_000, "{text}");
        assert!(text.contains(&format!("[{cut} lines left out or cut, ")), "{text}");
    }

    #[test]
    fn of_one_line_that_is_too_long_the_begin_and_the_end_are_kept_as_whole_characters() {
        let KeptLog { text, cut } = ring(11, &[&"ä".repeat(1000), "\n"]);
        assert_eq!((text.as_str(), cut), ("äää\n[1 line left out or cut, 1990 bytes]\nää\n", 1));
        let KeptLog { text, .. } = ring(1, &["xyz\n"]);
        assert_eq!(text, "x\n[1 line left out or cut, 3 bytes]\n");
    }

    #[test]
    fn what_would_not_be_shown_as_it_is_has_a_picture() {
        let mut ring = Ring::new(1000);
        write!(Clean(&mut ring), "a\0b\u{1b}[31mred\r\nmore\ttab\u{9b}\u{202e}\u{7f}").unwrap();
        assert_eq!(ring.finish().text, "a\u{2400}b\u{241b}[31mred\u{240d}\n    more\ttab\u{fffd}\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_text_without_nul_in_bounds(limit in 1_usize..200, pieces in proptest::collection::vec(".{0,60}", 0..20)) {
            let mut ring = Ring::new(limit);
            for piece in &pieces {
                write!(Clean(&mut ring), "{piece}").unwrap();
                ring.push("\n");
            }
            let all = ring.head.len() + ring.tail.len();
            prop_assert!(all <= limit);
            let KeptLog { text, cut } = ring.finish();
            prop_assert!(!text.contains('\0') && text.len() <= limit + 80 && cut <= 1 + pieces.iter().map(|piece| 1 + piece.matches('\n').count() as u64).sum::<u64>(), "{text}");
        }
    }
}

//! What a statement is written with: words, operators and brackets, each with the white space before it. It knows nothing of schemas.

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A name, a keyword, a parameter or a literal.
    Word,
    Operator,
    /// `operator(schema.+)`, as it stands.
    Qualified,
    Open,
    Close,
    /// `.`, `::` and the like.
    Mark,
}

#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// White space and comments before it.
    pub(super) space: &'a str,
    pub(super) text: &'a str,
    pub(super) kind: Kind,
}

impl Token<'_> {
    pub(super) fn is(self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(super) fn is_one_of(self, words: &[&str]) -> bool {
        self.kind == Kind::Word && words.iter().any(|word| self.is(word))
    }
}

/// The tokens of a text, and what stands after the last of them.
pub(super) fn tokens(text: &str) -> (Vec<Token<'_>>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let token = &rest[space(rest)..];
        let Some(first) = token.chars().next() else {
            return (found, rest);
        };
        let (kind, long) = match first {
            '\'' | '"' => (Kind::Word, literal(token, first)),
            '(' | '[' => (Kind::Open, 1),
            ')' | ']' => (Kind::Close, 1),
            _ if is_word(first) => word(token),
            _ if is_operator(first) => operator(token),
            _ if token.starts_with("::") || token.starts_with(":=") => (Kind::Mark, 2),
            _ => (Kind::Mark, first.len_utf8()),
        };
        let kind = if &token[..long] == "=>" { Kind::Mark } else { kind };
        found.push(Token { space: &rest[..rest.len() - token.len()], text: &token[..long], kind });
        rest = &token[long..];
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn is_operator(c: char) -> bool {
    "+-*/<>=~!@#%^&|`?".contains(c)
}

/// How long the white space and the comments are that a text begins with.
fn space(text: &str) -> usize {
    let mut rest = text.trim_start();
    while rest.starts_with("--") {
        rest = rest.find('\n').map_or("", |end| &rest[end..]).trim_start();
    }
    text.len() - rest.len()
}

/// A quote is written twice within.
fn literal(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(end) = text[at..].find(quote) {
        at += end + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// A name, a number, a parameter; an operator with its schema; a literal with its prefix.
fn word(text: &str) -> (Kind, usize) {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c| !(is_word(c) || is_number && c == '.')).unwrap_or(text.len());
    let rest = &text[end..];
    if text[..end].eq_ignore_ascii_case("operator") && rest.starts_with('(') {
        return (Kind::Qualified, rest.find(')').map_or(text.len(), |close| end + close + 1));
    }
    (Kind::Word, if end == 1 && rest.starts_with('\'') { end + literal(rest, '\'') } else { end })
}

/// A comment ends an operator. So does a sign, unless one of the less common characters is before it.
fn operator(text: &str) -> (Kind, usize) {
    let mut end = text.find(|c| !is_operator(c)).unwrap_or(text.len());
    end = text[..end].find("--").unwrap_or(end);
    while end > 1 && text[..end].ends_with(['+', '-']) && !text[..end].contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) {
        end -= 1;
    }
    (Kind::Operator, end)
}

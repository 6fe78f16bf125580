//! Lexer for SQL statements. Each token is returned with the white space and comments before it. This module does not depend on schemas.

#[derive(Clone, Copy, PartialEq)]
pub(super) enum TokenKind {
    /// Name, keyword, parameter or literal.
    Word,
    Operator,
    /// Operator in the form `operator(schema.+)`, which is already qualified.
    Qualified,
    Open,
    Close,
    /// Punctuation such as `.` and `::`.
    Mark,
}

#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// White space and comments before the token.
    pub(super) space: &'a str,
    pub(super) text: &'a str,
    pub(super) kind: TokenKind,
}

impl Token<'_> {
    pub(super) fn is(self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(super) fn is_one_of(self, words: &[&str]) -> bool {
        self.kind == TokenKind::Word && words.iter().any(|word| self.is(word))
    }
}

/// Returns the tokens of `text`, and the rest after the last token.
pub(super) fn tokens(text: &str) -> (Vec<Token<'_>>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let token = &rest[space(rest)..];
        let Some(first) = token.chars().next() else {
            return (found, rest);
        };
        let (kind, long) = match first {
            '\'' | '"' => (TokenKind::Word, literal(token, first)),
            '(' | '[' => (TokenKind::Open, 1),
            ')' | ']' => (TokenKind::Close, 1),
            _ if is_word(first) => word(token),
            _ if is_operator(first) => operator(token),
            _ if token.starts_with("::") || token.starts_with(":=") => (TokenKind::Mark, 2),
            _ => (TokenKind::Mark, first.len_utf8()),
        };
        let kind = if &token[..long] == "=>" { TokenKind::Mark } else { kind };
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

/// Returns the length of leading white space and comments.
fn space(text: &str) -> usize {
    let mut rest = text.trim_start();
    while rest.starts_with("--") {
        rest = rest.find('\n').map_or("", |end| &rest[end..]).trim_start();
    }
    text.len() - rest.len()
}

/// Returns the length of a quoted literal. A doubled quote does not end the literal.
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

/// Returns the kind and length of a word: a name, a number, a parameter, a literal with a prefix, or a schema-qualified operator.
fn word(text: &str) -> (TokenKind, usize) {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c| !(is_word(c) || is_number && c == '.')).unwrap_or(text.len());
    let rest = &text[end..];
    if text[..end].eq_ignore_ascii_case("operator") && rest.starts_with('(') {
        return (TokenKind::Qualified, rest.find(')').map_or(text.len(), |close| end + close + 1));
    }
    (TokenKind::Word, if end == 1 && rest.starts_with('\'') { end + literal(rest, '\'') } else { end })
}

/// Returns the kind and length of an operator. A comment ends the operator. As in PostgreSQL, a multi-character operator does not end in
/// `+` or `-`, unless it contains one of the characters ``~ ! @ # % ^ & | ` ?``.
fn operator(text: &str) -> (TokenKind, usize) {
    let mut end = text.find(|c| !is_operator(c)).unwrap_or(text.len());
    end = text[..end].find("--").unwrap_or(end);
    while end > 1 && text[..end].ends_with(['+', '-']) && !text[..end].contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) {
        end -= 1;
    }
    (TokenKind::Operator, end)
}

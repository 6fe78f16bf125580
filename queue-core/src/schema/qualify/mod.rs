//! Makes a statement independent of the caller's `search_path`. Operators, functions and types are schema-qualified.
//!
//! The SQL files use plain SQL. Without the rewrite, a user who may create objects in a schema of another user's `search_path` could make
//! that user run a planted operator. `operator(..)` has a different precedence than the operator itself, so every compound operand gets
//! parentheses. The parser covers only the grammar that the store's statements use. A test compares how the server parses each statement
//! before and after the rewrite. The rewrite is purely syntactic, and does not resolve names.

mod tokens;

use self::tokens::{Token, TokenKind, tokens};

/// Keywords that may precede a parenthesis but are not function names.
const SPECIAL_FORMS: &[&str] =
    &["all", "any", "array", "cast", "coalesce", "exists", "extract", "greatest", "least", "nullif", "operator", "row", "some"];

/// Type names that are SQL keywords and belong to no schema.
const TYPES: &[&str] = &[
    "bigint",
    "bit",
    "boolean",
    "char",
    "character",
    "decimal",
    "double",
    "float",
    "int",
    "integer",
    "interval",
    "numeric",
    "real",
    "smallint",
    "varchar",
];

/// Names of types that may precede a literal, as in `date '2026-01-02'`.
const LITERALS: &[&str] = &["date", "jsonb", "text", "timestamptz", "uuid", "xid8"];

/// Keywords that delimit expressions.
const BOUNDARIES: &[&str] = &[
    "and",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "conflict",
    "cross",
    "default",
    "delete",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "fetch",
    "following",
    "for",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "insert",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "left",
    "limit",
    "locked",
    "materialized",
    "natural",
    "not",
    "nothing",
    "notnull",
    "nulls",
    "of",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "ordinality",
    "outer",
    "partition",
    "preceding",
    "range",
    "recursive",
    "returning",
    "right",
    "row",
    "rows",
    "select",
    "set",
    "share",
    "skip",
    "then",
    "union",
    "update",
    "using",
    "values",
    "when",
    "where",
    "with",
];

/// Precedence levels of operators, lowest first: comparisons, `in`, other operators, and arithmetic operators.
const COMPARES: u8 = 1;
const CONTAINS: u8 = 2;
const OTHER: u8 = 3;
const ADDS: u8 = 4;
const MULTIPLIES: u8 = 5;
const RAISES: u8 = 6;

/// Returns the statement with schema-qualified operators, functions and types.
pub(super) fn qualify(statement: &str) -> String {
    let (tokens, rest) = tokens(statement);
    let mut reader = TokenReader { tokens: &tokens, at: 0 };
    let mut out = String::with_capacity(statement.len() * 2);
    while reader.peek().is_some() {
        reader.region(&mut out);
        // Copies an unmatched closing bracket or `end`.
        reader.copy(&mut out, "");
    }
    out + rest
}

struct TokenReader<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

/// Text of an expression, and whether its top level has an operator.
type Expression = (String, bool);

impl<'a> TokenReader<'_, 'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn after(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).copied()
    }

    fn next_if(&mut self, accepts: impl Fn(Token<'a>) -> bool) -> Option<Token<'a>> {
        let token = self.peek().filter(|token| accepts(*token))?;
        self.at += 1;
        Some(token)
    }

    /// Writes qualified expressions and the keywords between them to `out`, up to the next unmatched closing bracket or `end`.
    fn region(&mut self, out: &mut String) {
        let (mut sets, mut begins) = (false, false);
        while let Some(token) = self.peek() {
            if token.kind == TokenKind::Close || token.is("end") {
                return;
            } else if sets && begins {
                // The target of an assignment is not an expression, and the `=` after it is not an operator.
                while let Some(token) = self.next_if(|_| true) {
                    push(out, token);
                    if token.is("=") {
                        break;
                    }
                }
                begins = false;
            } else if token.kind == TokenKind::Mark || token.is_one_of(BOUNDARIES) && !token.is("case") {
                self.at += 1;
                push(out, token);
                sets = token.is("set") || sets && !token.is_one_of(&["from", "where", "returning"]);
                begins = token.is("set") || token.is(",");
            } else {
                out.push_str(&self.expression(0).0);
            }
        }
    }

    /// Parses an expression whose operators have at least the precedence `least`.
    fn expression(&mut self, least: u8) -> Expression {
        let mut left = (self.operand(), false);
        while let Some(token) = self.peek() {
            let is_not_in = token.is("not") && self.after().is_some_and(|next| next.is("in"));
            let tight = match token.kind {
                TokenKind::Qualified => OTHER,
                TokenKind::Operator => precedence(token.text),
                _ if is_not_in || token.is("in") => CONTAINS,
                _ => break,
            };
            if tight < least {
                break;
            }
            self.at += 1 + usize::from(is_not_in);
            let left_text = wrap(left);
            left = if tight == CONTAINS {
                (self.contains(&left_text, is_not_in), true)
            } else {
                let right = wrap(self.expression(tight + 1));
                let operator = if token.kind == TokenKind::Qualified { token.text.to_owned() } else { qualified(token.text) };
                (format!("{left_text}{}{operator}{right}", token.space), true)
            };
        }
        left
    }

    /// Parses the list or query after `in`, and returns the comparison of `left` with it.
    fn contains(&mut self, left: &str, is_not_in: bool) -> String {
        let is_query = self.after().is_some_and(|token| token.is_one_of(&["select", "values", "with"]));
        let mut right = String::new();
        self.group(&mut right);
        let (space, body) = split(left);
        match right.trim_start().strip_prefix('(').and_then(|list| list.strip_suffix(')')) {
            Some(list) if !is_query && is_not_in => format!("{left} {} all (array[{list}])", qualified("<>")),
            Some(list) if !is_query => format!("{left} {} any (array[{list}])", qualified("=")),
            _ if is_not_in => format!("{space}(not {body} {} any{right})", qualified("=")),
            _ => format!("{left} {} any{right}", qualified("=")),
        }
    }

    /// Copies a bracketed group with its content.
    fn group(&mut self, out: &mut String) {
        if let Some(open) = self.next_if(|token| token.kind == TokenKind::Open) {
            push(out, open);
            self.region(out);
            if let Some(close) = self.next_if(|token| token.kind == TokenKind::Close) {
                push(out, close);
            }
        }
    }

    /// Parses an operand, consuming at least one token.
    fn operand(&mut self) -> String {
        let mut out = String::new();
        let mut after_dot = false;
        if let Some(sign) = self.next_if(|token| token.kind == TokenKind::Operator) {
            let is_number = self.peek().is_some_and(|next| next.text.starts_with(|c: char| c.is_ascii_digit()));
            if sign.is("*") || is_number && sign.is("-") && self.after().is_none_or(|next| next.text != "::") {
                push(&mut out, sign);
            } else {
                let operand = self.operand();
                return format!("{}({}{operand})", sign.space, qualified(sign.text));
            }
        }
        while let Some(token) = self.peek() {
            let calls = self.after().is_some_and(|next| next.text == "(" && next.space.is_empty());
            match token.kind {
                TokenKind::Open => self.group(&mut out),
                TokenKind::Mark if token.is("::") => self.cast(&mut out),
                TokenKind::Mark if token.is(".") || token.is(":") => self.copy(&mut out, ""),
                TokenKind::Operator if after_dot => self.copy(&mut out, ""),
                TokenKind::Word if token.is("case") && !after_dot => {
                    self.copy(&mut out, "");
                    self.region(&mut out);
                    self.copy(&mut out, "");
                }
                TokenKind::Word if calls && !after_dot => {
                    let is_form = token.is_one_of(SPECIAL_FORMS) || token.is("unnest") && self.has_many_arguments();
                    self.copy(&mut out, if is_form { "" } else { CATALOG });
                }
                TokenKind::Word if after_dot || !token.is_one_of(BOUNDARIES) => {
                    let is_literal = token.is_one_of(LITERALS) && self.after().is_some_and(|next| next.text.starts_with('\''));
                    self.copy(&mut out, if is_literal && !after_dot { CATALOG } else { "" });
                }
                _ => break,
            }
            after_dot = token.is(".");
        }
        out
    }

    /// Returns whether the next call has several arguments. `unnest` with several arrays is an SQL construct that belongs to no schema.
    fn has_many_arguments(&self) -> bool {
        let mut depth = 0;
        for token in &self.tokens[self.at + 1..] {
            depth += i32::from(token.kind == TokenKind::Open) - i32::from(token.kind == TokenKind::Close);
            if depth == 0 || depth == 1 && token.text == "," {
                return depth == 1;
            }
        }
        false
    }

    /// Copies `::` and the type name, and adds the schema unless the name has a schema or is an SQL keyword.
    fn cast(&mut self, out: &mut String) {
        self.copy(out, "");
        let has_schema = self.after().is_some_and(|next| next.text == ".");
        if let Some(name) = self.peek().filter(|name| name.kind == TokenKind::Word) {
            self.copy(out, if has_schema || name.is_one_of(TYPES) { "" } else { CATALOG });
        }
    }

    /// Copies the next token, with the prefix `before` in front of its text.
    fn copy(&mut self, out: &mut String, before: &str) {
        if let Some(token) = self.next_if(|_| true) {
            out.push_str(token.space);
            out.push_str(before);
            out.push_str(token.text);
        }
    }
}

const CATALOG: &str = "pg_catalog.";

fn push(out: &mut String, token: Token<'_>) {
    out.push_str(token.space);
    out.push_str(token.text);
}

fn qualified(operator: &str) -> String {
    // `!=` is an alias of `<>`, and does not exist as an operator in `pg_catalog`.
    format!("operator({CATALOG}{})", if operator == "!=" { "<>" } else { operator })
}

/// Adds parentheses around a compound expression.
fn wrap((text, is_compound): Expression) -> String {
    if !is_compound {
        return text;
    }
    let (space, body) = split(&text);
    format!("{space}({body})")
}

/// Splits text into its leading white space and the rest.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start().len())
}

fn precedence(operator: &str) -> u8 {
    match operator {
        "<" | ">" | "=" | "<=" | ">=" | "<>" | "!=" => COMPARES,
        "+" | "-" => ADDS,
        "*" | "/" | "%" => MULTIPLIES,
        "^" => RAISES,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_keep_their_precedence() {
        for (written, want) in [
            ("where a = b + c * 2 and d", "where a operator(pg_catalog.=) (b operator(pg_catalog.+) (c operator(pg_catalog.*) 2)) and d"),
            ("a - b - c", "(a operator(pg_catalog.-) b) operator(pg_catalog.-) c"),
            ("x >> 33 << 33", "(x operator(pg_catalog.>>) 33) operator(pg_catalog.<<) 33"),
            ("count(*), e.*, $1 * -1", "pg_catalog.count(*), e.*, $1 operator(pg_catalog.*) -1"),
            ("a = -b", "a operator(pg_catalog.=) (operator(pg_catalog.-)b)"),
            ("a != 'it''s = b' -- c = d\n", "a operator(pg_catalog.<>) 'it''s = b' -- c = d\n"),
            ("case when a < b then c end > d", "case when a operator(pg_catalog.<) b then c end operator(pg_catalog.>) d"),
        ] {
            assert_eq!(qualify(written), want, "{written}");
        }
    }

    #[test]
    fn functions_types_and_lists_are_named_with_their_schema() {
        for (written, want) in [
            ("f(a)::text[] || queue.f(now())", "pg_catalog.f(a)::pg_catalog.text[] operator(pg_catalog.||) queue.f(pg_catalog.now())"),
            ("$1::int, $2::float8, $3::queue.removed_entry", "$1::int, $2::pg_catalog.float8, $3::queue.removed_entry"),
            ("greatest(a, jsonb '{}', interval '1 s')", "greatest(a, pg_catalog.jsonb '{}', interval '1 s')"),
            ("not a in (1, (f(2)))", "not a operator(pg_catalog.=) any (array[1, (pg_catalog.f(2))])"),
            ("b and a not in (select b from c)", "b and (not a operator(pg_catalog.=) any (select b from c))"),
            ("a not in ('b', 'c') = d", "(a operator(pg_catalog.<>) all (array['b', 'c'])) operator(pg_catalog.=) d"),
            ("a = any ($1)", "a operator(pg_catalog.=) any ($1)"),
        ] {
            assert_eq!(qualify(written), want, "{written}");
        }
    }

    #[test]
    fn assignments_and_named_arguments_are_unchanged() {
        for written in ["update t set a = $1, (b, c) = (select d) from e", "f.g(h => $1)", "a operator(pg_catalog.+) b", "select i.*"] {
            assert_eq!(qualify(written), written);
        }
    }

    #[test]
    fn invalid_statements_lose_no_characters() {
        for text in ["", ")", "(", "'", "case", "end end", "a ] b", "::", "queue.wake", "--", "x -- y", "operator(", "é.ü"] {
            let kept = qualify(text);
            assert!(text.chars().filter(|c| !c.is_whitespace()).all(|c| kept.contains(c)), "{text}: {kept}");
        }
    }
}

//! Splits a migration into statements, as Citus requires. A function body that is parsed at creation depends on every object that it
//! names. Citus cannot create these objects on other nodes in a suitable order. For this reason, such function bodies are rewritten as
//! string literals with schema-qualified names.

use crate::schema::qualify::qualify;

/// Splits an SQL text into statements.
pub(super) fn statements(text: &str) -> Vec<String> {
    let (mut found, mut begin, mut at) = (Vec::new(), 0, 0);
    let mut is_atomic = false;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if next == '\'' {
            at += 1 + rest[1..].find('\'').map_or(rest.len() - 1, |end| end + 1);
        } else if let Some(body) = rest.strip_prefix("$$") {
            at += 2 + body.find("$$").map_or(body.len(), |end| end + 2);
        } else if rest.starts_with("begin atomic") {
            is_atomic = true;
            at += 1;
        } else if next == ';' && (!is_atomic || text[..at].ends_with("\nend")) {
            found.push(text[begin..at].to_owned());
            (begin, is_atomic) = (at + 1, false);
            at += 1;
        } else {
            at += next.len_utf8();
        }
    }
    found.push(text[begin..].to_owned());
    found.retain(|statement| statement.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--")));
    found.into_iter().map(|statement| as_text(&statement)).collect()
}

/// Rewrites a function body after `begin atomic` or `return` as a string literal with schema-qualified names. Other statements, such as
/// functions with a body in `$$`, are returned unchanged.
fn as_text(statement: &str) -> String {
    if !statement.contains("create function ") {
        return statement.to_owned();
    }
    if let Some((head, body)) = statement.split_once("\nbegin atomic\n").or_else(|| statement.split_once("\n  begin atomic\n")) {
        let body = body.trim_end().strip_suffix("end").unwrap_or(body);
        return format!("{head}\nas $body$\n{}\n$body$", qualify(body).trim_end().trim_end_matches(';'));
    }
    match statement.split_once("\n  return ") {
        Some((head, body)) if !statement.contains("$$") => format!("{head}\nas $body$ select {}\n$body$", qualify(body)),
        _ => statement.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_into_its_statements() {
        let text = "-- a; b\ncreate table t (a text default ';');\ncreate function f() returns int\n  language sql\nbegin atomic\n  select case when a = b then 1 end;\nend;\n\
            create function g() returns int\n  language sql\n  return 1 + 2;\ncreate function h() returns int as $$ begin; end $$;\n-- end\n";
        let found = statements(text);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(
            found[1].contains("as $body$") && found[1].contains("operator(pg_catalog.=)") && !found[1].contains("atomic"),
            "{}",
            found[1]
        );
        assert!(found[2].ends_with("as $body$ select 1 operator(pg_catalog.+) 2\n$body$"), "{}", found[2]);
    }
}

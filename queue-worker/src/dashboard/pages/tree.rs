//! JSON as a tree that can be folded: HTML, in which everything from the document is escaped. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use crate::dashboard::show;

/// So many values are shown.
const MOST: usize = 2000;

/// So much of a text is shown.
const LONGEST: usize = 2000;

/// What has more entries is folded at first.
const OPEN: usize = 20;

/// Begins folded below this depth.
const SHALLOW: usize = 3;

/// The document as HTML. What cannot be read as a tree, as it is nested too deeply, is shown as text.
pub(super) fn tree(json: &str) -> String {
    let mut out = String::new();
    if let Ok(value) = serde_json::from_str(json) {
        let mut left = MOST;
        write(&mut out, None, &value, 0, &mut left);
        if left == 0 {
            out.push_str("<p class=\"note\">There is more than is shown here.</p>");
        }
        return out;
    }
    out.push_str("<pre>");
    let cut: String = json.chars().take(LONGEST).collect();
    escape(&mut out, &show::json(&cut));
    out.push_str("</pre>");
    out
}

fn write(out: &mut String, key: Option<&str>, value: &Value, depth: usize, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let (open, close, entries) = match value {
        Value::Object(fields) => ('{', '}', fields.len()),
        Value::Array(values) => ('[', ']', values.len()),
        _ => {
            out.push_str("<div class=\"leaf\">");
            named(out, key);
            scalar(out, value);
            out.push_str("</div>");
            return;
        }
    };
    let is_open = if depth < SHALLOW && entries <= OPEN { " open" } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(out, "<details{is_open}><summary>");
    named(out, key);
    let _ = write!(out, "{open}<span class=\"size\">{entries}</span>{close}</summary>");
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| write_entry(out, Some(key), value, depth, left)),
        Value::Array(values) => values.iter().for_each(|value| write_entry(out, None, value, depth, left)),
        _ => {}
    }
    out.push_str("</details>");
}

fn write_entry(out: &mut String, key: Option<&str>, value: &Value, depth: usize, left: &mut usize) {
    write(out, key, value, depth + 1, left);
}

fn named(out: &mut String, key: Option<&str>) {
    if let Some(key) = key {
        out.push_str("<span class=\"key\">");
        escape(out, &show::short(key, LONGEST));
        out.push_str("</span>: ");
    }
}

fn scalar(out: &mut String, value: &Value) {
    let (class, text) = match value {
        Value::String(text) => ("text", show::short(&Value::from(text.as_str()).to_string(), LONGEST)),
        Value::Number(number) => ("number", number.to_string()),
        other => ("word", other.to_string()),
    };
    let _ = write!(out, "<span class=\"{class}\">");
    escape(out, &text);
    out.push_str("</span>");
}

fn escape(out: &mut String, text: &str) {
    out.push_str(&show::escape(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f62_nothing_of_a_document_is_markup() {
        let hostile = r#"{"<script>alert(1)</script>": ["</details><img src=x onerror=alert(1)>", {"a'\"&": "\u001b[31m\u202e"}]}"#;
        let html = tree(hostile);
        let tags: Vec<&str> = html.split('<').skip(1).map(|tag| tag.split(['>', ' ']).next().unwrap()).collect();
        let known = ["details", "/details", "summary", "/summary", "span", "/span", "div", "/div"];
        assert!(tags.iter().all(|tag| known.contains(tag)), "{html}");
        assert!(!html.contains('\u{1b}') && !html.contains('\u{202e}') && html.contains("&lt;script&gt;"), "{html}");
    }

    #[test]
    fn a_large_or_deep_document_is_shown_as_far_as_it_goes() {
        let large = format!("[{}0]", "0,".repeat(5000));
        assert!(tree(&large).contains("There is more") && tree(&large).len() < 200_000);
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(tree(&deep).starts_with("<pre>"));
    }
}

//! Renders a JSON document as a collapsible HTML tree. All content of the document is escaped. Performs no I/O.

use std::fmt::Write as _;

use serde_json::Value;

use crate::dashboard::display;

/// Maximum number of JSON values rendered per document.
const MAX_VALUES: usize = 2000;

/// Maximum number of rendered characters per string.
const MAX_TEXT: usize = 2000;

/// Maximum number of entries in a node that is initially expanded.
const MAX_OPEN_ENTRIES: usize = 20;

/// Depth from which all nodes are initially collapsed.
const MAX_OPEN_DEPTH: usize = 3;

/// Renders the document as HTML. A document nested too deeply for the parser is rendered as plain text.
pub(super) fn tree(json: &str) -> String {
    let mut out = String::new();
    if let Ok(value) = serde_json::from_str(json) {
        let mut left = MAX_VALUES;
        write_value(&mut out, None, &value, 0, &mut left);
        if left == 0 {
            out.push_str("<p class=\"note\">More values exist than are shown.</p>");
        }
        return out;
    }
    out.push_str("<pre>");
    let cut: String = json.chars().take(MAX_TEXT).collect();
    escape(&mut out, &display::json(&cut));
    out.push_str("</pre>");
    out
}

fn write_value(out: &mut String, key: Option<&str>, value: &Value, depth: usize, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let (open, close, entries) = match value {
        Value::Object(fields) => ('{', '}', fields.len()),
        Value::Array(values) => ('[', ']', values.len()),
        _ => {
            out.push_str("<div class=\"leaf\">");
            write_key(out, key);
            write_scalar(out, value);
            out.push_str("</div>");
            return;
        }
    };
    let is_open = if depth < MAX_OPEN_DEPTH && entries <= MAX_OPEN_ENTRIES { " open" } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(out, "<details{is_open}><summary>");
    write_key(out, key);
    let _ = write!(out, "{open}<span class=\"size\">{entries}</span>{close}</summary>");
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| write_entry(out, Some(key), value, depth, left)),
        Value::Array(values) => values.iter().for_each(|value| write_entry(out, None, value, depth, left)),
        _ => {}
    }
    out.push_str("</details>");
}

fn write_entry(out: &mut String, key: Option<&str>, value: &Value, depth: usize, left: &mut usize) {
    write_value(out, key, value, depth + 1, left);
}

fn write_key(out: &mut String, key: Option<&str>) {
    if let Some(key) = key {
        out.push_str("<span class=\"key\">");
        escape(out, &display::truncate(key, MAX_TEXT));
        out.push_str("</span>: ");
    }
}

fn write_scalar(out: &mut String, value: &Value) {
    let (class, text) = match value {
        Value::String(text) => ("text", display::truncate(&Value::from(text.as_str()).to_string(), MAX_TEXT)),
        Value::Number(number) => ("number", number.to_string()),
        other => ("word", other.to_string()),
    };
    let _ = write!(out, "<span class=\"{class}\">");
    escape(out, &text);
    out.push_str("</span>");
}

fn escape(out: &mut String, text: &str) {
    out.push_str(&display::escape(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f62_documents_are_rendered_without_markup() {
        let hostile = r#"{"<script>alert(1)</script>": ["</details><img src=x onerror=alert(1)>", {"a'\"&": "\u001b[31m\u202e"}]}"#;
        let html = tree(hostile);
        let tags: Vec<&str> = html.split('<').skip(1).map(|tag| tag.split(['>', ' ']).next().unwrap()).collect();
        let known = ["details", "/details", "summary", "/summary", "span", "/span", "div", "/div"];
        assert!(tags.iter().all(|tag| known.contains(tag)), "{html}");
        assert!(!html.contains('\u{1b}') && !html.contains('\u{202e}') && html.contains("&lt;script&gt;"), "{html}");
    }

    #[test]
    fn large_and_deep_documents_are_truncated() {
        let large = format!("[{}0]", "0,".repeat(5000));
        assert!(tree(&large).contains("More values") && tree(&large).len() < 200_000);
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(tree(&deep).starts_with("<pre>"));
    }
}

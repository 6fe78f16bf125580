//! Finds the fields of a payload that its type ignores. A field is ignored if the decoded payload stays the same when the field is
//! removed, and when the field has a different value.

use serde_json::{Map, Value};

/// Function that decodes a payload and encodes it again. Returns `None` if the payload cannot be decoded.
pub(super) type RereadFn<'a> = &'a dyn Fn(&Value) -> Option<Value>;

/// Returns the paths of the fields that `reread` ignores, as JSON pointers. Fields inside an ignored field are not included.
pub(super) fn unread(payload: &Value, reread: RereadFn<'_>) -> Vec<String> {
    let Some(now) = reread(payload) else { return Vec::new() };
    let mut found = Vec::new();
    for field in fields(payload, "") {
        let is_within = found.iter().any(|outer: &String| field.strip_prefix(outer.as_str()).is_some_and(|rest| rest.starts_with('/')));
        if !is_within && is_unread(payload, &field, &now, reread) {
            found.push(field);
        }
    }
    found
}

/// Returns the payload without the given fields.
pub(super) fn without(payload: &Value, fields: &[String]) -> Value {
    let mut payload = payload.clone();
    for field in fields {
        remove_field(&mut payload, field);
    }
    payload
}

fn is_unread(payload: &Value, field: &str, now: &Value, reread: RereadFn<'_>) -> bool {
    let Some(value) = payload.pointer(field) else { return false };
    let mut less = payload.clone();
    remove_field(&mut less, field);
    let others = other_values(value);
    !others.is_empty()
        && reread(&less).as_ref() == Some(now)
        && others.into_iter().all(|other| {
            let mut changed = payload.clone();
            if let Some(value) = changed.pointer_mut(field) {
                *value = other;
            }
            reread(&changed).as_ref() == Some(now)
        })
}

/// Returns replacements for a field's value. If the type reads the field, at least one replacement changes the decoded payload or cannot
/// be decoded. The result is empty for `null`, because `null` cannot be distinguished from a missing field.
fn other_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Bool(value) => vec![Value::Bool(!value), Value::Array(vec![Value::Null])],
        Value::Number(_) => vec![7.into(), 8.into(), Value::Object(Map::new())],
        Value::String(_) => vec!["other".into(), Value::Object(Map::new()), 7.into()],
        Value::Array(_) | Value::Object(_) => vec![7.into(), "other".into()],
    }
}

fn fields(value: &Value, path: &str) -> Vec<String> {
    let within = |step: &str, value: &Value| fields(value, &format!("{path}/{step}"));
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| {
                let step = key.replace('~', "~0").replace('/', "~1");
                std::iter::once(format!("{path}/{step}")).chain(within(&step, value)).collect::<Vec<_>>()
            })
            .collect(),
        Value::Array(items) => items.iter().enumerate().flat_map(|(at, item)| within(&at.to_string(), item)).collect(),
        _ => Vec::new(),
    }
}

fn remove_field(payload: &mut Value, field: &str) {
    let Some((outer, step)) = field.rsplit_once('/') else { return };
    if let Some(map) = payload.pointer_mut(outer).and_then(Value::as_object_mut) {
        map.remove(&step.replace("~1", "/").replace("~0", "~"));
    }
}

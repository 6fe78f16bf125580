//! JSON arguments of commands, given directly, in a file or on stdin.

use std::{
    fs::File,
    io::{Read, stdin},
};

use serde_json::value::RawValue;

use super::problem::Problem;

/// Maximum size in bytes of JSON from a file or stdin. The value exceeds the payload limit, so that a payload slightly above that limit
/// is rejected with the more precise error about the limit.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads JSON from the argument itself, a file (`@FILE`) or stdin (`-`). Errors contain `what`, but never the JSON text. If the JSON is
/// empty or invalid, the error ends with `fix`.
pub(super) fn parse_json(what: &str, argument: &str, fix: &str) -> Result<Box<RawValue>, Problem> {
    let text = match argument.strip_prefix('@') {
        Some(path) => read(File::open(path), &format!("the {what} file {path}"))?,
        None if argument == "-" => read(Ok(stdin().lock()), &format!("the {what} on stdin"))?,
        None => argument.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Problem::usage(format!("the {what} is empty; {fix}")));
    }
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::usage(format!("the {what} is not JSON, at line {line}, column {column}; {fix}"))
    })
}

fn read(from: std::io::Result<impl Read>, what: &str) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let read = from.and_then(|from| from.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Problem::usage(format!("{what} cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Problem::usage(format!("{what} has more than {MAX_BYTES} bytes; store a reference, not the blob")));
    }
    String::from_utf8(bytes).map_err(|_| Problem::usage(format!("{what} is not UTF-8")))
}

//! JSON arguments of commands, given directly, in a file or on stdin.

use std::{
    fs::File,
    io::{Read, stdin},
};

use serde_json::value::RawValue;

use super::problem::Problem;

/// Maximum number of bytes read from a file or stdin. The maximum is far above the payload limit, so that a larger payload gets the usual
/// error.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads the JSON from the argument, from a file (`@FILE`) or from stdin (`-`). Errors name `what` and do not contain the JSON text.
pub(super) fn parse_json(what: &str, argument: &str) -> Result<Box<RawValue>, Problem> {
    let text = match argument.strip_prefix('@') {
        Some(path) => read(File::open(path), &format!("the {what} file {path}"))?,
        None if argument == "-" => read(Ok(stdin().lock()), &format!("the {what} on stdin"))?,
        None => argument.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Problem::usage(format!("the {what} is empty; give JSON, such as '{{}}' or 'null'")));
    }
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::usage(format!("the {what} is not JSON, at line {line}, column {column}; write a string in double quotes, as in '\"yes\"'"))
    })
}

fn read(from: std::io::Result<impl Read>, what: &str) -> Result<String, Problem> {
    let mut text = String::new();
    let read = from.and_then(|from| from.take(MAX_BYTES).read_to_string(&mut text));
    read.map_err(|error| Problem::usage(format!("{what} cannot be read: {error}")))?;
    Ok(text)
}

//! Encodes payloads as JSON text that round-trips through jsonb, or reports a fault with its path.
//!
//! Encoding takes one pass. `serde_json` writes through a serializer that rejects NaN (`finite`) into a buffer with a size limit
//! (`buffer`). The formatter (`jsonb`) rejects values that jsonb cannot hold, and inserts spaces as jsonb does. Errors contain paths but
//! no values, except for [`PayloadError::Encode`], which contains a shortened message of the payload's own `Serialize` implementation. The
//! database makes two documented changes: it keeps the last of duplicate keys, and converts `-0.0` to `0.0`. This module does not decode
//! payloads.

mod finite;
mod path;
mod buffer;
mod jsonb;
mod error;
#[cfg(feature = "testing")]
mod sample_deserializer;
#[cfg(feature = "testing")]
mod samples;

use serde::Serialize;
use serde::de::IgnoredAny;

use self::buffer::PayloadBuffer;
pub use self::error::PayloadError;
use self::finite::FiniteSerializer;
use self::jsonb::JsonbFormatter;
pub(crate) use self::path::path_step;
#[cfg(feature = "testing")]
pub(crate) use self::samples::samples;

/// Maximum size of a payload in bytes, in the text form of jsonb. The SQL function `queue.payload_limit()` returns the same value.
pub(crate) const DEFAULT_LIMIT: usize = 262_144;

/// Encodes a payload or another value, such as a checkpoint or metadata, in the text form of jsonb. Fails if the text is longer than
/// `limit` bytes.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<String, PayloadError> {
    let buffer = PayloadBuffer::new(limit);
    let mut serializer = serde_json::Serializer::with_formatter(&buffer, JsonbFormatter::new(&buffer));
    let result = value.serialize(FiniteSerializer::new(&buffer, &mut serializer));
    // The buffer is checked first, because a `Serialize` implementation may discard or replace the error that stopped it.
    let text = buffer.finish()?;
    result.map_err(|error| PayloadError::Encode(shorten(&error.to_string())))?;
    let text = String::from_utf8(text).map_err(|_| not_json())?;
    // A hand-written `Serialize` implementation may omit a value or forge a `RawValue`, so the text may be invalid JSON. PostgreSQL would
    // reject the invalid text and abort the transaction.
    serde_json::from_str::<IgnoredAny>(&text).map_err(|_| not_json())?;
    Ok(text)
}

/// Encodes an output as JSON text. Rejects NaN and infinities, which `serde_json` would write as `null`. Other values that jsonb cannot
/// hold are replaced when the output is stored, because a single character must not fail a completed job.
pub(crate) fn encode_output<T: Serialize + ?Sized>(output: &T) -> Result<String, String> {
    let buffer = PayloadBuffer::new(usize::MAX);
    let mut serializer = serde_json::Serializer::new(&buffer);
    let result = output.serialize(FiniteSerializer::new(&buffer, &mut serializer));
    let text = buffer.finish().map_err(|error| format!("the output cannot be stored: {error}"))?;
    result.map_err(|error| format!("the output's `Serialize` failed: {}", shorten(&error.to_string())))?;
    String::from_utf8(text).map_err(|_| "the output's `Serialize` did not write text".to_owned())
}

fn not_json() -> PayloadError {
    PayloadError::Encode("it did not write valid json; derive it, or write each key with its value".to_owned())
}

/// Truncates an error message from user code, which may contain payload data.
fn shorten(message: &str) -> String {
    const MAX_CHARS: usize = 200;
    let shown: String = message.chars().take(MAX_CHARS).collect();
    if shown.len() < message.len() { shown + "…" } else { shown }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;

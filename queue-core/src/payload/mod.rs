//! Encodes payloads as JSON text that jsonb returns exactly, or reports the fault with its path.
//!
//! Encoding takes one pass. `serde_json` writes through a serializer that rejects NaN (`finite`), with a formatter that rejects what jsonb
//! cannot hold and spaces text as jsonb does (`jsonb`), into a buffer with a limit (`buffer`). Errors contain paths, never values; only
//! [`PayloadError::Encode`] contains a shortened message of the payload's own `Serialize`. The database changes two documented things: of
//! duplicate keys the last wins, and `-0.0` becomes `0.0`. This room does not decode.

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

/// Maximum size of a payload in bytes, as jsonb prints it; equal to `queue.payload_limit()` in SQL.
pub(crate) const DEFAULT_LIMIT: usize = 262_144;

/// Encodes `job` as jsonb prints it, in at most `limit` bytes.
pub(crate) fn encode<T: Serialize + ?Sized>(job: &T, limit: usize) -> Result<String, PayloadError> {
    let buffer = PayloadBuffer::new(limit);
    let mut serializer = serde_json::Serializer::with_formatter(&buffer, JsonbFormatter::new(&buffer));
    let result = job.serialize(FiniteSerializer::new(&buffer, &mut serializer));
    // Check the buffer first: a `Serialize` may swallow or replace the error that stopped it.
    let text = buffer.finish()?;
    result.map_err(|error| PayloadError::Encode(shorten(&error.to_string())))?;
    let text = String::from_utf8(text).map_err(|_| not_json())?;
    // A hand-written `Serialize` may omit a value, and a `RawValue` may be forged. PostgreSQL would reject that and abort the transaction.
    serde_json::from_str::<IgnoredAny>(&text).map_err(|_| not_json())?;
    Ok(text)
}

/// Encodes an output as JSON text. Rejects NaN and infinities, which `serde_json` would write as `null`. Other values that jsonb cannot
/// hold are replaced when the output is stored: a completed job must not fail over a character.
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

/// Truncates an error message of user code, which may contain payload data.
fn shorten(message: &str) -> String {
    const MAX_CHARS: usize = 200;
    let shown: String = message.chars().take(MAX_CHARS).collect();
    if shown.len() < message.len() { shown + "…" } else { shown }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;

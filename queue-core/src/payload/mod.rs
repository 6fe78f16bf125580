//! Encodes a payload as the JSON text that jsonb gives back exactly, or says what is wrong with it and where.
//!
//! One pass: `serde_json` writes, under a serializer that refuses NaN (`check`), with a formatter that refuses what jsonb cannot hold and
//! spaces the text as jsonb prints it (`stored`), onto a buffer that takes no more than the limit (`buffer`). Errors show paths, never
//! values; only [`PayloadError::Encode`] repeats, shortened, what the payload's own `Serialize` says. Two things do change in the
//! database, and are documented: of duplicate keys the last wins, and `-0.0` becomes `0.0`, its equal. It does not decode.

mod check;
mod path;
mod buffer;
mod stored;
mod error;
#[cfg(feature = "testing")]
mod make;
#[cfg(feature = "testing")]
mod samples;

use serde::Serialize;
use serde::de::IgnoredAny;

use self::buffer::PayloadBuffer;
use self::check::Checked;
pub use self::error::PayloadError;
pub(crate) use self::path::path_step;
#[cfg(feature = "testing")]
pub(crate) use self::samples::samples;
use self::stored::Stored;

/// The most bytes of a payload as jsonb prints it; `queue.payload_limit()` in SQL says the same.
pub(crate) const DEFAULT_LIMIT: usize = 262_144;

/// The text of `job` as jsonb prints it, at most `limit` bytes.
pub(crate) fn encode<T: Serialize + ?Sized>(job: &T, limit: usize) -> Result<String, PayloadError> {
    let buffer = PayloadBuffer::new(limit);
    let mut serializer = serde_json::Serializer::with_formatter(&buffer, Stored::on(&buffer));
    let written = job.serialize(Checked::on(&buffer, &mut serializer));
    // The buffer first: a `Serialize` may have swallowed the error that stopped it, or put another in its place.
    let text = buffer.finish()?;
    written.map_err(|error| PayloadError::Encode(shorten(&error.to_string())))?;
    let text = String::from_utf8(text).map_err(|_| not_json())?;
    // A `Serialize` written by hand may leave out a value, and a `RawValue` be forged. PostgreSQL would notice, and abort the transaction.
    serde_json::from_str::<IgnoredAny>(&text).map_err(|_| not_json())?;
    Ok(text)
}

/// An output as JSON text, unless it holds NaN or an infinity, for which `serde_json` writes `null` and says nothing. What else jsonb cannot hold
/// is dealt with by whoever stores it: a job that is done is not to fail over a character.
pub(crate) fn encode_output<T: Serialize + ?Sized>(output: &T) -> Result<String, String> {
    let buffer = PayloadBuffer::new(usize::MAX);
    let mut serializer = serde_json::Serializer::new(&buffer);
    let written = output.serialize(Checked::on(&buffer, &mut serializer));
    let text = buffer.finish().map_err(|error| format!("the output cannot be stored: {error}"))?;
    written.map_err(|error| format!("the output's `Serialize` failed: {}", shorten(&error.to_string())))?;
    String::from_utf8(text).map_err(|_| "the output's `Serialize` did not write text".to_owned())
}

fn not_json() -> PayloadError {
    PayloadError::Encode("it did not write valid json; derive it, or write each key with its value".to_owned())
}

/// An author's message may hold anything, so no more of it is shown than explains the error.
fn shorten(message: &str) -> String {
    const LONGEST: usize = 200;
    let shown: String = message.chars().take(LONGEST).collect();
    if shown.len() < message.len() { shown + "…" } else { shown }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;

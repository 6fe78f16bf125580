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

use serde::Serialize;
use serde::de::IgnoredAny;

use self::buffer::PayloadBuffer;
use self::check::Checked;
use self::stored::Stored;

/// The most bytes of a payload as jsonb prints it; `queue.payload_limit()` in SQL says the same.
pub(crate) const DEFAULT_LIMIT: usize = 262_144;

/// How many arrays and objects may lie in one another: as many as `serde_json` reads.
pub(crate) const MAX_DEPTH: usize = 127;

/// Why a payload cannot be stored so that it comes back exactly.
///
/// A `path` is where, such as `$.user.names[3]`.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum PayloadError {
    /// A string or a key contains U+0000, which jsonb refuses.
    #[error("the text at `{path}` contains the character U+0000, which jsonb cannot hold; remove it, or store bytes as base64")]
    Nul {
        /// Where.
        path: String,
    },
    /// A `RawValue` contains an escape `\ud800` to `\udfff` that is not one of a pair.
    #[error("the text at `{path}` contains half a surrogate pair, which is no character; replace it with U+FFFD")]
    LoneSurrogate {
        /// Where.
        path: String,
    },
    /// NaN or an infinity, which JSON lacks.
    #[error("the number at `{path}` is NaN or infinite, which json cannot say; use an `Option`, or a string")]
    NotFinite {
        /// Where.
        path: String,
    },
    /// An integer of more than 64 bits, or a number of a `RawValue` with more digits or a larger exponent than `f64` holds.
    #[error("the number at `{path}` has more digits than would come back; store it as a string")]
    NumberTooLarge {
        /// Where.
        path: String,
    },
    /// Arrays and objects in one another, too many to be read back.
    #[error("the payload is nested deeper than {limit} levels; flatten it, or store the inner part as a string")]
    TooDeep {
        /// The most levels.
        limit: usize,
    },
    /// More text than a job may carry.
    #[error("the payload takes {size} bytes or more, the limit is {limit}; store a reference, not the blob")]
    TooLarge {
        /// How many bytes there were when writing stopped.
        size: usize,
        /// The most bytes.
        limit: usize,
    },
    /// The payload's `Serialize` failed, or did not write JSON.
    #[error("the payload's `Serialize` failed: {0}")]
    Encode(String),
}

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

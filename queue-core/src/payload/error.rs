//! What may be wrong with a payload.

/// How many arrays and objects may lie in one another: as many as `serde_json` reads.
pub(super) const MAX_DEPTH: usize = 127;

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

//! Reasons why a payload cannot be stored.

/// Maximum nesting depth of arrays and objects. `serde_json` has the same limit when reading.
pub(super) const MAX_DEPTH: usize = 127;

/// Reason why a payload cannot be stored exactly.
///
/// The field `path` of a variant locates the fault, for example `$.user.names[3]`.
///
/// ```no_run
/// # use queue_core::{Error, Job as _, PayloadError, job};
/// # use serde::{Deserialize, Serialize};
/// # #[job(send_only)]
/// # #[derive(Serialize, Deserialize)]
/// # struct Email {
/// #     text: String,
/// # }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), Error> {
/// let email = Email { text: "a\0b".into() };
/// match email.enqueue(pool).await {
///     Ok(job) => println!("job {}", job.id()),
///     Err(Error::Payload { source: PayloadError::Nul { path }, .. }) => println!("U+0000 at {path}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum PayloadError {
    /// A string or a key contains U+0000, which jsonb rejects.
    #[error("the text at `{path}` contains the character U+0000, which jsonb cannot hold; remove it, or store bytes as base64")]
    Nul {
        /// Path of the string or key that contains U+0000.
        path: String,
    },
    /// A `RawValue` contains an escape from `\ud800` to `\udfff` that is not part of a surrogate pair.
    #[error("the text at `{path}` contains a lone surrogate, which is not a character; replace it with U+FFFD")]
    LoneSurrogate {
        /// Path of the string or key that contains the lone surrogate.
        path: String,
    },
    /// A float is NaN or infinite, which JSON cannot represent.
    #[error("the number at `{path}` is NaN or infinite, which JSON cannot represent; use an `Option`, or a string")]
    NotFinite {
        /// Path of the number that is NaN or infinite.
        path: String,
    },
    /// An integer does not fit in 64 bits, or `f64` cannot hold the digits or the exponent of a number in a `RawValue`.
    #[error("the number at `{path}` has more digits than can be read back; store it as a string")]
    NumberTooLarge {
        /// Path of the number that is too large or too precise.
        path: String,
    },
    /// Arrays and objects are nested too deeply to be read back.
    #[error("the payload is nested deeper than {limit} levels; flatten it, or store the inner part as a string")]
    TooDeep {
        /// Maximum nesting depth of arrays and objects.
        limit: usize,
    },
    /// The payload exceeds the maximum size.
    #[error("the payload takes {size} bytes or more, the limit is {limit}; store a reference, not the blob")]
    TooLarge {
        /// Size of the encoded payload in bytes when encoding stopped.
        size: usize,
        /// Maximum size of a payload in bytes.
        limit: usize,
    },
    /// The payload's `Serialize` implementation failed or did not write JSON.
    #[error("the payload's `Serialize` failed: {0}")]
    Encode(String),
}

//! Without the feature `seal` nothing is sealed, and so nothing of a type that is to be sealed is enqueued or read.

use super::{Bound, Nonce, Unopened};

const OFF: &str = "this program is built without the feature `seal` of `queue-core`; turn it on";

/// Whether this process has the keyring: none.
pub(crate) fn is_known(_: &str) -> bool {
    false
}

/// Never.
pub(crate) fn seal(_: &str, _: &str, _: Bound<'_>, _: Nonce) -> Result<String, String> {
    Err(OFF.to_owned())
}

/// Never.
pub(crate) fn open(_: &str, _: Bound<'_>) -> Result<Option<String>, Unopened> {
    Err(Unopened::Here(OFF.to_owned()))
}

/// Never.
pub(crate) fn hash_key(_: &str, _: &str, _: &str) -> Result<String, String> {
    Err(OFF.to_owned())
}

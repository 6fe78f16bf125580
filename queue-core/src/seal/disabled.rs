//! Stand-in for sealing if the feature `seal` is disabled. Jobs of sealed types can be neither enqueued nor read.

use super::{Nonce, OpenError, SealScope};

const OFF: &str = "this program is built without the feature `seal` of `queue-core`; enable it";

/// Always returns false, because a process has no keyring if the feature is disabled.
pub(crate) fn has_keyring(_: &str) -> bool {
    false
}

/// Always fails, because the feature is disabled.
pub(crate) fn seal(_: &str, _: &str, _: SealScope<'_>, _: Nonce) -> Result<String, String> {
    Err(OFF.to_owned())
}

/// Always fails, because the feature is disabled.
pub(crate) fn open(_: &str, _: SealScope<'_>) -> Result<Option<String>, OpenError> {
    Err(OpenError::Unavailable(OFF.to_owned()))
}

/// Always fails, because the feature is disabled.
pub(crate) fn hash_key(_: &str, _: &str, _: &str) -> Result<String, String> {
    Err(OFF.to_owned())
}

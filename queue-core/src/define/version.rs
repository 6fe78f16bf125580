//! Versions of a payload: the name under which jobs of each are stored, and what an upgrade is given.

use std::{borrow::Cow, fmt};

/// No type has a newer version than this.
pub(crate) const NEWEST: u16 = 9999;

/// The name under which jobs with payloads of this version are stored; `queue.stored_type` in SQL says the same. The first version is stored under
/// the plain name, so that types without versions know nothing of them.
pub fn stored_type(name: &'static str, version: u16) -> Cow<'static, str> {
    if version > 1 { Cow::Owned(format!("{name}@{version}")) } else { Cow::Borrowed(name) }
}

/// The job type and the version that such a name says.
pub fn type_and_version(stored: &str) -> (&str, u16) {
    match stored.split_once('@') {
        // Not a number is not written: a lane's name is checked by its table.
        Some((name, version)) => (name, version.parse().unwrap_or(u16::MAX)),
        None => (stored, 1),
    }
}

/// A payload that was enqueued by a release with an older version of its type, for [`JobType::upgrade`](crate::JobType::upgrade).
#[derive(Clone, Copy)]
pub struct OldPayload<'a> {
    version: u16,
    text: &'a str,
}

impl<'a> OldPayload<'a> {
    pub(crate) fn new(version: u16, text: &'a str) -> Self {
        Self { version, text }
    }

    /// The version that it was enqueued with; the first is 1.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Its JSON text.
    pub fn text(&self) -> &'a str {
        self.text
    }
}

/// Without the payload, which may be secret.
impl fmt::Debug for OldPayload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldPayload").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{stored_type, type_and_version};

    #[test]
    fn the_first_version_is_stored_under_the_plain_name_and_others_say_theirs() {
        for (version, stored) in [(1, "send"), (2, "send@2"), (9999, "send@9999")] {
            assert_eq!(stored_type("send", version), stored);
            assert_eq!(type_and_version(stored), ("send", version));
        }
    }
}

//! Payload versions: the stored name of a version, and the input of an upgrade.

use std::{borrow::Cow, fmt};

/// Maximum payload version of a type.
pub(crate) const MAX_VERSION: u16 = 9999;

/// Returns the name under which version `version` of the job type `name` is stored, like the SQL function `queue.stored_type`. Version 1 is
/// stored under the plain name, so a type without the option `version` is stored under its own name.
pub fn stored_type(name: &'static str, version: u16) -> Cow<'static, str> {
    if version > 1 { Cow::Owned(format!("{name}@{version}")) } else { Cow::Borrowed(name) }
}

/// Splits a stored name into the job type and the version.
pub fn type_and_version(stored: &str) -> (&str, u16) {
    match stored.split_once('@') {
        // The fallback is never used, because a check constraint of the lane table admits only numeric versions.
        Some((name, version)) => (name, version.parse().unwrap_or(u16::MAX)),
        None => (stored, 1),
    }
}

/// Payload enqueued by a release with an older version of the type. Input of [`JobType::upgrade`](crate::JobType::upgrade).
///
/// ```
/// # use queue_core::{Context, Failure, JobType, options::{OldPayload, Options}};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: Vec<String> }
/// impl JobType for Email {
/// #     type Output = ();
/// #     type Cx = Context;
///     const OPTIONS: Options = Options::new("email").version(2);
///
///     fn upgrade(old: OldPayload<'_>) -> Result<Self, Failure> {
///         let to: String = serde_json::from_str(old.text()).map_err(|_| Failure::terminal("version 1 must be one address"))?;
///         Ok(Self { to: vec![to] })
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct OldPayload<'a> {
    version: u16,
    text: &'a str,
}

impl<'a> OldPayload<'a> {
    pub(crate) fn new(version: u16, text: &'a str) -> Self {
        Self { version, text }
    }

    /// Returns the version of the payload, counted from 1.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the payload as JSON text.
    pub fn text(&self) -> &'a str {
        self.text
    }
}

/// Omits the payload because it may be secret.
impl fmt::Debug for OldPayload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldPayload").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{stored_type, type_and_version};

    #[test]
    fn all_versions_but_the_first_are_part_of_the_stored_name() {
        for (version, stored) in [(1, "send"), (2, "send@2"), (9999, "send@9999")] {
            assert_eq!(stored_type("send", version), stored);
            assert_eq!(type_and_version(stored), ("send", version));
        }
    }
}

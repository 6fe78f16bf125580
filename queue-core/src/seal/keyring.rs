//! Keys for sealing payloads, set by the program at startup. No error or `Debug` output contains key material.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, alphabet, engine::DecodePaddingMode, engine::GeneralPurpose, engine::GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::{error::Error, schema::check_name};

/// Key of 32 random bytes. The bytes are wiped from memory when the key is dropped, and are never displayed.
///
/// ```
/// use queue_core::Secret;
///
/// let secret = Secret::parse(&"5e".repeat(32))?;
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// # Ok::<(), queue_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// Creates a key from raw bytes, for example from a key store.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Parses a key from text, for example from a file or an environment variable. The text contains the 32 bytes in hexadecimal or base64
    /// form. Surrounding white space is ignored.
    ///
    /// ```
    /// # use queue_core::Secret;
    /// // made by `openssl rand -base64 32`
    /// let secret = Secret::parse("3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8=")?;
    /// # Ok::<(), queue_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Keyring`] if the text does not decode to 32 bytes. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let bytes = if text.len() == 64 { from_hex(text) } else { from_base64(text) };
        bytes.map(Self).ok_or_else(|| {
            keyring_error("a key is 32 bytes, as 64 hexadecimal digits or in base64; make one with `openssl rand -base64 32`")
        })
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Omits the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        // The filter excludes `+f`, which also parses as a number.
        let digits = text.get(2 * at..2 * at + 2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

fn from_base64(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let alphabet = if text.contains(['-', '_']) { alphabet::URL_SAFE } else { alphabet::STANDARD };
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = Zeroizing::new(GeneralPurpose::new(&alphabet, config).decode(text).ok()?);
    let mut bytes = Zeroizing::new([0; 32]);
    (decoded.len() == bytes.len()).then(|| bytes.copy_from_slice(&decoded))?;
    Some(bytes)
}

/// Keys for the payloads of some job types. The current key seals new payloads, and the other keys only open stored payloads. A program
/// sets a keyring with [`use_keyring`].
///
/// The name of a key is stored with every payload that the key seals. To rotate keys, first give the new key to every process as
/// [`older`](Self::older), and then make it the current key. This order ensures that no process receives a payload that it cannot open.
/// An older key can be removed once no stored payload is sealed with that key. See the chapter on keys in `docs/SEALED.md`.
///
/// ```
/// use queue_core::{Keyring, Secret, job, use_keyring};
///
/// #[job(send_only, seal = "customers")]
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Email {
///     to: String,
/// }
///
/// # fn start(current: &str, old: &str) -> Result<(), queue_core::Error> {
/// let keys = Keyring::new("2026-05", Secret::parse(current)?).older("2025-11", Secret::parse(old)?);
/// use_keyring("customers", keys)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a keyring does nothing until it is passed to `use_keyring`"]
pub struct Keyring {
    current: String,
    keys: Vec<(String, Secret)>,
    hashing: Option<Secret>,
}

impl Keyring {
    /// Creates a keyring with a current key. The name has 1 to 64 characters from `A-Z a-z 0-9 _ . : -`, for example `2026-05`.
    pub fn new(name: impl Into<String>, secret: Secret) -> Self {
        let current = name.into();
        Self { keys: vec![(current.clone(), secret)], current, hashing: None }
    }

    /// Adds a key that only opens payloads: an older key, or a key that will become the current key.
    pub fn older(mut self, name: impl Into<String>, secret: Secret) -> Self {
        self.keys.push((name.into(), secret));
        self
    }

    /// Sets the secret for hashing the keys that `unique(fields(..))` and `key = ..` compute from payloads. Without hashing, the payload
    /// fields could be guessed from the stored keys. Job types with computed keys require this secret. The secret must be the same in all
    /// processes, and must not change when other keys are rotated. With different secrets, equal fields would have different hashes.
    pub fn hashing(mut self, secret: Secret) -> Self {
        self.hashing = Some(secret);
        self
    }

    pub(super) fn current(&self) -> (&str, &Secret) {
        // The current key is the first key in the list.
        (&self.current, &self.keys[0].1)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Secret> {
        self.keys.iter().find(|(known, _)| known == name).map(|(_, secret)| secret)
    }

    pub(super) fn hasher(&self) -> Option<&Secret> {
        self.hashing.as_ref()
    }

    fn check(&self) -> Result<(), Error> {
        for (at, (name, _)) in self.keys.iter().enumerate() {
            check_name("name of a key", name)?;
            if self.keys[..at].iter().any(|(other, _)| other == name) {
                return Err(keyring_error(&format!("two keys of one keyring are called `{name}`; give each key its own name")));
            }
        }
        Ok(())
    }
}

/// Formats only the names of the keys, which are not secret.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.keys.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Keyring").field("current", &self.current).field("keys", &names).finish_non_exhaustive()
    }
}

/// Keyrings of the process, by name. Each enqueue and each attempt of a sealed type looks up one keyring.
static KEYRINGS: RwLock<BTreeMap<String, Arc<Keyring>>> = RwLock::new(BTreeMap::new());

/// Sets the keyring named `name` for this process. The keyring seals and opens the payloads of job types with `#[job(seal = "name")]`
/// that the process enqueues or runs. Call this function at the start of each program that needs the keyring, before the program's worker
/// runs. Another call, for example after a key rotation, replaces the keyring.
///
/// Without the keyring, an enqueue fails with [`Error::Sealing`]. A worker without the keyring leaves jobs of sealed types to workers
/// that have the keyring.
///
/// ```
/// use queue_core::{Keyring, Secret, use_keyring};
///
/// # fn start(new: &str, old: &str, hashing: &str) -> Result<(), queue_core::Error> {
/// let keys = Keyring::new("2026-05", Secret::parse(new)?).older("2025-11", Secret::parse(old)?).hashing(Secret::parse(hashing)?);
/// use_keyring("customers", keys)
/// # }
/// ```
///
/// # Errors
/// Returns [`Error::InvalidName`] for an invalid name of the keyring or of a key, and [`Error::Keyring`] if two keys have the same name.
pub fn use_keyring(name: impl Into<String>, keyring: Keyring) -> Result<(), Error> {
    let name = name.into();
    check_name("name of a keyring", &name)?;
    keyring.check()?;
    KEYRINGS.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(keyring));
    Ok(())
}

/// Returns the keyring named `name`, if it is set for this process.
pub(super) fn find(name: &str) -> Option<Arc<Keyring>> {
    KEYRINGS.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
}

pub(crate) fn has_keyring(name: &str) -> bool {
    find(name).is_some()
}

fn keyring_error(why: &str) -> Error {
    Error::Keyring { why: why.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_from_hex_and_base64_only() {
        let bytes: [u8; 32] = std::array::from_fn(|at| 248 + (at % 8) as u8);
        let hex = "f8f9fafbfcfdfeff".repeat(4);
        let base64 = "+Pn6+/z9/v/4+fr7/P3+//j5+vv8/f7/+Pn6+/z9/v8=";
        for text in [
            hex.clone(),
            hex.to_uppercase(),
            base64.to_owned(),
            base64.trim_end_matches('=').to_owned(),
            base64.replace('+', "-").replace('/', "_"),
            format!(" {base64}\n"),
        ] {
            assert_eq!(Secret::parse(&text).unwrap().bytes(), &bytes, "{text}");
        }
        for text in
            ["", "hunter2", &hex[..62], &base64[..40], &format!("{base64}{base64}"), &hex.replace("f8", "+8"), &hex.replace("f8", "é")]
        {
            let error = Secret::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("a key is 32 bytes") && (text.is_empty() || !error.contains(text)), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_key_and_duplicate_names_are_rejected() {
        let secret = |byte| Secret::new([byte; 32]);
        let keyring = Keyring::new("new", secret(0xab)).older("old", secret(0xcd)).hashing(secret(0xef));
        assert_eq!(format!("{keyring:?} {:?}", secret(7)), r#"Keyring { current: "new", keys: ["new", "old"], .. } Secret(..)"#);
        let twice = use_keyring("twice", Keyring::new("a", secret(1)).older("a", secret(2))).unwrap_err();
        assert!(twice.to_string().contains("two keys of one keyring are called `a`"), "{twice}");
        assert!(matches!(use_keyring("a/b", Keyring::new("a", secret(1))), Err(Error::InvalidName { .. })));
        assert!(matches!(use_keyring("a", Keyring::new("a/b", secret(1))), Err(Error::InvalidName { .. })));
        assert!(!has_keyring("twice") && !has_keyring("a"));
    }
}

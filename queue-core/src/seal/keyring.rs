//! The keys by which payloads are sealed, as a program gives them to its process. Neither a name nor an error nor `Debug` shows one.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, alphabet, engine::DecodePaddingMode, engine::GeneralPurpose, engine::GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::{error::Error, schema::check_name};

/// A key: 32 bytes that nobody can guess. It is wiped from memory when it is dropped, and shown by nothing.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// These bytes, as a key store gives them.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// From text, as a file or a variable has it: 64 hexadecimal digits, or base64. White space around it is nothing.
    ///
    /// ```
    /// # use queue_core::Secret;
    /// // made by `openssl rand -base64 32`
    /// let secret = Secret::parse("3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8=")?;
    /// # Ok::<(), queue_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Keyring`]: it is not 32 bytes. The error does not show it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let bytes = if text.len() == 64 { from_hex(text) } else { from_base64(text) };
        bytes
            .map(Self)
            .ok_or_else(|| wrong("a key is 32 bytes, as 64 hexadecimal digits or in base64; make one with `openssl rand -base64 32`"))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Without the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        // Not from `+f`, which a number may be, too.
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

/// The keys by which the payloads of some job types are sealed: one that seals, older ones that still open. Given to a process by [`use_keyring`].
///
/// A key has a name, which is stored beside what it has sealed. To change keys, give the new one to every process as [`older`](Self::older) first, and
/// then as the current one: so none meets a payload that it cannot open. An older one may go when nothing is sealed with it any more: see the chapter on
/// keys in `docs/SEALED.md`.
#[derive(Clone)]
#[must_use = "it is given to the process by `use_keyring`"]
pub struct Keyring {
    current: String,
    keys: Vec<(String, Secret)>,
    hashing: Option<Secret>,
}

impl Keyring {
    /// One whose current key has this name, such as `2026-05`: 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`.
    pub fn new(name: impl Into<String>, secret: Secret) -> Self {
        let current = name.into();
        Self { keys: vec![(current.clone(), secret)], current, hashing: None }
    }

    /// And with a key that seals nothing, but opens: an older one, or one that is going to be the current.
    pub fn older(mut self, name: impl Into<String>, secret: Secret) -> Self {
        self.keys.push((name.into(), secret));
        self
    }

    /// And with a secret by which the keys that payloads make are hashed: those of `unique(fields(..))` and `key = ..`, which otherwise could be guessed
    /// from the store. Types that make such keys need it. It is the same in all processes, and does not change with the others: of two jobs
    /// with equal fields, hashed by two of them, it is not seen that they are equal.
    pub fn hashing(mut self, secret: Secret) -> Self {
        self.hashing = Some(secret);
        self
    }

    pub(super) fn current(&self) -> (&str, &Secret) {
        // The first one is.
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
                return Err(wrong(&format!("two keys of one keyring are called `{name}`; what they have sealed could not be told apart")));
            }
        }
        Ok(())
    }
}

/// The names of its keys, and no key.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.keys.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Keyring").field("current", &self.current).field("keys", &names).finish_non_exhaustive()
    }
}

/// Few, and asked for by each enqueue and attempt of a type that is sealed.
static KEYRINGS: RwLock<BTreeMap<String, Arc<Keyring>>> = RwLock::new(BTreeMap::new());

/// From now on this process seals and opens with this keyring what job types with `#[job(seal = "name")]` of its name enqueue and run. Say it at the start
/// of each program that does either, before its worker runs; said again, as after a change of keys, it takes the place of the one before.
///
/// An enqueue without it is refused ([`Error::Sealing`]). A worker without it leaves such types to workers that have it.
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
/// [`Error::InvalidName`] for its name and those of its keys; [`Error::Keyring`] if two keys have one name.
pub fn use_keyring(name: impl Into<String>, keyring: Keyring) -> Result<(), Error> {
    let name = name.into();
    check_name("name of a keyring", &name)?;
    keyring.check()?;
    KEYRINGS.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(keyring));
    Ok(())
}

/// The keyring of this name.
pub(super) fn find(name: &str) -> Option<Arc<Keyring>> {
    KEYRINGS.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
}

/// Whether this process has the keyring.
pub(crate) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

fn wrong(why: &str) -> Error {
    Error::Keyring { why: why.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_the_texts_that_key_stores_give_and_from_no_other() {
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
            let said = Secret::parse(text).unwrap_err().to_string();
            assert!(said.starts_with("a key is 32 bytes") && (text.is_empty() || !said.contains(text)), "{said}");
        }
    }

    #[test]
    fn nothing_shows_a_key_and_two_of_one_name_are_refused() {
        let secret = |byte| Secret::new([byte; 32]);
        let keyring = Keyring::new("new", secret(0xab)).older("old", secret(0xcd)).hashing(secret(0xef));
        assert_eq!(format!("{keyring:?} {:?}", secret(7)), r#"Keyring { current: "new", keys: ["new", "old"], .. } Secret(..)"#);
        let twice = use_keyring("twice", Keyring::new("a", secret(1)).older("a", secret(2))).unwrap_err();
        assert!(twice.to_string().contains("two keys of one keyring are called `a`"), "{twice}");
        assert!(matches!(use_keyring("a/b", Keyring::new("a", secret(1))), Err(Error::InvalidName { .. })));
        assert!(matches!(use_keyring("a", Keyring::new("a/b", secret(1))), Err(Error::InvalidName { .. })));
        assert!(!is_known("twice") && !is_known("a"));
    }
}

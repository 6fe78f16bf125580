//! Encryption of stored payloads: `#[job(seal = "customers")]`. This module contains the keys, the format of a sealed payload, and the
//! cipher.
//!
//! The cipher is XChaCha20-Poly1305, whose nonces are long enough to be random. Associated data binds a sealed payload to its store, to
//! the stored name of its job type, to its keyring and to its key. This module only converts texts. Its callers decide what happens to a
//! job whose payload cannot be opened.

mod format;
#[cfg(feature = "seal")]
mod cipher;
#[cfg(feature = "seal")]
mod keyring;
#[cfg(not(feature = "seal"))]
mod disabled;

use crate::schema::Store;

#[cfg(not(feature = "seal"))]
pub(crate) use self::disabled::{has_keyring, hash_key, open, seal};
pub(crate) use self::format::is_sealed;
#[cfg(feature = "seal")]
pub use self::keyring::{Keyring, Secret, use_keyring};
#[cfg(feature = "seal")]
pub(crate) use self::{
    cipher::{hash_key, open, seal},
    keyring::has_keyring,
};

/// Store and job type to which a sealed payload is bound. The payload cannot be opened for a different store or job type.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "unused without the feature"))]
pub(crate) struct SealScope<'a> {
    pub(crate) store: Store,
    /// Stored name of the job type, with the version.
    pub(crate) stored: &'a str,
}

/// Source of the nonce of a sealed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nonce {
    /// Random nonce. Sealing the same payload twice gives different texts.
    Random,
    /// Nonce derived from the payload. Sealing the same payload twice gives the same text. The texts therefore reveal whether a payload
    /// has changed, and whether two payloads are equal.
    FromPayload,
}

/// Reason why a payload cannot be opened.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "unused without the feature"))]
pub(crate) enum OpenError {
    /// This process cannot open the payload. A process with the key or with a newer release may be able to open the payload.
    Unavailable(String),
    /// No process can open the payload.
    Invalid(String),
}

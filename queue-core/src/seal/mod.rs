//! Payloads that are stored encrypted: `#[job(seal = "customers")]`. This module has the keys, the format of a sealed payload, and the
//! cipher.
//!
//! The cipher is XChaCha20-Poly1305, whose nonces are long enough to be random. Associated data bind a sealed payload to its store, the
//! stored name of its job type, its keyring and its key. This module handles texts only. Code that reads payloads handles payloads that
//! cannot be opened.

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

/// Associated data of a sealed payload. The payload cannot be opened with other associated data.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "unused without the feature"))]
pub(crate) struct SealScope<'a> {
    pub(crate) store: Store,
    /// Stored name of the job type, with the version.
    pub(crate) stored: &'a str,
}

/// Derivation of the nonce of a sealed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nonce {
    /// Random nonce. Sealing the same payload twice gives different texts.
    Random,
    /// Nonce derived from the payload. Sealing the same payload twice gives the same text. The text therefore shows whether a payload has
    /// changed, but also whether two payloads are equal.
    FromPayload,
}

/// Reason why a payload cannot be opened.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "unused without the feature"))]
pub(crate) enum OpenError {
    /// This process cannot open the payload. A process with the key, or with a newer release, may be able to.
    Unavailable(String),
    /// No process can open the payload.
    Invalid(String),
}

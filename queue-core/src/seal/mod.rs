//! Payloads that are stored encrypted: `#[job(seal = "customers")]`. The keys, the form of a sealed payload, and the cipher.
//!
//! XChaCha20-Poly1305, whose nonces are long enough to be random. Associated data bind a sealed payload to its store, the name under which its job is
//! stored, its keyring and its key. This room knows texts only: what follows from one that cannot be opened is decided where payloads are read.

mod form;
#[cfg(feature = "seal")]
mod cipher;
#[cfg(feature = "seal")]
mod keyring;
#[cfg(not(feature = "seal"))]
mod off;

use crate::schema::Store;

pub(crate) use self::form::is_sealed;
#[cfg(feature = "seal")]
pub use self::keyring::{Keyring, Secret, use_keyring};
#[cfg(not(feature = "seal"))]
pub(crate) use self::off::{hash_key, is_known, open, seal};
#[cfg(feature = "seal")]
pub(crate) use self::{
    cipher::{hash_key, open, seal},
    keyring::is_known,
};

/// What a sealed payload is bound to: put elsewhere, it cannot be opened.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "nothing is bound"))]
pub(crate) struct Bound<'a> {
    pub(crate) store: Store,
    /// The name under which its job is stored, with the version.
    pub(crate) stored: &'a str,
}

/// How the nonce of a sealed payload is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nonce {
    /// Sealed twice, a payload gives two texts.
    Random,
    /// Sealed twice, a payload gives one text, so that it can be told whether it has changed; which shows whether two are equal.
    OfPayload,
}

/// Why a payload cannot be opened.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seal"), expect(dead_code, reason = "nothing is opened"))]
pub(crate) enum Unopened {
    /// Somebody may, who has the key or is newer.
    Here(String),
    /// As it stands, nobody can.
    Ever(String),
}

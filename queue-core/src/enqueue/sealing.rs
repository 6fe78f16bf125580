//! Sealing of payloads: the payloads of types with `#[job(seal = ..)]` are stored encrypted.

use crate::{
    define::{JobType, stored_type},
    error::Error,
    payload::{self, PayloadError},
    schema::Store,
    seal::{self, Nonce, SealScope},
};

/// Sealing of a type's payloads: the keyring, and the stored type name to which each sealed payload is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealing {
    pub(super) keyring: &'static str,
    pub(super) job_type: &'static str,
    pub(super) version: u16,
}

impl Sealing {
    /// Returns the sealing of the type `J`, or `None` if its payloads are not sealed.
    pub(super) fn for_type<J: JobType>() -> Option<Self> {
        let options = J::OPTIONS;
        options.seal.map(|keyring| Self { keyring, job_type: options.name, version: options.version })
    }

    /// Seals a payload for `store`.
    pub(crate) fn seal(self, clear: &str, store: Store, nonce: Nonce) -> Result<String, Error> {
        let stored = stored_type(self.job_type, self.version);
        let sealed = seal::seal(clear, self.keyring, SealScope { store, stored: &stored }, nonce).map_err(|why| self.fault(why))?;
        let (size, limit) = (sealed.len(), payload::DEFAULT_LIMIT);
        if size <= limit {
            return Ok(sealed);
        }
        Err(Error::Payload { job_type: self.job_type, source: PayloadError::TooLarge { size, limit } })
    }

    /// Hashes a key derived from the payload. The stored hash does not reveal the key.
    pub(super) fn hash(self, what: &'static str, key: &str) -> Result<String, Error> {
        seal::hash_key(what, key, self.keyring).map_err(|why| self.fault(why))
    }

    fn fault(self, why: String) -> Error {
        Error::Sealing { job_type: self.job_type, why }
    }
}

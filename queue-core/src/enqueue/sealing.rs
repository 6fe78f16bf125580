//! How the payload of a type with `#[job(seal = ..)]` is made what is stored.

use crate::{
    define::{JobType, stored_type},
    error::Error,
    payload::{self, PayloadError},
    schema::Store,
    seal::{self, Bound, Nonce},
};

/// That payloads of a type are sealed, by which keyring, and under which name they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealing {
    pub(super) keyring: &'static str,
    pub(super) job_type: &'static str,
    pub(super) version: u16,
}

impl Sealing {
    /// `None` of a type whose payloads are stored in clear.
    pub(super) fn of<J: JobType>() -> Option<Self> {
        let options = J::OPTIONS;
        options.seal.map(|keyring| Self { keyring, job_type: options.name, version: options.version })
    }

    /// The payload as it goes to this store.
    pub(crate) fn seal(self, clear: &str, store: Store, nonce: Nonce) -> Result<String, Error> {
        let stored = stored_type(self.job_type, self.version);
        let sealed = seal::seal(clear, self.keyring, Bound { store, stored: &stored }, nonce).map_err(|why| self.fault(why))?;
        let (size, limit) = (sealed.len(), payload::DEFAULT_LIMIT);
        if size <= limit {
            return Ok(sealed);
        }
        Err(Error::Payload { job_type: self.job_type, source: PayloadError::TooLarge { size, limit } })
    }

    /// A key that the payload makes, such that nobody can guess it from the store.
    pub(super) fn hash(self, what: &'static str, key: &str) -> Result<String, Error> {
        seal::hash_key(what, key, self.keyring).map_err(|why| self.fault(why))
    }

    fn fault(self, why: String) -> Error {
        Error::Sealing { job_type: self.job_type, why }
    }
}

//! Type-erased sampling and re-encoding of payloads, for the test kit.

use serde_json::Value;

use super::decode::reencode;
use crate::{
    define::{JobType, Options},
    payload::samples,
};

/// Sampling and re-encoding functions of one payload type.
#[derive(Clone, Copy)]
pub(crate) struct PayloadForms {
    pub(crate) options: Options,
    /// Returns sample payloads that cover every enum variant and optional part of the type, or the reason why no sample can be made.
    pub(crate) samples: fn() -> Result<Vec<Value>, String>,
    /// Decodes a payload of the given version and encodes it in the current version, or returns the reason why it cannot be decoded.
    pub(crate) reread: fn(&Value, u16) -> Result<Value, String>,
}

impl PayloadForms {
    pub(crate) fn of<T: JobType>() -> Self {
        Self { options: T::OPTIONS, samples: samples::<T::Serde>, reread: reencode::<T> }
    }
}

//! What a payload type looks like, without its type: for the test kit.

use serde_json::Value;

use super::decode::reread;
use crate::{
    define::{JobType, Options},
    payload::samples,
};

/// The forms of one payload type.
#[derive(Clone, Copy)]
pub(crate) struct PayloadForms {
    pub(crate) options: Options,
    /// Payloads of the type, in each of its forms; or why none can be made.
    pub(crate) samples: fn() -> Result<Vec<Value>, String>,
    /// A payload of a version, read and written again; or why it cannot be read.
    pub(crate) reread: fn(&Value, u16) -> Result<Value, String>,
}

impl PayloadForms {
    pub(crate) fn of<T: JobType>() -> Self {
        Self { options: T::OPTIONS, samples: samples::<T>, reread: reread::<T> }
    }
}

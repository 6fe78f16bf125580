//! What is wrong with the job types of a worker.

/// Why a worker cannot start with the job types it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Nothing is registered.
    #[error(
        "no job types are linked into this binary; name the crate that defines them (`use my_app as _;` or `queue_worker::main!(my_app)`), or call `Worker::register::<T>()`"
    )]
    Empty,
    /// Two types share a name.
    #[error("two job types are called `{name}`: `{first}` and `{second}`; give one of them another `name = ..`")]
    Duplicate {
        /// The name.
        name: &'static str,
        /// One Rust type.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Handlers need state that the worker was not given.
    #[error("state is missing: {missing}; give it with `Worker::state(value)`")]
    MissingState {
        /// Each missing type with the job types that need it.
        missing: String,
    },
    /// Payloads of all types are sealed by keyrings that this process does not have.
    #[error(
        "the worker could run nothing: payloads of `{job_type}` are sealed with the keyring `{keyring}`, which is not known to this process; give it with `queue_core::use_keyring` before the worker runs"
    )]
    NoKeyring {
        /// The first of the types.
        job_type: &'static str,
        /// Its keyring.
        keyring: &'static str,
    },
    /// A hand-written `Job` with an option out of range.
    #[error("the options of `{rust_type}` are wrong: {what}")]
    InvalidOption {
        /// The Rust type.
        rust_type: &'static str,
        /// What is wrong.
        what: String,
    },
}

impl RegistryError {
    /// From pairs of job type and missing Rust type.
    pub(crate) fn missing_state(missing: &[(&str, &str)]) -> Self {
        let listed: Vec<String> = missing.iter().map(|(job, state)| format!("`{state}` (for `{job}`)")).collect();
        Self::MissingState { missing: listed.join(", ") }
    }
}

//! Errors of the registry of job types.

/// Reason why a worker cannot start with its job types.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No job type is registered.
    #[error(
        "no job types are linked into this binary; name the crate that defines them (`use my_app as _;` or `queue_worker::main!(my_app)`), or call `Worker::register::<T>()`"
    )]
    Empty,
    /// Two job types share a name.
    #[error("two job types have the name `{name}`: `{first}` and `{second}`; give one of them another `name = ..`")]
    Duplicate {
        /// Shared name or alias.
        name: &'static str,
        /// First Rust type.
        first: &'static str,
        /// Second Rust type.
        second: &'static str,
    },
    /// Handlers need state that the worker does not have.
    #[error("state is missing: {missing}; register it with `Worker::state(value)`")]
    MissingState {
        /// Missing types, each with the job types that need it.
        missing: String,
    },
    /// This process lacks the keyrings that seal the payloads of all registered types.
    #[error(
        "no job type can run: payloads of `{job_type}` are sealed with the keyring `{keyring}`, which this process does not have; add it with `queue_core::use_keyring` before the worker runs"
    )]
    NoKeyring {
        /// First of the job types.
        job_type: &'static str,
        /// Name of its keyring.
        keyring: &'static str,
    },
    /// An option is out of range, as in a hand-written `Job`.
    #[error("the options of `{rust_type}` are invalid: {what}")]
    InvalidOption {
        /// Rust type of the job.
        rust_type: &'static str,
        /// Description of the invalid option.
        what: String,
    },
}

impl RegistryError {
    /// Builds the error from pairs of job type and missing Rust type.
    pub(crate) fn missing_state(missing: &[(&str, &str)]) -> Self {
        let listed: Vec<String> = missing.iter().map(|(job, state)| format!("`{state}` (for `{job}`)")).collect();
        Self::MissingState { missing: listed.join(", ") }
    }
}

//! Error type for workers that cannot start because of their job types.

/// Error that prevents a worker from starting because of its job types.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No job type is registered.
    #[error(
        "no handlers are linked into this binary; name the crate that defines them (`use my_app as _;` or `queue_worker::main!(my_app)`), or call `Worker::register::<T>()`"
    )]
    Empty,
    /// Two job types share a name.
    #[error("two job types have the name `{name}`: `{first}` and `{second}`; give one of them another `name = ..`")]
    Duplicate {
        /// Name or alias shared by the two types.
        name: &'static str,
        /// First Rust type with this name.
        first: &'static str,
        /// Second Rust type with this name.
        second: &'static str,
    },
    /// A job type has two handlers.
    #[error("the job type `{job_type}` has two handlers: `{first}` and `{second}`; remove one of them")]
    TwoHandlers {
        /// Name of the job type.
        job_type: &'static str,
        /// First Rust type that handles jobs of the type.
        first: &'static str,
        /// Second Rust type that handles jobs of the type.
        second: &'static str,
    },
    /// Handlers need state that is not registered with the worker.
    #[error(
        "state is missing: {missing}; add `state = function` to `main!(..)`, or call `Worker::state(value)`, in a test `.state(value)`"
    )]
    MissingState {
        /// Missing state types, each with the job type that requires it.
        missing: String,
    },
    /// Every registered type seals its payloads with a keyring that this process lacks.
    #[error(
        "no job type can run: payloads of `{job_type}` are sealed with the keyring `{keyring}`, which this process does not have; add it with `queue_core::use_keyring` before the worker runs"
    )]
    NoKeyring {
        /// First job type whose keyring this process lacks.
        job_type: &'static str,
        /// Name of the keyring of `job_type`.
        keyring: &'static str,
    },
    /// An option is invalid. `#[job]` rejects most invalid options at compile time.
    #[error("the options of `{rust_type}` are invalid: {what}")]
    InvalidOption {
        /// Name of the Rust type with the invalid option.
        rust_type: &'static str,
        /// Description of the invalid option, with the accepted values.
        what: String,
    },
}

impl RegistryError {
    /// Creates a [`MissingState`](Self::MissingState) error from pairs of a job type and a state type that it requires.
    pub(crate) fn missing_state(missing: &[(&str, &str)]) -> Self {
        let listed: Vec<String> = missing.iter().map(|(job, state)| format!("`{state}` (for `{job}`)")).collect();
        Self::MissingState { missing: listed.join(", ") }
    }
}

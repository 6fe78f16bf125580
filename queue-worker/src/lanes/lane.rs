//! A lane, as a worker knows it.

/// A lane that this worker serves.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) job_type: &'static str,
    /// Of the payloads.
    pub(crate) version: u16,
    pub(crate) priority: i16,
    pub(crate) solo: bool,
}

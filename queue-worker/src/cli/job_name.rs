//! Job names on the command line: an id, or a store name with an id.

use std::fmt::Display;

use queue_core::{JobId, stores::StoreJob};

use super::values::id;

/// Name of a job in arguments and results.
pub(super) trait JobName: Clone + Display + Send + Sync + 'static {
    /// Placeholder for the job name in usage lines.
    const PLACEHOLDER: &'static str;

    /// Parses a job name from an argument.
    fn parse_name(text: &str) -> Result<Self, String>;

    /// Returns the error message for a rejected operation on the job.
    fn refusal(&self, why: &str) -> String;

    /// Converts help examples with plain job ids to examples with job names of this type.
    fn examples(text: &'static str) -> String;
}

impl JobName for JobId {
    const PLACEHOLDER: &'static str = "ID";

    fn parse_name(text: &str) -> Result<Self, String> {
        id(text).map_err(str::to_owned)
    }

    fn refusal(&self, why: &str) -> String {
        why.to_owned()
    }

    fn examples(text: &'static str) -> String {
        text.to_owned()
    }
}

impl JobName for StoreJob {
    const PLACEHOLDER: &'static str = "STORE/ID";

    fn parse_name(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "expected a job like `store/123`, as shown by `stores jobs`".to_owned())
    }

    fn refusal(&self, why: &str) -> String {
        format!("in the store `{}`: {why}", self.store())
    }

    fn examples(text: &'static str) -> String {
        text.replace("queue-worker ", "queue-worker stores ").replace(" 1879", " acme/1879")
    }
}

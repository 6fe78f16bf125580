//! What a command calls a job by: its id, or its id with the name of its store.

use std::fmt::Display;

use queue_core::{JobId, stores::StoreJob};

use super::values::id;

/// A job's name in arguments and answers.
pub(super) trait JobName: Clone + Display + Send + Sync + 'static {
    /// As usage shows it.
    const SHOWN: &'static str;

    /// As somebody has written it.
    fn read(text: &str) -> Result<Self, String>;

    /// Why it was left as it is, said of this job.
    fn refusal(&self, why: &str) -> String;

    /// Examples of a command, which are written for ids.
    fn examples(text: &'static str) -> String;
}

impl JobName for JobId {
    const SHOWN: &'static str = "ID";

    fn read(text: &str) -> Result<Self, String> {
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
    const SHOWN: &'static str = "STORE/ID";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "a job of many stores is written `store/123`, as `stores jobs` shows it".to_owned())
    }

    fn refusal(&self, why: &str) -> String {
        format!("in the store `{}`: {why}", self.store())
    }

    fn examples(text: &'static str) -> String {
        text.replace("queue-worker ", "queue-worker stores ").replace(" 1879", " acme/1879")
    }
}

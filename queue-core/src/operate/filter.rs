//! Filter that selects jobs. This module uses neither the database nor a clock.

use std::time::Duration;

use serde_json::{Map, Value};
use sqlx::types::Json;

use crate::{
    context::Registry,
    define::{JobId, JobState},
    error::Error,
    schema::check_name,
};

/// Filter that selects jobs. The default selects all jobs, 50 per page.
///
/// ```
/// use queue_core::{JobState, operate::Filter};
///
/// let dead_mails = Filter { state: Some(JobState::Dead), queue: Some("mail".into()), ..Filter::default() };
/// let of_acme = Filter::default().job_type("send_email").meta("tenant", "acme");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// State of the selected jobs; `None` for any state.
    pub state: Option<JobState>,
    /// Queue of the selected jobs; `None` for any queue.
    pub queue: Option<String>,
    /// Stored names of the selected jobs' types; empty for any type. [`Filter::job_type`] adds a type with its aliases.
    pub job_types: Vec<String>,
    /// Metadata that the selected jobs must contain (SQL operator `@>`). Objects and arrays in a job's metadata may have additional
    /// elements.
    pub meta: Map<String, Value>,
    /// Maximum number of jobs per page. Default: 50. Values above [`Filter::MOST`] are treated as [`Filter::MOST`].
    pub limit: u32,
    /// Exclusive upper bound of the selected ids: only jobs enqueued before this job are selected. For the next page, use
    /// [`Page::next`](super::Page::next) of the previous page.
    pub before: Option<JobId>,
    /// Maximum time since the selected jobs finished or died. Unfinished jobs are compared by the time since they were enqueued. A
    /// duration of more than a hundred years is treated as a hundred years.
    pub since: Option<Duration>,
    /// Minimum time since the selected jobs finished or died. Unfinished jobs are compared by the time since they were enqueued. A
    /// duration of more than a hundred years is treated as a hundred years.
    pub older_than: Option<Duration>,
    /// Substring of the last failed attempt's error. If set, lists contain only dead letters.
    pub error: Option<String>,
    /// Whether lists include payloads and outputs. Default: false.
    pub payload: bool,
}

impl Filter {
    /// Maximum number of jobs per page.
    pub const MOST: u32 = 1000;

    /// Adds a job type. If `name` is the name or an alias of a type linked into this binary, adds all names under which jobs of the type
    /// are stored. Otherwise, adds only `name`.
    #[must_use]
    pub fn job_type(mut self, name: &str) -> Self {
        match Registry::linked().unwrap_or_default().get(name).map(|registration| *registration.options()) {
            Some(options) => self.job_types.extend(std::iter::once(&options.name).chain(options.aliases).map(|name| (*name).to_owned())),
            None => self.job_types.push(name.to_owned()),
        }
        self
    }

    /// Adds a required metadata entry.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Rejects invalid names. An invalid name matches no job and is probably a mistake.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
        self.job_types.iter().try_for_each(|job_type| check_name("job type name", job_type))
    }

    /// Returns the job types as a statement parameter, or `None` for all types.
    pub(super) fn names(&self) -> Option<&[String]> {
        (!self.job_types.is_empty()).then_some(&*self.job_types)
    }

    /// Returns the metadata as a statement parameter, or `None` if no entries are required.
    pub(super) fn meta_json(&self) -> Option<Json<&Map<String, Value>>> {
        (!self.meta.is_empty()).then_some(Json(&self.meta))
    }

    pub(super) fn since_seconds(&self) -> Option<f64> {
        self.since.map(seconds)
    }

    pub(super) fn age_seconds(&self) -> Option<f64> {
        self.older_than.map(seconds)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            state: None,
            queue: None,
            job_types: Vec::new(),
            meta: Map::new(),
            limit: 50,
            before: None,
            since: None,
            older_than: None,
            error: None,
            payload: false,
        }
    }
}

fn seconds(age: Duration) -> f64 {
    age.min(Duration::from_hours(100 * 365 * 24)).as_secs_f64()
}

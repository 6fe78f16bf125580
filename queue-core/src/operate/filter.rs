//! Which jobs are meant. Pure: no database, no clock.

use std::time::Duration;

use serde_json::{Map, Value};
use sqlx::types::Json;

use crate::{
    context::Registry,
    define::{JobId, JobState},
    error::Error,
    schema::check_name,
};

/// Which jobs are meant. The default is all of them, 50 at a time.
///
/// ```
/// use queue_core::{JobState, operate::Filter};
///
/// let dead_mails = Filter { state: Some(JobState::Dead), queue: Some("mail".into()), ..Filter::default() };
/// let of_acme = Filter::default().job_type("send_email").meta("tenant", "acme");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In this state only.
    pub state: Option<JobState>,
    /// In this queue only.
    pub queue: Option<String>,
    /// Stored under one of these job types only, if there are any. [`Filter::job_type`] adds a type with its aliases.
    pub job_types: Vec<String>,
    /// With all of this in their metadata. Objects and arrays contain what is given if they have it and more, as `@>` says in SQL.
    pub meta: Map<String, Value>,
    /// How many jobs a list has at most. Default 50; more than [`Filter::MOST`] is taken for that.
    pub limit: u32,
    /// Enqueued before this job: where the last page ended.
    pub before: Option<JobId>,
    /// Not longer ago than this. What counts is when the job was completed, was cancelled, expired or died; if it is not over, its enqueue. More than a
    /// hundred years are taken for that, here and below.
    pub since: Option<Duration>,
    /// At least so long ago, counted the same.
    pub older_than: Option<Duration>,
    /// With this text in the error of its last failed attempt. In lists: only dead letters.
    pub error: Option<String>,
    /// Whether lists show payloads and outputs. Default: they do not.
    pub payload: bool,
}

impl Filter {
    /// The longest list.
    pub const MOST: u32 = 1000;

    /// Of this job type too, under whichever of its names jobs are stored: a name or an alias of a type that is linked into this binary stands
    /// for all of them, any other for itself.
    #[must_use]
    pub fn job_type(mut self, name: &str) -> Self {
        match Registry::linked().unwrap_or_default().get(name).map(|registration| *registration.options()) {
            Some(options) => self.job_types.extend(std::iter::once(&options.name).chain(options.aliases).map(|name| (*name).to_owned())),
            None => self.job_types.push(name.to_owned()),
        }
        self
    }

    /// With this in their metadata too.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Names outside the grammar match nothing, and are more likely a mistake than a question.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
        self.job_types.iter().try_for_each(|job_type| check_name("job type name", job_type))
    }

    /// As the statements take it.
    pub(super) fn names(&self) -> Option<&[String]> {
        (!self.job_types.is_empty()).then_some(&*self.job_types)
    }

    /// As the statements take it.
    pub(super) fn meta_json(&self) -> Option<Json<&Map<String, Value>>> {
        (!self.meta.is_empty()).then_some(Json(&self.meta))
    }

    /// In seconds, as the statements take it.
    pub(super) fn since_seconds(&self) -> Option<f64> {
        self.since.map(seconds)
    }

    /// In seconds, as the statements take it.
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

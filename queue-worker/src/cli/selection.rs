//! Arguments that select jobs by filter or by ids.

use queue_core::{JobId, JobState, operate::Filter};
use serde_json::Value;

use super::{
    job_name::JobName,
    problem::Problem,
    span::Span,
    values::{OutputArgs, id, meta, whole_in},
};

#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// Only jobs in this state: blocked, scheduled, ready, running, parked, completed, dead, cancelled or expired
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: FilterArgs,
    /// Maximum number of jobs; values above 1000 count as 1000
    #[arg(long, default_value_t = Filter::default().limit, value_name = "N", value_parser = whole_in::<u32>(1..=u32::MAX))]
    limit: u32,
    /// Only jobs enqueued before this job
    #[arg(long, value_name = "ID", value_parser = id)]
    before: Option<JobId>,
    /// Only unfinished jobs with this ordering key, in key order; without --queue, in the queue `default`
    #[arg(long, conflicts_with_all = ["state", "job_type", "since", "older_than", "error", "meta", "before"])]
    key: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl ListArgs {
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.kind.check_of_list(self.state)
    }

    /// Returns the text to print for an empty list.
    pub(super) fn empty_text(&self) -> String {
        self.of_key().map_or_else(|| "no jobs".to_owned(), |(queue, key, _)| format!("no jobs with the key `{key}` in the queue `{queue}`"))
    }

    /// Returns the queue, the ordering key and the maximum number of jobs, or `None` if no ordering key was given.
    pub(super) fn of_key(&self) -> Option<(&str, &str, u32)> {
        let queue = self.kind.queue.as_deref().unwrap_or("default");
        Some((queue, self.key.as_deref()?, self.limit))
    }

    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: self.limit, before: self.before, ..self.kind.filter() }
    }
}

/// Arguments of `tail`.
#[derive(clap::Args)]
pub(super) struct TailArgs {
    /// Follow only this job, until it is finished
    #[arg(value_parser = id, conflicts_with_all = ["queue", "job_type", "meta"])]
    pub(super) id: Option<JobId>,
    /// Only jobs in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this type, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Only jobs with this metadata; a value that is not JSON counts as text. May be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    meta: Vec<(String, Value)>,
    /// Number of existing jobs to print first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = whole_in::<u16>(0..=u16::MAX.into()))]
    pub(super) lines: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl TailArgs {
    pub(super) fn filter(&self) -> Filter {
        let filter = self.job_type.iter().fold(Filter::default(), |filter, name| filter.job_type(name));
        Filter { queue: self.queue.clone(), meta: self.meta.iter().cloned().collect(), ..filter }
    }
}

/// Arguments of `export`.
#[derive(clap::Args)]
pub(super) struct ExportArgs {
    /// Only jobs in this state: blocked, scheduled, ready, running, parked, completed, dead, cancelled or expired
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: FilterArgs,
    /// Include payloads and outputs
    #[arg(long)]
    payload: bool,
}

impl ExportArgs {
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.kind.check_of_list(self.state)
    }

    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: Filter::MOST, payload: self.payload, ..self.kind.filter() }
    }
}

/// Arguments that select jobs by ids or by a filter.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that people write")]
pub(super) struct JobSelection<I: JobName> {
    /// Job ids
    #[arg(value_name = I::PLACEHOLDER, value_parser = I::parse_name, conflicts_with = "all")]
    pub(super) ids: Vec<I>,
    /// Select all jobs that permit the operation and match the other options
    #[arg(long)]
    pub(super) all: bool,
    /// With --all: count the jobs without changing them
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run: count all jobs instead of at most 10,000
    #[arg(long, requires = "dry_run")]
    pub(super) exact: bool,
    /// With --all: do not ask for confirmation
    #[arg(long)]
    pub(super) yes: bool,
    /// With --all: only jobs in this state
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: FilterArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl<I: JobName> JobSelection<I> {
    /// Checks that jobs are selected either by ids or by `--all`, and that filter options are given only with `--all`. With ids, filter
    /// options would have no effect. `more` states whether a filter option that is specific to the command is set.
    pub(super) fn check(&self, more: bool) -> Result<(), Problem> {
        let chooses = more || self.dry_run || self.yes || self.state.is_some() || self.kind.is_set();
        if self.all || !(chooses || self.ids.is_empty()) {
            return self.kind.check();
        }
        Err(Problem::usage(match (self.ids.is_empty(), chooses) {
            (true, true) => "filter options are given without `--all`; add `--all`, or select jobs by their ids".to_owned(),
            (true, false) => format!("no jobs are selected; give jobs as {}, or `--all` with filter options", I::PLACEHOLDER),
            (false, _) => "filter options are given beside job ids; use `--all` instead of ids".to_owned(),
        }))
    }

    /// Returns the selection as text for the audit log.
    pub(super) fn text(&self) -> String {
        let state = self.state.map(|state| format!("state:{state}"));
        let terms: Vec<String> = state.into_iter().chain(self.kind.search_terms()).collect();
        if terms.is_empty() { "all jobs".to_owned() } else { format!("jobs of {}", terms.join(" ")) }
    }

    /// Returns the filter for `--all`.
    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, ..self.kind.filter() }
    }
}

#[derive(clap::Args)]
struct FilterArgs {
    /// Only jobs in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this type, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Only jobs enqueued within this duration; for finished jobs, the finish time counts
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<Span>,
    /// Only jobs enqueued at least this duration ago; for finished jobs, the finish time counts
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    older_than: Option<Span>,
    /// Only jobs whose last error contains this text; in lists and exports, only dead letters
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only jobs with this metadata; a value that is not JSON counts as text. May be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    meta: Vec<(String, Value)>,
}

impl FilterArgs {
    fn is_set(&self) -> bool {
        let (queue, job_type, error) = (&self.queue, &self.job_type, &self.error);
        let is_set = [queue, job_type, error].iter().any(|text| text.is_some()) || self.since.is_some() || self.older_than.is_some();
        is_set || !self.meta.is_empty()
    }

    /// Rejects an empty time range, which would silently match no job.
    fn check(&self) -> Result<(), Problem> {
        match (self.since, self.older_than) {
            (Some(since), Some(older)) if since.0 <= older.0 => Err(Problem::usage(format!(
                "no job can be of the last {since} and older than {older}; `--since` must be longer than `--older-than`"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks the filter of a list or an export, where `--error` matches only dead letters. Rejects `--error` with a state other than
    /// dead. Also rejects an empty time range.
    fn check_of_list(&self, state: Option<JobState>) -> Result<(), Problem> {
        match state.filter(|state| *state != JobState::Dead && self.error.is_some()) {
            Some(state) => {
                Err(Problem::usage(format!("`--error` applies to dead letters only, and `--state` is {state}; omit one of the two")))
            }
            None => self.check(),
        }
    }

    /// Returns the filter in the syntax of the dashboard's search field.
    fn search_terms(&self) -> Vec<String> {
        let span = |span: Span| span.to_string();
        let named = [
            ("queue:", self.queue.clone()),
            ("type:", self.job_type.clone()),
            ("since:", self.since.map(span)),
            ("older:", self.older_than.map(span)),
            ("", self.error.clone()),
        ];
        let named = named.into_iter().filter_map(|(key, value)| Some(format!("{key}{}", value?)));
        named.chain(self.meta.iter().map(|(key, value)| format!("{key}={value}"))).collect()
    }

    fn filter(&self) -> Filter {
        let filter = self.job_type.iter().fold(Filter::default(), |filter, name| filter.job_type(name));
        Filter {
            queue: self.queue.clone(),
            meta: self.meta.iter().cloned().collect(),
            since: self.since.map(|span| span.0),
            older_than: self.older_than.map(|span| span.0),
            error: self.error.clone(),
            ..filter
        }
    }
}

//! Which jobs a command means: those of some kind, or those named by their ids.

use queue_core::{JobId, JobState, operate::Filter};
use serde_json::Value;

use super::{
    named::JobName,
    problem::Problem,
    span::Span,
    values::{Output, id, meta, whole_in},
};

#[derive(clap::Args)]
pub(super) struct List {
    /// In this state: blocked, scheduled, ready, running, parked, completed, dead, cancelled or expired
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: Kind,
    /// At most so many; more than 1000 is taken for that
    #[arg(long, default_value_t = Filter::default().limit, value_name = "N", value_parser = whole_in::<u32>(1..=u32::MAX))]
    limit: u32,
    /// Enqueued before this job
    #[arg(long, value_name = "ID", value_parser = id)]
    before: Option<JobId>,
    /// With this ordering key in the queue (`default` unless said), in the order of the key; none that is over
    #[arg(long, conflicts_with_all = ["state", "job_type", "since", "older_than", "error", "meta", "before"])]
    key: Option<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

impl List {
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.kind.check_of_list(self.state)
    }

    /// What is shown where there are none.
    pub(super) fn none(&self) -> String {
        self.of_key().map_or_else(|| "no jobs".to_owned(), |(queue, key, _)| format!("no jobs with the key `{key}` in the queue `{queue}`"))
    }

    /// The queue, the key, and how many, if those of a key are wanted.
    pub(super) fn of_key(&self) -> Option<(&str, &str, u32)> {
        let queue = self.kind.queue.as_deref().unwrap_or("default");
        Some((queue, self.key.as_deref()?, self.limit))
    }

    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: self.limit, before: self.before, ..self.kind.filter() }
    }
}

/// What `tail` follows.
#[derive(clap::Args)]
pub(super) struct Tail {
    /// This job alone, until it is over
    #[arg(value_parser = id, conflicts_with_all = ["queue", "job_type", "meta"])]
    pub(super) id: Option<JobId>,
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this job type, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// With this in its metadata; a value that is no JSON is text. May be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    meta: Vec<(String, Value)>,
    /// Of the jobs that are there already, show so many first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = whole_in::<u16>(0..=u16::MAX.into()))]
    pub(super) lines: u16,
    #[command(flatten)]
    pub(super) output: Output,
}

impl Tail {
    pub(super) fn filter(&self) -> Filter {
        let filter = self.job_type.iter().fold(Filter::default(), |filter, name| filter.job_type(name));
        Filter { queue: self.queue.clone(), meta: self.meta.iter().cloned().collect(), ..filter }
    }
}

/// What `export` writes.
#[derive(clap::Args)]
pub(super) struct Export {
    /// In this state: blocked, scheduled, ready, running, parked, completed, dead, cancelled or expired
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: Kind,
    /// With payloads and outputs
    #[arg(long)]
    payload: bool,
}

impl Export {
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.kind.check_of_list(self.state)
    }

    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: Filter::MOST, payload: self.payload, ..self.kind.filter() }
    }
}

/// Jobs by their ids, or all of some kind.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that people write")]
pub(super) struct Chosen<I: JobName> {
    /// The jobs' ids
    #[arg(value_name = I::SHOWN, value_parser = I::read, conflicts_with = "all")]
    pub(super) ids: Vec<I>,
    /// All to which it can be done, of the kind that the other options say
    #[arg(long)]
    pub(super) all: bool,
    /// With --all: say how many they are, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run: count them all, not only the first 10,000
    #[arg(long, requires = "dry_run")]
    pub(super) exact: bool,
    /// With --all: do not ask
    #[arg(long)]
    pub(super) yes: bool,
    /// With --all: in this state only
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    pub(super) output: Output,
}

impl<I: JobName> Chosen<I> {
    /// What chooses among all is refused beside ids: it would not be looked at. `more` is what a command has besides.
    pub(super) fn check(&self, more: bool) -> Result<(), Problem> {
        let chooses = more || self.dry_run || self.yes || self.state.is_some() || self.kind.is_said();
        if self.all || !(chooses || self.ids.is_empty()) {
            return self.kind.check();
        }
        Err(Problem::usage(match (self.ids.is_empty(), chooses) {
            (true, true) => "options are given that choose among all jobs; add `--all`, or name jobs by their ids".to_owned(),
            (true, false) => format!("no job is named; give jobs as {}, or `--all` with what chooses among them", I::SHOWN),
            (false, _) => {
                "jobs are named by their ids, and options are given that choose among all; give `--all` instead of ids".to_owned()
            }
        }))
    }

    /// The same in words, for a note.
    pub(super) fn text(&self) -> String {
        let state = self.state.map(|state| format!("state:{state}"));
        let said: Vec<String> = state.into_iter().chain(self.kind.words()).collect();
        if said.is_empty() { "all jobs".to_owned() } else { format!("jobs of {}", said.join(" ")) }
    }

    /// Which jobs `--all` means.
    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, ..self.kind.filter() }
    }
}

#[derive(clap::Args)]
struct Kind {
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this job type, under any of its names
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Enqueued not longer ago than this; if it is over: over since then
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<Span>,
    /// Enqueued at least so long ago; if it is over: over for so long
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    older_than: Option<Span>,
    /// With this text in its last error; lists and exports: only dead letters
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// With this in its metadata; a value that is no JSON is text. May be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    meta: Vec<(String, Value)>,
}

impl Kind {
    fn is_said(&self) -> bool {
        let (queue, job_type, error) = (&self.queue, &self.job_type, &self.error);
        let is_said = [queue, job_type, error].iter().any(|text| text.is_some()) || self.since.is_some() || self.older_than.is_some();
        is_said || !self.meta.is_empty()
    }

    /// Bounds between which there is no time would choose none, silently.
    fn check(&self) -> Result<(), Problem> {
        match (self.since, self.older_than) {
            (Some(since), Some(older)) if since.0 <= older.0 => Err(Problem::usage(format!(
                "no job is of the last {since} and older than {older}; give `--since` a longer duration than `--older-than`"
            ))),
            _ => Ok(()),
        }
    }

    /// The same, where errors are those of dead letters.
    fn check_of_list(&self, state: Option<JobState>) -> Result<(), Problem> {
        match state.filter(|state| *state != JobState::Dead && self.error.is_some()) {
            Some(state) => {
                Err(Problem::usage(format!("`--error` chooses among dead letters, and `--state` is {state}; leave out one of the two")))
            }
            None => self.check(),
        }
    }

    /// As the dashboard's search has them.
    fn words(&self) -> Vec<String> {
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

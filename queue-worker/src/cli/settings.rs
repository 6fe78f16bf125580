//! Settings from options, environment, file and defaults, merged in that order into one [`Config`].
//!
//! The two structs are read by clap (option, then environment) and by serde (file) alike, so that a setting is named once. Nothing here
//! connects to anything.

use std::{io::ErrorKind, path::Path, str::FromStr, time::Duration};

use clap::ValueEnum;
use queue_core::{Durability, Store};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{own_file::read_unasked, problem::Problem};
use crate::{error::Error, live::Config};

/// Heading of the options that every command takes.
pub(super) const EVERYWHERE: &str = "Everywhere";

/// What every command needs.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// The database, as `postgres://user:password@host:5432/name`; without one, an embedded PostgreSQL is used
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(super) database_url: Option<String>,
    /// Use a PostgreSQL of this machine's own, which is started when needed; a release build does so only if it is said
    #[arg(long, global = true, env = "QUEUE_EMBEDDED", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "true|false", help_heading = EVERYWHERE)]
    pub(super) embedded: Option<bool>,
    /// The schema with the queue's tables; default queue
    #[arg(long, global = true, env = "QUEUE_SCHEMA", value_name = "NAME", help_heading = EVERYWHERE)]
    pub(super) schema: Option<String>,
    /// What to log to stderr, as `info` or `queue_worker=debug,sqlx=warn`; default info for run, else warn. `RUST_LOG` counts too
    #[arg(long, global = true, env = "QUEUE_LOG", value_name = "FILTER", help_heading = EVERYWHERE)]
    pub(super) log: Option<String>,
    /// How to log; default text
    #[arg(long, global = true, env = "QUEUE_LOG_FORMAT", value_name = "FORMAT", help_heading = EVERYWHERE)]
    pub(super) log_format: Option<LogFormat>,
    #[arg(skip)]
    pub(super) worker: WorkerSettings,
}

/// What `run` needs besides.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkerSettings {
    /// Serve this queue, so many handlers at a time; may be repeated. Default: every queue with this binary's job types
    #[arg(long = "queue", env = "QUEUE_QUEUES", value_delimiter = ',', value_name = "NAME[=CONCURRENCY]")]
    queues: Option<Vec<Subscription>>,
    /// How many handlers run at a time: of each queue without a number of its own; default 50
    #[arg(long, env = "QUEUE_CONCURRENCY", value_name = "N")]
    concurrency: Option<usize>,
    /// Shown to operators; default the host's name
    #[arg(long, env = "QUEUE_NAME")]
    name: Option<String>,
    /// How often to look for jobs unasked; default 1s
    #[arg(long, env = "QUEUE_POLL_INTERVAL", value_name = "DURATION", allow_hyphen_values = true)]
    poll_interval: Option<Span>,
    /// How long this worker may be silent before others take its jobs; default 30s
    #[arg(long, env = "QUEUE_LEASE_TTL", value_name = "DURATION", allow_hyphen_values = true)]
    lease_ttl: Option<Span>,
    /// How long handlers may go on after a signal; default 20s
    #[arg(long, env = "QUEUE_GRACE", value_name = "DURATION", allow_hyphen_values = true)]
    grace: Option<Span>,
    /// How long completed and cancelled jobs are kept, unless their type says otherwise; default 7 days
    #[arg(long, env = "QUEUE_RETENTION", value_name = "DURATION", allow_hyphen_values = true)]
    retention: Option<Span>,
    /// How long dead letters are kept; default until somebody acts
    #[arg(long, env = "QUEUE_DEAD_RETENTION", value_name = "DURATION", allow_hyphen_values = true)]
    dead_retention: Option<Span>,
    /// How long a running handler may go on after its job was cancelled; default 10s
    #[arg(long, env = "QUEUE_CANCEL_GRACE", value_name = "DURATION", allow_hyphen_values = true)]
    cancel_grace: Option<Span>,
    /// How many jobs one claim takes at most; default 500
    #[arg(long, env = "QUEUE_BATCH", value_name = "N")]
    batch: Option<usize>,
    /// How long jobs of a lower priority may be passed over before some go first; default for ever
    #[arg(long, env = "QUEUE_AGING", value_name = "DURATION", allow_hyphen_values = true)]
    aging: Option<Span>,
    /// Do not wait for the disk with verdicts: after a crash of the database's machine the last jobs may run again
    #[arg(long, env = "QUEUE_RELAXED", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    relaxed: Option<bool>,
    /// Bring the schema up to date first, as is always done with the embedded database
    #[arg(long, env = "QUEUE_MIGRATE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    migrate: Option<bool>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One object a line
    Json,
}

/// A queue with its concurrency, written `mail=20` or `mail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    queue: String,
    concurrency: Option<usize>,
}

/// Where the database is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Url(&'a str),
    Embedded,
}

/// A duration, written `30s` or `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

/// The settings file that is read unasked, if it is there.
const DEFAULT_FILE: &str = "queue.toml";

impl Settings {
    /// The settings in `file`, or in the default file if that exists and is the user's own; none at all otherwise. Why that was passed over
    /// goes to `notes`.
    pub(super) fn read(file: Option<&Path>, notes: &mut Vec<String>) -> Result<Self, Problem> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let read = match file {
            Some(file) => std::fs::read_to_string(file).map(Ok),
            None => read_unasked(path),
        };
        match read {
            Ok(Ok(text)) => Self::parse(&text, path),
            Ok(Err(why)) => {
                notes.push(format!("./{DEFAULT_FILE} is not read: {why}; name it with `--config` if it is meant"));
                Ok(Self::default())
            }
            Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Problem::usage(format!("cannot read the settings file {}: {error}", path.display()))),
        }
    }

    /// Errors name the key and the line; they never show the line, which may hold a password.
    fn parse(text: &str, path: &Path) -> Result<Self, Problem> {
        let place = |error: &toml::de::Error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
        };
        let syntax = |error: toml::de::Error| Problem::usage(format!("{} is not TOML: {}", place(&error), error.message()));
        let document = toml::Deserializer::parse(text).map_err(syntax)?;
        serde_path_to_error::deserialize(document).map_err(|error| {
            let key = error.path().to_string();
            let error = error.into_inner();
            Problem::usage(format!("{}: the setting `{key}` is wrong: {}", place(&error), error.message()))
        })
    }

    /// These, and where they are silent, those of `lower`.
    pub(super) fn over(self, lower: Self) -> Self {
        let given = |text: &String| !text.is_empty();
        Self {
            database_url: self.database_url.filter(given).or(lower.database_url.filter(given)),
            embedded: self.embedded.or(lower.embedded),
            schema: self.schema.or(lower.schema),
            log: self.log.filter(given).or(lower.log),
            log_format: self.log_format.or(lower.log_format),
            worker: self.worker.over(lower.worker),
        }
    }

    /// Where the database is. Without a word a development build has its own; a release build is told where, lest a deployment whose
    /// variable is missing works on a database that nobody else sees.
    pub(super) fn place(&self, is_release: bool) -> Result<Place<'_>, Problem> {
        match (&self.database_url, self.embedded) {
            (Some(_), Some(true)) => Err(Problem::usage(
                "a database URL and the embedded PostgreSQL are both named; leave out DATABASE_URL, or `--embedded` (QUEUE_EMBEDDED)",
            )),
            (Some(url), _) => Ok(Place::Url(url)),
            (None, Some(true)) => Ok(Place::Embedded),
            (None, None) if !is_release => Ok(Place::Embedded),
            (None, _) => Err(Error::NoDatabase.into()),
        }
    }

    /// The store meant.
    pub(super) fn store(&self) -> Result<Store, Problem> {
        Ok(self.schema.as_deref().map_or_else(|| Ok(Store::default()), Store::new)?)
    }

    /// What a worker is given: these settings, else its defaults.
    pub(super) fn config(&self) -> Result<Config, Problem> {
        let worker = self.worker.clone();
        let default = Config::default();
        let concurrency = worker.concurrency.unwrap_or(default.concurrency);
        let queues = worker.queues.unwrap_or_default().into_iter();
        let config = Config {
            name: worker.name.unwrap_or(default.name),
            store: self.store()?,
            queues: queues.map(|Subscription { queue, concurrency: own }| (queue, own.unwrap_or(concurrency))).collect(),
            concurrency,
            transactional: default.transactional,
            poll_interval: worker.poll_interval.map_or(default.poll_interval, |span| span.0),
            lease_ttl: worker.lease_ttl.map_or(default.lease_ttl, |span| span.0),
            grace: worker.grace.map_or(default.grace, |span| span.0),
            retention: worker.retention.map_or(default.retention, |span| span.0),
            dead_retention: worker.dead_retention.map(|span| span.0).or(default.dead_retention),
            cancel_grace: worker.cancel_grace.map_or(default.cancel_grace, |span| span.0),
            batch: worker.batch.unwrap_or(default.batch),
            aging: worker.aging.map(|span| span.0).or(default.aging),
            durability: if worker.relaxed.unwrap_or(false) { Durability::Relaxed } else { default.durability },
        };
        config.check()?;
        Ok(config)
    }
}

impl WorkerSettings {
    fn over(self, lower: Self) -> Self {
        Self {
            queues: self.queues.or(lower.queues),
            concurrency: self.concurrency.or(lower.concurrency),
            name: self.name.or(lower.name),
            poll_interval: self.poll_interval.or(lower.poll_interval),
            lease_ttl: self.lease_ttl.or(lower.lease_ttl),
            grace: self.grace.or(lower.grace),
            retention: self.retention.or(lower.retention),
            dead_retention: self.dead_retention.or(lower.dead_retention),
            cancel_grace: self.cancel_grace.or(lower.cancel_grace),
            batch: self.batch.or(lower.batch),
            aging: self.aging.or(lower.aging),
            relaxed: self.relaxed.or(lower.relaxed),
            migrate: self.migrate.or(lower.migrate),
        }
    }

    /// Whether the schema is to be brought up to date first.
    pub(super) fn migrate(&self) -> bool {
        self.migrate.unwrap_or(false)
    }
}

impl FromStr for Subscription {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (queue, concurrency) = match text.split_once('=') {
            None => (text, None),
            Some((queue, number)) => {
                let number = number.parse().map_err(|_| "what follows the `=` is not a number; write it like `mail=20`")?;
                (queue, Some(number))
            }
        };
        queue_core::check_name("queue name", queue).map_err(|error| error.to_string())?;
        Ok(Self { queue: queue.to_owned(), concurrency })
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim_start().starts_with('-') {
            return Err("a duration cannot be negative".to_owned());
        }
        humantime::parse_duration(text).map(Self).map_err(|error| format!("{error}; write a duration like `30s`, `5m` or `1h 30m`"))
    }
}

impl<'de> Deserialize<'de> for Subscription {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        worker: WorkerSettings,
    }

    fn said(line: &str) -> Settings {
        let Line { settings, worker } = Line::parse_from(line.split(' '));
        Settings { worker, ..settings }
    }

    fn file(text: &str) -> Result<Settings, String> {
        Settings::parse(text, Path::new("queue.toml")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_option_wins_over_the_file_and_the_file_over_the_default() {
        let lower = file("schema = 'b'\nlog = 'debug'\n[worker]\nconcurrency = 7\nlease_ttl = '5s'\nqueues = ['mail=3', 'web']").unwrap();
        let settings = said("w --schema a --lease-ttl 9s").over(lower);
        let config = settings.config().unwrap();
        assert_eq!((config.store.schema(), settings.log.as_deref()), ("a", Some("debug")));
        assert_eq!((config.lease_ttl, config.concurrency), (Duration::from_secs(9), 7));
        assert_eq!(config.queues, [("mail".to_owned(), 3), ("web".to_owned(), 7)]);
        assert_eq!(config.grace, Config::default().grace);
    }

    #[test]
    fn queues_named_on_the_command_line_replace_those_of_the_file() {
        let lower = file("[worker]\nqueues = ['mail=3', 'web']").unwrap();
        let config = said("w --queue reports=2 --queue mail").over(lower).config().unwrap();
        assert_eq!(config.queues, [("reports".to_owned(), 2), ("mail".to_owned(), Config::default().concurrency)]);
    }

    #[test]
    fn f65_an_unknown_key_is_named_with_its_path_and_line() {
        let error = file("[worker]\n\nlease_tll = '5s'").err().unwrap();
        assert!(error.starts_with("queue.toml:3: ") && error.contains("worker.lease_tll"), "{error}");
        let error = file("databse_url = 'postgres://u:secret@h/d'").err().unwrap();
        assert!(error.contains("databse_url") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn f65_a_wrong_value_is_named_with_its_path() {
        for (text, key) in [
            ("[worker]\nlease_ttl = '-5s'", "worker.lease_ttl"),
            ("[worker]\ngrace = 5", "worker.grace"),
            ("[worker]\nqueues = ['ok', 'mail=many']", "worker.queues[1]"),
            ("[worker]\nconcurrency = -1", "worker.concurrency"),
            ("log_format = 'xml'", "log_format"),
            ("worker = 3", "worker"),
        ] {
            let error = file(text).err().unwrap();
            assert!(error.contains(&format!("`{key}`")), "{error}");
        }
        let error = file("[worker]\nlease_ttl = '0s'").unwrap().config().err().unwrap();
        assert!(error.to_string().contains("lease_ttl"), "{error}");
    }

    #[test]
    fn f64_a_file_that_is_not_toml_does_not_show_its_password() {
        let error = file("schema = 'queue'\ndatabase_url = 'postgres://u:secret@h/d\n").err().unwrap();
        assert!(error.starts_with("queue.toml:2") && !error.contains("secret"), "{error}");
        let error = file("database_url = ['postgres://u:secret@h/d']").err().unwrap();
        assert!(error.contains("`database_url`") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn f65_a_negative_duration_is_refused_on_the_command_line_too() {
        let error = Line::try_parse_from(["w", "--lease-ttl", "-5s"]).err().unwrap();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--lease-ttl") && error.to_string().contains("negative"), "{error}");
    }

    #[test]
    fn a_release_build_has_a_database_of_its_own_only_if_that_is_said() {
        let place = |settings: &Settings, is_release| settings.place(is_release).map(|place| format!("{place:?}")).ok();
        let (silent, embedded) = (Settings::default(), file("embedded = true").unwrap());
        assert_eq!(place(&silent, false).as_deref(), Some("Embedded"));
        assert_eq!(place(&silent, true), None);
        assert!(silent.place(true).unwrap_err().to_string().contains("no database is named"));
        assert_eq!(place(&embedded, true).as_deref(), Some("Embedded"));
        assert_eq!(place(&said("w --embedded=false").over(embedded.clone()), false), None);
        let url = Settings { database_url: Some("postgres:///d".to_owned()), ..Settings::default() };
        assert_eq!(place(&url, true).as_deref(), Some("Url(\"postgres:///d\")"));
        assert!(url.over(embedded).place(true).unwrap_err().to_string().contains("both named"));
    }

    #[test]
    fn an_empty_database_url_is_none() {
        let settings = Settings { database_url: Some(String::new()), ..Settings::default() };
        assert_eq!(settings.over(file("database_url = 'postgres:///d'").unwrap()).database_url.as_deref(), Some("postgres:///d"));
    }
}

//! Settings from options, environment variables, a file and defaults, in this order of precedence. The worker's settings are merged into
//! one [`Config`].
//!
//! clap parses options and environment variables, and serde parses the file. Both fill the same structs, so each setting is declared only
//! once. The worker's settings are declared in `live`. This module opens no connection.

use std::{io::ErrorKind, path::Path};

use clap::ValueEnum;
use queue_core::{Store, options::Durability};
use serde::Deserialize;

#[cfg(feature = "dashboard")]
use super::dashboard_settings::DashboardSettings;
use super::{
    default_file::read_default_file,
    problem::Problem,
    span::Span,
    stores::settings::StoresSettings,
    subscription::Subscription,
    values::{Whole, whole},
};
use crate::live::{Config, Database, DatabaseOptions, OnStandby, each_setting};

/// Help heading of the options that all commands have.
pub(super) const GLOBAL_HEADING: &str = "Global options";

/// Settings of all commands, each `None` if not set.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// Database URL, such as `postgres://user:password@host:5432/name`; may list several hosts; without a URL, an embedded PostgreSQL is
    /// used
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL", help_heading = GLOBAL_HEADING)]
    pub(super) database_url: Option<String>,
    /// URL of the server itself, if the database URL leads to a transaction pooler; only handlers use the pooler (default: the database
    /// URL)
    #[arg(long, global = true, env = "QUEUE_DIRECT_URL", hide_env_values = true, value_name = "URL", help_heading = GLOBAL_HEADING)]
    pub(super) direct_url: Option<String>,
    /// URL of one or more standbys for read-only commands and pages; any of these standbys is used (default: the database URL)
    #[arg(long, global = true, env = "QUEUE_READ_URL", hide_env_values = true, value_name = "URL", help_heading = GLOBAL_HEADING)]
    pub(super) read_url: Option<String>,
    /// Use an embedded PostgreSQL on this machine, which is started when needed; a release build uses it only if this option is set
    #[arg(long, global = true, env = "QUEUE_EMBEDDED", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "true|false", help_heading = GLOBAL_HEADING)]
    pub(super) embedded: Option<bool>,
    /// Schema of the queue's tables (default: `queue`)
    #[arg(long, global = true, env = "QUEUE_SCHEMA", value_name = "NAME", help_heading = GLOBAL_HEADING)]
    pub(super) schema: Option<String>,
    /// Log filter for stderr, such as `info` or `queue_worker=debug,sqlx=warn` (default: `RUST_LOG`; without that, info for `run` and
    /// warn for other commands)
    #[arg(long, global = true, env = "QUEUE_LOG", value_name = "FILTER", help_heading = GLOBAL_HEADING)]
    pub(super) log: Option<String>,
    /// Log format (default: text)
    #[arg(long, global = true, env = "QUEUE_LOG_FORMAT", value_name = "FORMAT", help_heading = GLOBAL_HEADING)]
    pub(super) log_format: Option<LogFormat>,
    #[arg(skip)]
    pub(super) worker: WorkerSettings,
    #[arg(skip)]
    pub(super) stores: StoresSettings,
    #[cfg(feature = "dashboard")]
    #[arg(skip)]
    pub(super) dashboard: DashboardSettings,
}

macro_rules! worker_settings {
    ($($(#[$attribute:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
        /// Settings of commands that run a worker: settings of the worker itself, and settings of its process such as the pool size.
        #[derive(clap::Args, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct WorkerSettings {
            /// Serve this queue and run at most this many handlers concurrently; may be repeated (default: every queue with this binary's
            /// job types)
            #[arg(long = "queue", env = "QUEUE_QUEUES", value_delimiter = ',', value_name = "NAME[=CONCURRENCY]")]
            queues: Option<Vec<Subscription>>,
            $($(#[$attribute])* #[arg(long, env = $variable, value_name = $value, allow_hyphen_values = true)] $name: Option<$written>,)*
            /// Number of connections shared by handlers, in addition to the worker's own connections (default: 20)
            #[arg(long, env = "QUEUE_POOL_SIZE", value_name = "N", value_parser = whole::<u32>)]
            pool_size: Option<u32>,
            /// Commit verdicts without waiting for the disk; after a crash of the database server, the last jobs may run again
            #[arg(long, env = "QUEUE_RELAXED", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
            relaxed: Option<bool>,
            /// Update the schema before starting; the embedded database is always updated
            #[arg(long, env = "QUEUE_MIGRATE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
            migrate: Option<bool>,
            /// Serve the health checks /livez and /readyz on this address, such as `[::]:8080` (default: not served). If another process
            /// uses the address, the bind is retried while jobs run
            #[cfg(feature = "health")]
            #[arg(long, env = "QUEUE_HEALTH", value_name = "ADDR", value_parser = super::values::address)]
            pub(super) health: Option<std::net::SocketAddr>,
        }

        impl WorkerSettings {
            fn with_fallback(self, lower: Self) -> Self {
                Self {
                    queues: self.queues.or(lower.queues),
                    $($name: self.$name.or(lower.$name),)*
                    pool_size: self.pool_size.or(lower.pool_size),
                    relaxed: self.relaxed.or(lower.relaxed),
                    migrate: self.migrate.or(lower.migrate),
                    #[cfg(feature = "health")]
                    health: self.health.or(lower.health),
                }
            }

            /// Applies the settings to the configuration. Unset settings keep their defaults.
            fn apply_to(self, config: &mut Config) {
                $(if let Some(value) = self.$name {
                    config.$name = value.into();
                })*
                if self.relaxed == Some(true) {
                    config.durability = Durability::Relaxed;
                }
                let own = |Subscription { queue, concurrency }| (queue, concurrency.unwrap_or(config.concurrency));
                config.queues = self.queues.into_iter().flatten().map(own).collect();
            }
        }
    };
}
each_setting!(worker_settings);

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    /// Human-readable
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Path of the optional default settings file.
const DEFAULT_FILE: &str = "queue.toml";

impl Settings {
    /// Reads the settings in `file`. Without `file`, reads the default file if the file exists and no other user can have written to it.
    /// Returns empty settings if no file is read. Adds a note if the default file was ignored.
    pub(super) fn read(file: Option<&Path>, notes: &mut Vec<String>) -> Result<Self, Problem> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let read = match file {
            Some(file) => std::fs::read_to_string(file).map(Ok),
            None => read_default_file(path),
        };
        match read {
            Ok(Ok(text)) => Self::parse(&text, path),
            Ok(Err(why)) => {
                notes.push(format!("./{DEFAULT_FILE} is ignored: {why}; pass it with `--config` to use it"));
                Ok(Self::default())
            }
            Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Problem::usage(format!("cannot read the settings file {}: {error}", path.display()))),
        }
    }

    /// Parses a settings file. Errors contain the key and the line number, but never the line itself, which may contain a password.
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

    /// Fills unset settings with the values from `lower`.
    pub(super) fn with_fallback(self, lower: Self) -> Self {
        let given = |text: &String| !text.is_empty();
        // A direct URL or read URL belongs to the database URL of the same source. If `self` has a database URL, the direct and read URLs
        // of `lower` are ignored.
        let is_named = self.database_url.as_ref().is_some_and(given);
        let beside = |url: Option<String>| url.filter(|url| given(url) && !is_named);
        Self {
            database_url: self.database_url.filter(given).or(lower.database_url.filter(given)),
            direct_url: self.direct_url.filter(given).or(beside(lower.direct_url)),
            read_url: self.read_url.filter(given).or(beside(lower.read_url)),
            embedded: self.embedded.or(lower.embedded),
            schema: self.schema.or(lower.schema),
            log: self.log.filter(given).or(lower.log),
            log_format: self.log_format.or(lower.log_format),
            worker: self.worker.with_fallback(lower.worker),
            stores: self.stores.with_fallback(lower.stores),
            #[cfg(feature = "dashboard")]
            dashboard: self.dashboard.with_fallback(lower.dashboard),
        }
    }

    /// Drops direct and read URLs from the environment if an option overrides `DATABASE_URL`. Such URLs belong to the database in
    /// `DATABASE_URL`, not to the database in the option.
    pub(super) fn without_foreign_urls(mut self) -> Self {
        let variable = |name| std::env::var(name).ok();
        if self.database_url.is_some() && self.database_url != variable("DATABASE_URL") {
            self.direct_url = self.direct_url.filter(|url| Some(url) != variable("QUEUE_DIRECT_URL").as_ref());
            self.read_url = self.read_url.filter(|url| Some(url) != variable("QUEUE_READ_URL").as_ref());
        }
        self
    }

    /// Returns the store in the configured schema, or the default store if no schema is set.
    pub(super) fn store(&self) -> Result<Store, Problem> {
        Ok(self.schema.as_deref().map_or_else(|| Ok(Store::default()), Store::new)?)
    }

    /// Returns the options of the selected database. Without a URL, the embedded database is selected. A direct URL takes precedence over
    /// the database URL and bypasses the pooler.
    pub(super) fn database(&self) -> DatabaseOptions {
        self.direct_url.iter().chain(&self.database_url).take(1).fold(self.worker.pool(Database::options()), DatabaseOptions::url)
    }

    /// Returns the options of a worker's database. If a direct URL is set, only handlers connect through the pooler at the database URL.
    pub(super) fn database_and_pooler(&self) -> DatabaseOptions {
        let both = self.database_url.as_ref().zip(self.direct_url.as_ref());
        both.map_or_else(|| self.database(), |(url, direct)| self.worker.pool(Database::options()).url(url).direct_url(direct))
    }

    /// Returns the worker's configuration: the defaults, overridden by the settings. Returns an error if the configuration is invalid.
    pub(super) fn config(&self) -> Result<Config, Problem> {
        let mut config = Config { store: self.store()?, ..Config::default() };
        self.worker.clone().apply_to(&mut config);
        config.check()?;
        Ok(config)
    }
}

impl WorkerSettings {
    /// Applies the size of the handlers' connection pool to `options`.
    pub(super) fn pool(&self, options: DatabaseOptions) -> DatabaseOptions {
        self.pool_size.into_iter().fold(options, DatabaseOptions::pool_size)
    }

    /// Returns whether to update the schema at startup.
    pub(super) fn migrate(&self) -> bool {
        self.migrate.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args as _, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        worker: WorkerSettings,
    }

    fn parsed(line: &str) -> Settings {
        let Line { settings, worker } = Line::parse_from(line.split(' '));
        Settings { worker, ..settings }
    }

    fn file(text: &str) -> Result<Settings, String> {
        Settings::parse(text, Path::new("queue.toml")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_option_wins_over_the_file_and_the_file_over_the_default() {
        let lower = file("schema = 'b'\nlog = 'debug'\n[worker]\nconcurrency = 7\nlease_ttl = '5s'\nqueues = ['mail=3', 'web']").unwrap();
        let settings = parsed("w --schema a --lease-ttl 9s").with_fallback(lower);
        let config = settings.config().unwrap();
        assert_eq!((config.store.schema(), settings.log.as_deref()), ("a", Some("debug")));
        assert_eq!((config.lease_ttl, config.concurrency), (Duration::from_secs(9), 7));
        assert_eq!(config.queues, [("mail".to_owned(), 3), ("web".to_owned(), 7)]);
        assert_eq!(config.grace, Config::default().grace);
    }

    #[test]
    fn every_setting_is_an_option_a_variable_and_a_key_of_the_file() {
        let command = <Line as clap::CommandFactory>::command();
        let settings: Vec<_> = command.get_arguments().collect();
        for setting in &settings {
            let (key, env_name) = (setting.get_id().as_str(), setting.get_env().and_then(std::ffi::OsStr::to_str));
            let variable = env_name.unwrap_or_else(|| panic!("`{key}` has no variable"));
            assert!(setting.get_long().is_some() && (variable == "DATABASE_URL" || variable.starts_with("QUEUE_")), "{key}: {variable}");
            let section = if WorkerSettings::augment_args(clap::Command::new("w")).get_arguments().any(|worker| worker.get_id() == key) {
                "[worker]\n"
            } else {
                ""
            };
            let is_key = ["1", "'1s'", "'text'", "true", "['mail']", "'[::1]:1'", "'wait'"]
                .iter()
                .any(|value| file(&format!("{section}{key} = {value}")).is_ok());
            assert!(is_key, "`{key}` is not a key of the file");
        }
        // Compares the options with the list in `each_setting!`, which also generates the methods of `Worker`.
        macro_rules! names {
            ($($(#[$attribute:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
                [$((stringify!($name), $variable)),*]
            };
        }
        for (name, variable) in each_setting!(names) {
            let setting = settings.iter().find(|setting| setting.get_id() == name).unwrap();
            assert_eq!(setting.get_long(), Some(name.replace('_', "-").as_str()));
            assert_eq!(
                (setting.get_env().unwrap().to_str(), variable),
                (Some(variable), format!("QUEUE_{}", name.to_uppercase()).as_str())
            );
        }
    }

    #[test]
    fn queues_named_on_the_command_line_replace_those_of_the_file() {
        let lower = file("[worker]\nqueues = ['mail=3', 'web']").unwrap();
        let config = parsed("w --queue reports=2 --queue mail").with_fallback(lower).config().unwrap();
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
    fn an_empty_database_url_is_none() {
        let settings = Settings { database_url: Some(String::new()), ..Settings::default() };
        assert_eq!(settings.with_fallback(file("database_url = 'postgres:///d'").unwrap()).database_url.as_deref(), Some("postgres:///d"));
    }
    #[test]
    fn direct_and_read_urls_belong_to_their_database_url() {
        let lower = || file("database_url = 'postgres:///a'\ndirect_url = 'postgres:///a-too'\nread_url = 'postgres:///a-looks'").unwrap();
        let same = Settings::default().with_fallback(lower());
        assert_eq!((same.direct_url.as_deref(), same.read_url.as_deref()), (Some("postgres:///a-too"), Some("postgres:///a-looks")));
        let other = parsed("w --database-url postgres:///b").with_fallback(lower());
        assert_eq!((other.database_url.as_deref(), other.direct_url, other.read_url), (Some("postgres:///b"), None, None));
    }
}

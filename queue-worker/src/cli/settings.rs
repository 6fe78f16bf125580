//! Settings from options, environment, file and defaults, merged in that order into one [`Config`].
//!
//! The two structs are read by clap (option, then environment) and by serde (file) alike, so that a setting is named once; a worker's are the
//! list in `live`. Nothing here connects to anything.

use std::{io::ErrorKind, path::Path};

use clap::ValueEnum;
use queue_core::{Durability, Store};
use serde::Deserialize;

#[cfg(feature = "dashboard")]
use super::dashboard_settings::DashboardSettings;
use super::{
    own_file::read_unasked,
    problem::Problem,
    span::Span,
    stores::settings::StoresSettings,
    subscription::Subscription,
    values::{Whole, whole},
};
use crate::live::{Config, Database, DatabaseOptions, OnStandby, each_setting};

/// Heading of the options that every command takes.
pub(super) const EVERYWHERE: &str = "Everywhere";

/// What every command needs.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    /// The database, as `postgres://user:password@host:5432/name`, or with several hosts; without one, an embedded PostgreSQL is used
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(super) database_url: Option<String>,
    /// Where the server itself is, if the database's URL leads to a pooler of transactions: for all but what handlers do; default the same
    #[arg(long, global = true, env = "QUEUE_DIRECT_URL", hide_env_values = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(super) direct_url: Option<String>,
    /// A standby, or several hosts of which one will do, for commands and pages that only look; default the database
    #[arg(long, global = true, env = "QUEUE_READ_URL", hide_env_values = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(super) read_url: Option<String>,
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
    #[arg(skip)]
    pub(super) stores: StoresSettings,
    #[cfg(feature = "dashboard")]
    #[arg(skip)]
    pub(super) dashboard: DashboardSettings,
}

macro_rules! worker_settings {
    ($($(#[$said:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
        /// What `run` needs besides: the list of a worker's settings, and what is its process's.
        #[derive(clap::Args, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct WorkerSettings {
            /// Serve this queue, so many handlers at a time; may be repeated. Default: every queue with this binary's job types
            #[arg(long = "queue", env = "QUEUE_QUEUES", value_delimiter = ',', value_name = "NAME[=CONCURRENCY]")]
            queues: Option<Vec<Subscription>>,
            $($(#[$said])* #[arg(long, env = $variable, value_name = $value, allow_hyphen_values = true)] $name: Option<$written>,)*
            /// How many connections handlers have to share. Default 20; the worker has its own
            #[arg(long, env = "QUEUE_POOL_SIZE", value_name = "N", value_parser = whole::<u32>)]
            pool_size: Option<u32>,
            /// Do not wait for the disk with verdicts: after a crash of the database's machine the last jobs may run again
            #[arg(long, env = "QUEUE_RELAXED", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
            relaxed: Option<bool>,
            /// Bring the schema up to date first, as is always done with the embedded database
            #[arg(long, env = "QUEUE_MIGRATE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
            migrate: Option<bool>,
            /// Answer health checks here, as `[::]:8080`: /livez and /readyz. Default: nowhere. A taken address is waited for while jobs run
            #[cfg(feature = "health")]
            #[arg(long, env = "QUEUE_HEALTH", value_name = "ADDR", value_parser = super::values::address)]
            pub(super) health: Option<std::net::SocketAddr>,
        }

        impl WorkerSettings {
            fn over(self, lower: Self) -> Self {
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

            /// These, else what stands there.
            fn put(self, config: &mut Config) {
                $(if let Some(said) = self.$name {
                    config.$name = said.into();
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
        // They stand beside the database that is named with them, and not beside another.
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
            worker: self.worker.over(lower.worker),
            stores: self.stores.over(lower.stores),
            #[cfg(feature = "dashboard")]
            dashboard: self.dashboard.over(lower.dashboard),
        }
    }

    /// Without addresses of the environment, if the database is named by an option: they stand beside the environment's.
    pub(super) fn of_options(mut self) -> Self {
        let said = |name| std::env::var(name).ok();
        if self.database_url.is_some() && self.database_url != said("DATABASE_URL") {
            self.direct_url = self.direct_url.filter(|url| Some(url) != said("QUEUE_DIRECT_URL").as_ref());
            self.read_url = self.read_url.filter(|url| Some(url) != said("QUEUE_READ_URL").as_ref());
        }
        self
    }

    /// The store meant.
    pub(super) fn store(&self) -> Result<Store, Problem> {
        Ok(self.schema.as_deref().map_or_else(|| Ok(Store::default()), Store::new)?)
    }

    /// The database meant; the embedded one if none is named. Past a pooler, if that is known.
    pub(super) fn database(&self) -> DatabaseOptions {
        self.direct_url.iter().chain(&self.database_url).take(1).fold(self.worker.pool(Database::options()), DatabaseOptions::url)
    }

    /// The same for a worker, whose handlers go through the pooler.
    pub(super) fn database_and_pooler(&self) -> DatabaseOptions {
        let both = self.database_url.as_ref().zip(self.direct_url.as_ref());
        both.map_or_else(|| self.database(), |(url, direct)| self.worker.pool(Database::options()).url(url).direct_url(direct))
    }

    /// What a worker is given: these settings, else its defaults.
    pub(super) fn config(&self) -> Result<Config, Problem> {
        let mut config = Config { store: self.store()?, ..Config::default() };
        self.worker.clone().put(&mut config);
        config.check()?;
        Ok(config)
    }
}

impl WorkerSettings {
    /// Where the pool that handlers share leads, and how large it is.
    pub(super) fn pool(&self, options: DatabaseOptions) -> DatabaseOptions {
        self.pool_size.into_iter().fold(options, DatabaseOptions::pool_size)
    }

    /// Whether the schema is to be brought up to date first.
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
    fn every_setting_is_an_option_a_variable_and_a_key_of_the_file() {
        let command = <Line as clap::CommandFactory>::command();
        let settings: Vec<_> = command.get_arguments().collect();
        for setting in &settings {
            let (key, said) = (setting.get_id().as_str(), setting.get_env().and_then(std::ffi::OsStr::to_str));
            let variable = said.unwrap_or_else(|| panic!("`{key}` has no variable"));
            assert!(setting.get_long().is_some() && (variable == "DATABASE_URL" || variable.starts_with("QUEUE_")), "{key}: {variable}");
            let section = if WorkerSettings::augment_args(clap::Command::new("w")).get_arguments().any(|worker| worker.get_id() == key) {
                "[worker]\n"
            } else {
                ""
            };
            let is_key = ["1", "'1s'", "'text'", "true", "['mail']", "'[::1]:1'", "'wait'"]
                .iter()
                .any(|value| file(&format!("{section}{key} = {value}")).is_ok());
            assert!(is_key, "`{key}` is no key of the file");
        }
        // The list, from which the methods of `Worker` come too.
        macro_rules! names {
            ($($(#[$said:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
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
    fn an_empty_database_url_is_none() {
        let settings = Settings { database_url: Some(String::new()), ..Settings::default() };
        assert_eq!(settings.over(file("database_url = 'postgres:///d'").unwrap()).database_url.as_deref(), Some("postgres:///d"));
    }
    #[test]
    fn addresses_stand_beside_the_database_that_is_named_with_them_and_beside_no_other() {
        let lower = || file("database_url = 'postgres:///a'\ndirect_url = 'postgres:///a-too'\nread_url = 'postgres:///a-looks'").unwrap();
        let same = Settings::default().over(lower());
        assert_eq!((same.direct_url.as_deref(), same.read_url.as_deref()), (Some("postgres:///a-too"), Some("postgres:///a-looks")));
        let other = said("w --database-url postgres:///b").over(lower());
        assert_eq!((other.database_url.as_deref(), other.direct_url, other.read_url), (Some("postgres:///b"), None, None));
    }
}

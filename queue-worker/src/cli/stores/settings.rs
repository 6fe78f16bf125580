//! Settings of the `stores` commands, such as the home schema and the databases. They are read from options, environment variables and the
//! settings file.
//!
//! URLs may contain passwords, so errors must not show URLs. clap would show a value that it fails to parse, so clap does not parse URLs.

use std::{collections::BTreeMap, num::NonZeroU32};

use queue_core::{Store, check_name};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::cli::{problem::Problem, span::Span, values::whole_in};

/// Help heading of the options that all `stores` commands have.
const STORES_HEADING: &str = "Stores";

/// Settings of all `stores` commands.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::cli) struct StoresSettings {
    /// Schema of the placement tables, which list stores and tenants (default: `homes`)
    #[arg(long, global = true, env = "QUEUE_HOMES", value_name = "SCHEMA", help_heading = STORES_HEADING)]
    homes: Option<String>,
    /// Name and URL of a database with stores, such as `eu=postgres://app@db.eu/app`; all programs must use the same names; may be
    /// repeated (in the variable, separated by spaces). A name without a URL names the home database (default: `main`)
    #[arg(long = "database", global = true, env = "QUEUE_DATABASES", hide_env_values = true, value_name = "NAME[=URL]", help_heading = STORES_HEADING)]
    #[serde(deserialize_with = "parse_table")]
    databases: Option<Vec<String>>,
    #[arg(skip)]
    #[serde(flatten)]
    pub(super) worker: StoresWorkerSettings,
}

/// Settings of a worker that serves many stores.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct StoresWorkerSettings {
    /// Maximum number of running handlers over all stores, in addition to the limits per queue (default: 100)
    #[arg(long, env = "QUEUE_SLOTS", value_name = "N", value_parser = whole_in::<NonZeroU32>(1..=100_000))]
    pub(super) slots: Option<NonZeroU32>,
    /// Duration for which a store keeps its worker after its last job (default: 5s)
    #[arg(long, env = "QUEUE_LINGER", value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) linger: Option<Span>,
    /// Maintenance interval of idle stores (default: 1h)
    #[arg(long, env = "QUEUE_UPKEEP", value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) upkeep: Option<Span>,
    /// Interval for reloading the list of stores and advancing tenant moves (default: 5s)
    #[arg(long, env = "QUEUE_TEND", value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) tend: Option<Span>,
}

/// Default name of the home database.
const MAIN: &str = "main";

/// Names and URLs of the databases.
#[derive(PartialEq, Eq)]
pub(super) struct DatabaseNames {
    /// Names given to the home database.
    pub(super) home: Vec<String>,
    /// URLs of the other databases, by name.
    pub(super) others: BTreeMap<String, String>,
}

impl StoresSettings {
    pub(in crate::cli) fn with_fallback(self, lower: Self) -> Self {
        let given = |text: &String| !text.is_empty();
        Self {
            homes: self.homes.filter(given).or(lower.homes),
            databases: self.databases.filter(|entries| entries.iter().any(given)).or(lower.databases),
            worker: StoresWorkerSettings {
                slots: self.worker.slots.or(lower.worker.slots),
                linger: self.worker.linger.or(lower.worker.linger),
                upkeep: self.worker.upkeep.or(lower.worker.upkeep),
                tend: self.worker.tend.or(lower.worker.tend),
            },
        }
    }

    /// Replaces the worker's settings.
    pub(super) fn with_worker(self, worker: StoresWorkerSettings) -> Self {
        Self { worker, ..self }
    }

    /// Returns the schema of the placement tables.
    pub(super) fn homes(&self) -> Result<Store, Problem> {
        Ok(Store::new(self.homes.as_deref().unwrap_or("homes"))?)
    }

    pub(super) fn databases(&self) -> Result<DatabaseNames, Problem> {
        let mut named = DatabaseNames { home: Vec::new(), others: BTreeMap::new() };
        for entry in self.databases.iter().flatten().flat_map(|entry| entry.split_whitespace()) {
            let (name, url) = entry.split_once('=').map_or((entry, None), |(name, url)| (name, Some(url)));
            if check_name("name of a database", name).is_err() {
                return Err(Problem::usage(
                    "a database is given without a valid name; write it like `eu=postgres://user@host/name` (`--database`, \
                     QUEUE_DATABASES)",
                ));
            }
            let is_new = if let Some(url) = url.filter(|url| !url.is_empty()) {
                named.others.insert(name.to_owned(), url.to_owned()).is_none() && !named.home.iter().any(|home| home == name)
            } else {
                named.home.push(name.to_owned());
                !named.others.contains_key(name)
            };
            if !is_new {
                return Err(Problem::usage(format!("two databases are called `{name}`; give each a name of its own")));
            }
        }
        if named.home.is_empty() && !named.others.contains_key(MAIN) {
            named.home.push(MAIN.to_owned());
        }
        Ok(named)
    }
}

/// Parses the names and URLs in the table `[stores.databases]` of the settings file. Errors do not contain values, because a value may be a
/// URL.
fn parse_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let wrong = || D::Error::custom("expected a table of names and URLs, as `eu = 'postgres://..'` below `[stores.databases]`");
    let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else { return Err(wrong()) };
    let named = |(name, url): (String, toml::Value)| Some(format!("{name}={}", url.as_str()?));
    table.into_iter().map(named).collect::<Option<Vec<String>>>().ok_or_else(wrong).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(entries: &[&str]) -> Result<DatabaseNames, String> {
        let databases = Some(entries.iter().map(|&entry| entry.to_owned()).collect());
        StoresSettings { databases, ..StoresSettings::default() }.databases().map_err(|problem| problem.to_string())
    }

    fn file(text: &str) -> Result<StoresSettings, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_home_database_is_called_main_unless_named() {
        let home = |entries: &[&str]| named(entries).unwrap().home;
        assert_eq!(home(&[]), ["main"]);
        assert_eq!(home(&["eu=postgres://a,b/d us=postgres://c/d?x=y"]), ["main"]);
        assert_eq!(home(&["eu", "us=postgres://c/d"]), ["eu"]);
        assert!(home(&["main=postgres://c/d"]).is_empty());
        assert_eq!(named(&["eu=postgres://a,b/d\n us=postgres://c/d?x=y"]).unwrap().others["us"], "postgres://c/d?x=y");
        for wrong in [&["postgres://u:swordfish@h/d"][..], &["=postgres://u:swordfish@h/d"], &["eu=a", "eu=b"], &["eu", "eu=b"]] {
            let message = named(wrong).err().unwrap();
            assert!(!message.contains("swordfish"), "{message}");
        }
    }

    #[test]
    fn errors_in_the_file_show_no_url() {
        let read = file("homes = 'places'\nslots = 7\nlinger = '2s'\n[databases]\neu = 'postgres://h/d'").unwrap();
        assert_eq!((read.homes.as_deref(), read.worker.slots.map(NonZeroU32::get)), (Some("places"), Some(7)));
        assert_eq!(read.databases().unwrap().others["eu"], "postgres://h/d");
        for wrong in [
            "databases = 'postgres://u:swordfish@h/d'",
            "databases = ['eu=postgres://u:swordfish@h/d']",
            "[databases]\neu = ['postgres://u:swordfish@h/d']",
            "slotts = 7",
            "slots = 0",
        ] {
            let message = file(wrong).err().unwrap_or_else(|| panic!("{wrong}: accepted"));
            assert!(!message.contains("swordfish"), "{message}");
        }
    }
}

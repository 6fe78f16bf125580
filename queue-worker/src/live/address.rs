//! Parses a database URL into hosts and server requirements. Does not connect.
//!
//! The driver parses the URL of a single host. This module parses lists of hosts and server requirements in the format of libpq:
//! `postgres://user@one:5432,two:5433/name?target_session_attrs=read-write`. The driver ignores unknown parameters, but this module
//! rejects them.

mod foreign;

use std::{str::FromStr as _, time::Duration};

use sqlx::postgres::PgConnectOptions;

use self::foreign::LibpqParameter;
use crate::error::Error;

/// Hosts of a database, and the requirement that a usable host must meet.
#[derive(Clone)]
pub(super) struct Address {
    /// Hosts in the order of the URL. Contains at least one host.
    pub(super) hosts: Vec<PgConnectOptions>,
    pub(super) wanted: TargetSession,
    /// Connection timeout per host.
    pub(super) patience: Duration,
}

/// Requirement on the server, as in libpq's `target_session_attrs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetSession {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// Role and write mode of a server, as reported by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerState {
    /// Whether the server is a standby.
    pub(super) standby: bool,
    /// Whether the server accepts no writes, because it is a standby or configured as read-only.
    pub(super) read_only: bool,
}

/// Default connection timeout per host. A host that does not respond within this time counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(10);

impl ServerState {
    /// Returns a description of the state for error messages.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self { standby: true, .. } => "is a standby",
            Self { read_only: true, .. } => "accepts no writes",
            Self { .. } => "is a primary",
        }
    }
}

/// Parameters that the driver supports. Parameters of the form `options[..]` are supported as well.
const DRIVERS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Parameters that name a file. `ROOTS` contains the parameters for root certificates. `OWN` contains the parameters for the client's
/// certificate and key.
const ROOTS: [&str; 3] = ["sslrootcert", "ssl-root-cert", "ssl-ca"];
const OWN: [&str; 4] = ["sslcert", "ssl-cert", "sslkey", "ssl-key"];

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Known parameters, as listed in error messages. A parameter with two names is listed under its libpq name.
const KNOWN: &str = "host, port, dbname, user, password, target_session_attrs, connect_timeout, application_name, options, sslmode, sslrootcert, \
    sslcert, sslkey, hostaddr and statement-cache-capacity";

impl TargetSession {
    fn read(word: &str) -> Result<Self, Error> {
        Ok(match word {
            "any" => Self::Any,
            "read-write" => Self::ReadWrite,
            "read-only" => Self::ReadOnly,
            "primary" => Self::Primary,
            "standby" => Self::Standby,
            "prefer-standby" => Self::PreferStandby,
            _ => return wrong("target_session_attrs must be any, read-write, read-only, primary, standby or prefer-standby"),
        })
    }

    /// Returns whether a server in the given state meets the requirement.
    pub(super) fn takes(self, state: ServerState) -> bool {
        match self {
            Self::Any | Self::PreferStandby => true,
            Self::ReadWrite => !state.read_only,
            Self::ReadOnly => state.read_only,
            Self::Primary => !state.standby,
            Self::Standby => state.standby,
        }
    }

    /// Returns whether a server in another state would be preferred to a server in the given state.
    pub(super) fn prefers_other(self, state: ServerState) -> bool {
        self == Self::PreferStandby && !state.standby
    }

    /// Returns whether only one server should qualify at a time. If several servers qualify, the most recently promoted server is used.
    pub(super) fn is_one(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Primary)
    }
}

impl Address {
    /// Parses a database URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid. The error message contains no part of the URL except for parameter names and file paths.
    /// Names and paths are shown only if they cannot be part of a password.
    pub(super) fn read(url: &str) -> Result<Self, Error> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        // The driver accepts any text with a colon as a URL. If the URL has no scheme, or the password has an unescaped `/` or `#`, the
        // driver would parse parts of the password as a host or database name. Errors would then show these parts.
        let (place, query) = rest.map(|rest| rest.split_once('?').unwrap_or((rest, ""))).ok_or_else(no_url)?;
        let (authority, name) = place.split_once('/').unwrap_or((place, ""));
        if place.contains('#') || query.contains('#') || name.contains('@') {
            return Err(no_url());
        }
        let (user, listed) = authority.rsplit_once('@').map_or(("", authority), |(user, listed)| (user, listed));
        let mut parts = UrlParts { hosts: listed.split(',').collect(), ..UrlParts::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            parts.take(pair, !query.contains('@'))?;
        }
        if !query.contains('@') {
            parts.check_files()?;
        }
        let each = (0..parts.count()?).map(|nth| {
            let at = if authority.contains('@') { "@" } else { "" };
            let url = format!("postgres://{user}{at}{}/{name}?{}", parts.host(nth), parts.query(nth));
            let host = PgConnectOptions::from_str(&url)?;
            // The driver would treat the brackets of an IPv6 address as a part of the host name.
            let bare = host.get_host().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map(ToOwned::to_owned);
            Ok(bare.into_iter().fold(host, |host, bare| host.host(&bare)))
        });
        let hosts = each.collect::<Result<Vec<_>, Error>>()?;
        // If there are several hosts, the default requires a host that accepts writes, because workers and producers write.
        let default = if hosts.len() > 1 { TargetSession::ReadWrite } else { TargetSession::Any };
        Ok(Self { hosts, wanted: parts.wanted.unwrap_or(default), patience: parts.patience.unwrap_or(PATIENCE) })
    }
}

/// Parts of a URL, collected from its authority part and its parameters.
#[derive(Default)]
struct UrlParts<'a> {
    /// Hosts from the authority part of the URL.
    hosts: Vec<&'a str>,
    /// Values of the parameters `host`, `hostaddr` and `port`.
    named: Vec<(&'a str, Vec<&'a str>)>,
    /// Driver parameters that apply to all hosts.
    others: Vec<&'a str>,
    /// Driver parameters that replace unsupported parameters of the URL.
    means: Vec<String>,
    wanted: Option<TargetSession>,
    patience: Option<Duration>,
}

impl<'a> UrlParts<'a> {
    fn take(&mut self, pair: &'a str, may_show: bool) -> Result<(), Error> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "target_session_attrs" => self.wanted = Some(TargetSession::read(value)?),
            // In libpq, 0 means no timeout. This module uses the default timeout instead.
            "connect_timeout" => match value.parse::<u64>() {
                Ok(seconds @ 0..=3600) => self.patience = (seconds > 0).then(|| Duration::from_secs(seconds)),
                _ => return wrong("connect_timeout must be a number of seconds from 0 to 3600"),
            },
            "host" | "hostaddr" | "port" => self.named.push((key, list(value))),
            _ => match LibpqParameter::of(key, value) {
                LibpqParameter::Met => {}
                LibpqParameter::Means(pair) => self.means.push(pair),
                LibpqParameter::Refused(why) => return wrong(why),
                LibpqParameter::Unknown => self.take_drivers(pair, may_show)?,
            },
        }
        Ok(())
    }

    fn take_drivers(&mut self, pair: &'a str, may_show: bool) -> Result<(), Error> {
        let key = pair.split_once('=').map_or(pair, |(key, _)| key);
        let is_option = ["options[", "options%5B", "options%5b"].iter().any(|begin| key.starts_with(begin));
        if !is_option && !DRIVERS.contains(&key) {
            let is_word = |key: &&str| key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            let shown = Some(key).filter(|key| may_show && is_word(key));
            let shown = shown.map_or_else(|| "a parameter".to_owned(), |key| format!("the parameter `{key}`"));
            return wrong(format!("it contains {shown}, which is unknown; known parameters: {KNOWN}"));
        }
        self.others.push(pair);
        Ok(())
    }

    /// Checks the value of `sslmode`. Also checks that the certificate and key files that the driver requires exist, because the driver
    /// does not report which file is missing. A value that is not a path may be the key itself, so it is neither checked nor shown.
    fn check_files(&self) -> Result<(), Error> {
        let pairs = || self.others.iter().copied().chain(self.means.iter().map(String::as_str)).filter_map(|pair| pair.split_once('='));
        let mode = pairs().rfind(|(key, _)| ["sslmode", "ssl-mode"].contains(key)).map_or("", |(_, mode)| mode);
        if !mode.is_empty() && !MODES.contains(&mode.to_ascii_lowercase().as_str()) {
            return wrong(format!("sslmode must be one of {}", MODES.join(", ")));
        }
        let is_strict = mode.starts_with("verify");
        for (key, value) in pairs() {
            let is_required = (is_strict && ROOTS.contains(&key)) || ((is_strict || mode == "require") && OWN.contains(&key));
            let is_path = value.starts_with(['/', '.']) && !value.contains(['%', '+']);
            if is_required
                && is_path
                && let Err(error) = std::fs::metadata(value)
            {
                return wrong(format!("{key} names the file `{value}`, which cannot be read: {error}"));
            }
        }
        Ok(())
    }

    /// Returns the number of hosts. Each list of hosts or ports must have either one entry or one entry per host.
    fn count(&self) -> Result<usize, Error> {
        let lists = || std::iter::once(&self.hosts).chain(self.named.iter().map(|(_, list)| list));
        let most = lists().map(Vec::len).max().unwrap_or(1);
        if lists().any(|list| list.len() != most && list.len() != 1) {
            return wrong("its lists of hosts and ports differ in length; give one port, or one for each host");
        }
        if lists().any(|list| list.len() > 1 && list.iter().any(|one| one.is_empty())) {
            return wrong("its list of hosts or ports has an empty entry; separate the names by single commas");
        }
        Ok(most)
    }

    /// Returns the host with the index `nth` from the authority part of the URL. Returns `localhost` if a parameter names the host
    /// instead, because the driver accepts a user only together with a host.
    fn host(&self, nth: usize) -> &'a str {
        let host = self.hosts.get(nth).or(self.hosts.first()).copied().unwrap_or_default();
        let is_named = self.named.iter().any(|(key, _)| *key != "port");
        if host.is_empty() && is_named { "localhost" } else { host }
    }

    fn query(&self, nth: usize) -> String {
        let named = self.named.iter().filter_map(|(key, list)| Some(format!("{key}={}", list.get(nth).or(list.first())?)));
        let others = self.others.iter().map(|pair| (*pair).to_owned());
        others.chain(self.means.iter().cloned()).chain(named).collect::<Vec<_>>().join("&")
    }
}

/// Splits a list at its commas, which may be percent-encoded.
fn list(value: &str) -> Vec<&str> {
    value.split(',').flat_map(|part| part.split("%2C")).flat_map(|part| part.split("%2c")).collect()
}

fn no_url() -> Error {
    sqlx::Error::Configuration("no postgres URL".into()).into()
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Address(why.into()))
}

#[cfg(test)]
mod tests;

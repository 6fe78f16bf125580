//! Options of a dashboard: access control, accepted host names, and hidden data. Performs no I/O.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use sqlx::PgPool;

use crate::{error::Error, escape};

/// Options of a dashboard.
///
/// By default, all data is shown, and no token is required for any operation. Only requests with a loopback host name are accepted.
///
/// ```
/// use queue_worker::dashboard::Options;
///
/// let options = Options::default().host("admin.example.com").redact("send_email", ["body", "to"]);
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use = "it is given to `service` or `listen`"]
pub struct Options {
    pub(super) token: Option<String>,
    pub(super) most_jobs: u64,
    pub(super) hosts: Vec<String>,
    pub(super) read_only: bool,
    pub(super) hide_payloads: bool,
    pub(super) read_pool: Arc<OnceLock<PgPool>>,
    /// Keys to redact in payloads and outputs, by job type.
    pub(super) redacted: BTreeMap<String, Vec<String>>,
}

/// Name of the operator, as recorded in the audit log. Your own middleware inserts the name into the request extensions.
///
/// ```
/// use axum::extract::Request;
/// use queue_worker::dashboard::Actor;
///
/// async fn name_them(mut request: Request, next: axum::middleware::Next) -> axum::response::Response {
///     request.extensions_mut().insert(Actor("ada".to_owned()));
///     next.run(request).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Actor(pub String);

impl Options {
    /// Minimum length of a token in characters. Shorter tokens could be guessed.
    pub const SHORTEST_TOKEN: usize = 16;

    /// Maximum length of a token in bytes. Bounds the cost of verifying a wrong token.
    pub const LONGEST_TOKEN: usize = 4096;

    /// Sets the token that every request must present, either through the login form or as `Authorization: Bearer`. The token must have
    /// at least [`Options::SHORTEST_TOKEN`] characters and at most [`Options::LONGEST_TOKEN`] bytes. Default: no token. Without a token,
    /// the network or your own middleware must restrict access.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the maximum number of jobs in a bulk operation. Operations on more jobs are rejected. Default: 1,000,000. With a maximum
    /// above the default, counting the jobs may exceed the time limit of a request.
    pub fn most_jobs(mut self, most: u64) -> Self {
        self.most_jobs = most;
        self
    }

    /// Checks the length of the token and the format of the host names.
    pub(super) fn check(&self) -> Result<(), Error> {
        let is_short = |token: &String| token.chars().count() < Self::SHORTEST_TOKEN;
        if self.token.as_ref().is_some_and(is_short) {
            return Err(Error::Config { key: "dashboard_token", value: "too short".to_owned(), range: "at least 16 characters" });
        }
        if self.token.as_ref().is_some_and(|token| token.len() > Self::LONGEST_TOKEN) {
            return Err(Error::Config { key: "dashboard_token", value: "too long".to_owned(), range: "at most 4096 bytes" });
        }
        // Rejects host names that cannot occur in a request.
        if let Some(host) = self.hosts.iter().find(|host| host.is_empty() || host.contains(['/', ' ', ','])) {
            return Err(Error::Config {
                key: "dashboard_host",
                value: format!("`{}`", escape::line(host)),
                range: "a name such as `queue.example.com`",
            });
        }
        Ok(())
    }

    /// Adds a host name (without a port) that browsers may use to access the dashboard. Can be called repeatedly. `localhost` and the
    /// loopback addresses are always accepted. Requests with any other name are rejected, as a protection against DNS rebinding.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Sets whether operations that change data are rejected. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets a separate pool for reads, for example a pool that connects to a standby. Writes still use the dashboard's main pool, so a
    /// page may show stale data right after a change. Default: reads use the main pool. Has no effect on a dashboard with a roster,
    /// because each store is read from its own pool.
    pub fn read_from(self, pool: PgPool) -> Self {
        let _ = self.read_pool.set(pool);
        self
    }

    /// Sets whether queries and pages omit payloads and outputs. Required if the database role has no access to these columns. Default:
    /// `false`.
    pub fn hide_payloads(mut self, hide: bool) -> Self {
        self.hide_payloads = hide;
        self
    }

    /// Redacts the values of `keys` in payloads and outputs of `job_type`, at any nesting depth. The key `*` matches every key.
    /// `job_type` may be an alias of the job type. Errors, progress and metadata are not redacted.
    pub fn redact<K: Into<String>>(mut self, job_type: impl Into<String>, keys: impl IntoIterator<Item = K>) -> Self {
        self.redacted.entry(job_type.into()).or_default().extend(keys.into_iter().map(Into::into));
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        let (token, hosts, redacted) = (None, Vec::new(), BTreeMap::new());
        Self { token, most_jobs: 1_000_000, hosts, read_only: false, hide_payloads: false, read_pool: Arc::default(), redacted }
    }
}

/// Formats the options without the token.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, read_only) = (&self.hosts, self.read_only);
        f.debug_struct("Options").field("hosts", hosts).field("read_only", &read_only).finish_non_exhaustive()
    }
}

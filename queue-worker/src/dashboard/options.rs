//! Options of a dashboard: access control, host names, and the data shown. Performs no I/O.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use sqlx::PgPool;

use crate::{error::Error, escape};

/// Options of a dashboard.
///
/// By default, all data is shown and all operations are allowed without a token, for requests with a loopback host name.
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
    /// Keys redacted in payloads and outputs, by job type.
    pub(super) redacted: BTreeMap<String, Vec<String>>,
}

/// Name of the operator for the audit log. Your own middleware inserts the name into the extensions of a request.
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
    /// Minimum length of a token in characters. A shorter token could be guessed.
    pub const SHORTEST_TOKEN: usize = 16;

    /// Maximum length of a token in bytes. The maximum bounds the work of verifying a wrong token.
    pub const LONGEST_TOKEN: usize = 4096;

    /// Sets the token that every request must present, either through the login form or as `Authorization: Bearer`. It must have at least
    /// [`Options::SHORTEST_TOKEN`] characters and at most [`Options::LONGEST_TOKEN`] bytes. By default there is no token, and access must
    /// be restricted by the network or by your own middleware.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the maximum number of jobs of a bulk operation. Larger operations are rejected. Default: 1,000,000, because counting more jobs
    /// takes too long for a request.
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
        // Rejects host names that no request can carry.
        if let Some(host) = self.hosts.iter().find(|host| host.is_empty() || host.contains(['/', ' ', ','])) {
            return Err(Error::Config {
                key: "dashboard_host",
                value: format!("`{}`", escape::line(host)),
                range: "a name such as `queue.example.com`",
            });
        }
        Ok(())
    }

    /// Adds a host name, without a port, under which browsers may reach the dashboard. Can be called repeatedly. `localhost` and the
    /// loopback addresses are always accepted. Requests with any other name are rejected, as a protection against DNS rebinding.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Sets whether operations that change something are rejected. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets a pool for reads, for example of a standby. Writes still use the router's pool. Right after a change, a page may therefore show
    /// the previous state. By default, reads also use the router's pool. The option has no effect with many stores, because each store is
    /// read from its own pool.
    pub fn read_from(self, pool: PgPool) -> Self {
        let _ = self.read_pool.set(pool);
        self
    }

    /// Sets whether payloads and outputs are neither read nor shown, for a database role without access to them. Default: `false`.
    pub fn hide_payloads(mut self, hide: bool) -> Self {
        self.hide_payloads = hide;
        self
    }

    /// Redacts the values of these keys in jobs of `job_type`, at any depth of the payload or the output. The key `*` matches every key.
    /// The alias of a job type applies to the type itself. Errors, progress and metadata are not redacted.
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

/// The implementation is written by hand to omit the token.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, read_only) = (&self.hosts, self.read_only);
        f.debug_struct("Options").field("hosts", hosts).field("read_only", &read_only).finish_non_exhaustive()
    }
}

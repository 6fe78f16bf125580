//! What a dashboard shows and lets be done, and to whom. Pure.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use sqlx::PgPool;

use crate::{error::Error, inert};

/// What a dashboard shows and lets be done. The default shows everything and lets everything be done, without a token, to whoever reaches it under
/// a name of this machine's own.
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
    pub(super) reads: Arc<OnceLock<PgPool>>,
    /// Job types with the keys that are not shown.
    pub(super) redacted: BTreeMap<String, Vec<String>>,
}

/// Who acts, for the record of acts: put into a request's extensions by a layer of yours that knows.
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
    /// A shorter token could be guessed.
    pub const SHORTEST_TOKEN: usize = 16;

    /// A longer token, in bytes, would make each wrong one that is said more work.
    pub const LONGEST_TOKEN: usize = 4096;

    /// Nobody comes in without this: said in a form, or as `Authorization: Bearer`. At least [`Options::SHORTEST_TOKEN`] characters and
    /// at most [`Options::LONGEST_TOKEN`] bytes. Default: no
    /// token, so that the network, or a layer of yours, has to keep strangers away.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// No act is on more jobs than this; who asks for more is told to choose fewer. Default: a million, as counting more takes longer than somebody waits
    /// for a number.
    pub fn most_jobs(mut self, most: u64) -> Self {
        self.most_jobs = most;
        self
    }

    /// That the token, if there is one, is none that could be guessed.
    pub(super) fn check(&self) -> Result<(), Error> {
        let is_short = |token: &String| token.chars().count() < Self::SHORTEST_TOKEN;
        if self.token.as_ref().is_some_and(is_short) {
            return Err(Error::Config { key: "dashboard_token", value: "too short".to_owned(), range: "at least 16 characters" });
        }
        if self.token.as_ref().is_some_and(|token| token.len() > Self::LONGEST_TOKEN) {
            return Err(Error::Config { key: "dashboard_token", value: "too long".to_owned(), range: "at most 4096 bytes" });
        }
        // Such a name is that of no request.
        if let Some(host) = self.hosts.iter().find(|host| host.is_empty() || host.contains(['/', ' ', ','])) {
            return Err(Error::Config {
                key: "dashboard_host",
                value: format!("`{}`", inert::line(host)),
                range: "a name such as `queue.example.com`",
            });
        }
        Ok(())
    }

    /// A name under which browsers may ask for it, without a port; may be said again. `localhost` and the loopback addresses always are such names. A
    /// request for any other is refused, as it comes from a page that has given its own name this machine's address.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Nothing can be changed. Default: it can.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// What is shown is read from this pool, which may lead to a standby, and what is done goes to the router's own. A page that is loaded right after an
    /// act may then show what was before it. Default: all of it is the router's. Of many stores each is read from its own pool.
    pub fn read_from(self, pool: PgPool) -> Self {
        let _ = self.reads.set(pool);
        self
    }

    /// Payloads and outputs are neither shown nor read: for a user of the database who may not see them. Default: they are.
    pub fn hide_payloads(mut self, hide: bool) -> Self {
        self.hide_payloads = hide;
        self
    }

    /// Of jobs of this type the values under these keys are not shown, however deep they stand in the payload or the output; `*` is any key. An alias
    /// stands for its type. Errors, progress and metadata are shown as they are.
    pub fn redact<K: Into<String>>(mut self, job_type: impl Into<String>, keys: impl IntoIterator<Item = K>) -> Self {
        self.redacted.entry(job_type.into()).or_default().extend(keys.into_iter().map(Into::into));
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        let (token, hosts, redacted) = (None, Vec::new(), BTreeMap::new());
        Self { token, most_jobs: 1_000_000, hosts, read_only: false, hide_payloads: false, reads: Arc::default(), redacted }
    }
}

/// Without the token.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, read_only) = (&self.hosts, self.read_only);
        f.debug_struct("Options").field("hosts", hosts).field("read_only", &read_only).finish_non_exhaustive()
    }
}

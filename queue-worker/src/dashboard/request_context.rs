//! Settings shared by all stores of a dashboard, and the context of each request. The context contains the router's nesting path and the
//! requested store.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{display, live_hub::MAX_VIEWERS, operations::BulkOperations, options::Options, token::TokenAuth};

/// Options, credentials and limits shared by all stores of a dashboard.
pub(super) struct DashboardState {
    pub(super) options: Options,
    pub(super) token_auth: TokenAuth,
    /// Bulk operations in progress in all stores of the dashboard.
    pub(super) operations: BulkOperations,
    /// Permits that limit the number of viewers of live pages.
    pub(super) viewers: Arc<Semaphore>,
    /// Stores covered by the home page.
    pub(super) scope: PageScope,
}

/// Stores covered by a page.
#[derive(Clone)]
pub(super) enum PageScope {
    /// Single store of the dashboard, with its schema name.
    One(&'static str),
    /// All stores of the roster.
    All,
    /// One store of the roster, with its name.
    Member(String),
}

/// Context of a request. The guard middleware adds the context to every request.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) dashboard: Arc<DashboardState>,
    /// Path at which the router is nested, used as a prefix for links. Example: `/admin/queue`. Empty if the router is not nested.
    pub(super) root: String,
    pub(super) scope: PageScope,
}

/// Path prefix of each store of a roster.
pub(super) const STORES_PREFIX: &str = "/stores/";

/// Returns the path of a store in a roster. A name that consists only of dots gets a `~` prefix, because browsers resolve the path
/// segments `.` and `..`.
pub(super) fn store_path(name: &str) -> String {
    let mark = if name.bytes().all(|byte| byte == b'.') { "~" } else { "" };
    format!("{STORES_PREFIX}{mark}{}", display::percent_encode(name))
}

impl DashboardState {
    pub(super) fn new(options: Options, scope: PageScope) -> Arc<Self> {
        let (token_auth, viewers) = (TokenAuth::new(options.token.as_deref()), Arc::new(Semaphore::new(MAX_VIEWERS)));
        Arc::new(Self { options, token_auth, operations: BulkOperations::default(), viewers, scope })
    }
}

impl RequestContext {
    /// Returns the link prefix for the pages of the current store. If the page covers all stores, returns the link prefix of the
    /// dashboard.
    pub(super) fn base(&self) -> String {
        match &self.scope {
            PageScope::Member(name) => format!("{}{}", self.root, store_path(name)),
            PageScope::One(_) | PageScope::All => self.root.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_paths_are_single_segments_that_browsers_do_not_resolve() {
        let paths = ["acme", "a.b:c-d_1", ".", "..", "...", ".a", "a..b"].map(store_path);
        assert_eq!(paths, ["/stores/acme", "/stores/a.b:c-d_1", "/stores/~.", "/stores/~..", "/stores/~...", "/stores/.a", "/stores/a..b"]);
    }
}

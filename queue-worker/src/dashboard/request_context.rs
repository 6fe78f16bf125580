//! Settings shared by all stores of a dashboard, and the context of a request: the path at which the router is nested, and the store of the
//! request.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{display, live_hub::MAX_VIEWERS, operations::BulkOperations, options::Options, token::TokenAuth};

/// Settings and limits shared by all stores of a dashboard.
pub(super) struct DashboardState {
    pub(super) options: Options,
    pub(super) token_auth: TokenAuth,
    /// Bulk operations in progress.
    pub(super) operations: BulkOperations,
    /// Permits for viewers of live pages.
    pub(super) viewers: Arc<Semaphore>,
    /// Stores that the first page covers.
    pub(super) scope: PageScope,
}

/// Stores that a page covers.
#[derive(Clone)]
pub(super) enum PageScope {
    /// The dashboard's only store, with its schema.
    One(&'static str),
    /// All stores of the roster.
    All,
    /// One of many stores, with its name.
    Member(String),
}

/// Context of a request. The guard adds it to every request that it admits.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) dashboard: Arc<DashboardState>,
    /// Path at which the router is nested, as a prefix for links. Empty, or for example `/admin/queue`.
    pub(super) root: String,
    pub(super) scope: PageScope,
}

/// Path prefix of the pages of a single store.
pub(super) const STORES_PREFIX: &str = "/stores/";

/// Returns the path of a store. Names that consist of dots only are marked, because browsers would resolve them as relative paths.
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
    /// Returns the prefix of links within the current store, or within the dashboard if the page covers all stores.
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

//! Page layout shared by all pages.

use askama::Template;
use axum::{
    extract::FromRequestParts,
    http::request::Parts,
    response::{Html, IntoResponse, Response},
};

use super::LINKS;
use crate::dashboard::{
    assets::VERSION,
    problem::{HandlerResult, Problem},
    request_context::{PageScope, RequestContext},
};

/// Values for the template of the page layout.
#[allow(clippy::struct_excessive_bools, reason = "each is a condition of the template")]
#[derive(Clone)]
pub(super) struct Frame {
    /// Prefix of links to pages of the current store.
    pub(super) base: String,
    /// Prefix of links to pages and assets outside of a store.
    pub(super) root: String,
    /// Path of the navigation link to the current page, or empty if no link leads to this page.
    pub(super) at: &'static str,
    pub(super) version: &'static str,
    /// Displayed store name. Empty on a page that covers all stores, and for a single store in the default schema.
    pub(super) label: String,
    /// Whether the dashboard serves a roster of stores.
    pub(super) has_stores: bool,
    /// Whether the layout links to the pages of a store.
    pub(super) has_store_pages: bool,
    /// Whether the page may offer operations that change data.
    pub(super) allows_operations: bool,
    /// Whether requests require a token. If so, the page offers a logout.
    pub(super) requires_token: bool,
}

impl Frame {
    /// Returns the link to the store's overview.
    pub(super) fn home(&self) -> &str {
        or_slash(&self.base)
    }

    /// Returns the link to the page that lists all stores.
    pub(super) fn top(&self) -> &str {
        or_slash(&self.root)
    }

    fn new(context: &RequestContext, at: &'static str) -> Self {
        let label = match &context.scope {
            PageScope::One(schema) if *schema != "queue" => (*schema).to_owned(),
            PageScope::Member(name) => name.clone(),
            PageScope::One(_) | PageScope::All => String::new(),
        };
        let (has_stores, has_store_pages) = (!matches!(context.scope, PageScope::One(_)), !matches!(context.scope, PageScope::All));
        let (allows_operations, requires_token) = (!context.dashboard.options.read_only, context.dashboard.token_auth.is_required());
        Self {
            base: context.base(),
            root: context.root.clone(),
            at,
            version: &VERSION,
            label,
            has_stores,
            has_store_pages,
            allows_operations,
            requires_token,
        }
    }
}

fn or_slash(base: &str) -> &str {
    if base.is_empty() { "/" } else { base }
}

impl<S: Sync> FromRequestParts<S> for Frame {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> HandlerResult<Self> {
        let context = parts.extensions.get::<RequestContext>().ok_or_else(|| Problem::not_found("missing request context"))?;
        let is_at = |at: &str| parts.uri.path() == at || parts.uri.path().strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
        let at = LINKS.iter().map(|(at, _)| *at).find(|at| is_at(at)).unwrap_or_default();
        Ok(Self::new(context, at))
    }
}

/// Renders a page from its template.
pub(super) fn render(template: &impl Template) -> HandlerResult<Html<String>> {
    template.render().map(Html).map_err(|error| Problem::unavailable(format!("cannot render this page: {error}")))
}

#[derive(Template)]
#[template(path = "failed.html")]
struct FailedPage<'a> {
    frame: Frame,
    status: u16,
    text: &'a str,
}

/// Renders an error as a page. Omits the schema name, because the client may be unauthenticated.
pub(super) fn failed(context: &RequestContext, problem: &Problem) -> Response {
    let whole = Frame::new(context, "");
    let label = if whole.has_stores { whole.label } else { String::new() };
    let frame = Frame { label, allows_operations: false, requires_token: false, ..whole };
    let written = FailedPage { frame, status: problem.status.as_u16(), text: &problem.text }.render();
    match written {
        Ok(html) => (problem.status, Html(html)).into_response(),
        Err(_) => problem.status.into_response(),
    }
}

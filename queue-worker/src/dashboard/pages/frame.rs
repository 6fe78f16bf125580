//! What is around every page.

use askama::Template;
use axum::{
    extract::FromRequestParts,
    http::request::Parts,
    response::{Html, IntoResponse, Response},
};

use crate::dashboard::{
    app::Shared,
    assets::VERSION,
    door::Base,
    problem::{Answer, Problem},
};

/// What a page's frame says.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) base: String,
    /// Which of the pages it is.
    pub(super) at: &'static str,
    pub(super) version: &'static str,
    pub(super) schema: &'static str,
    /// Whether anything can be done here.
    pub(super) acts: bool,
    /// Whether one can log out.
    pub(super) locked: bool,
}

impl Frame {
    /// Where links to the overview lead.
    pub(super) fn home(&self) -> &str {
        if self.base.is_empty() { "/" } else { &self.base }
    }
}

/// The pages, by address.
pub(super) const LINKS: [(&str, &str); 8] = [
    ("/jobs", "Jobs"),
    ("/dead", "Dead letters"),
    ("/history", "History"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/schedules", "Schedules"),
    ("/limits", "Limits"),
    ("/audit", "Audit"),
];

impl FromRequestParts<Shared> for Frame {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Answer<Self> {
        let base = parts.extensions.get::<Base>().map(|base| base.0.clone()).unwrap_or_default();
        let (acts, locked) = (!app.options.read_only, app.keyhole.is_locked());
        let is_at = |at: &str| parts.uri.path() == at || parts.uri.path().strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
        let at = LINKS.iter().map(|(at, _)| *at).find(|at| is_at(at)).unwrap_or_default();
        Ok(Self { base, at, version: &VERSION, schema: app.store.schema(), acts, locked })
    }
}

/// The page.
pub(super) fn page(template: &impl Template) -> Answer<Html<String>> {
    template.render().map(Html).map_err(|error| Problem::busy(format!("this page cannot be written: {error}")))
}

#[derive(Template)]
#[template(path = "failed.html")]
struct Failed<'a> {
    frame: Frame,
    status: u16,
    text: &'a str,
}

/// What is wrong, as a page.
pub(super) fn failed(base: &str, problem: &Problem) -> Response {
    let frame = Frame { base: base.to_owned(), at: "", version: &VERSION, schema: "", acts: false, locked: false };
    let written = Failed { frame, status: problem.status.as_u16(), text: &problem.text }.render();
    match written {
        Ok(html) => (problem.status, Html(html)).into_response(),
        Err(_) => problem.status.into_response(),
    }
}

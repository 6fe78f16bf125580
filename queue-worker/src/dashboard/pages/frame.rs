//! What is around every page.

use askama::Template;
use axum::{
    extract::FromRequestParts,
    http::request::Parts,
    response::{Html, IntoResponse, Response},
};

use super::LINKS;
use crate::dashboard::{
    assets::VERSION,
    problem::{Answer, Problem},
    way::{Shows, Way},
};

/// What a page's frame says.
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that the template asks")]
#[derive(Clone)]
pub(super) struct Frame {
    /// As links begin that lead to pages of what is shown.
    pub(super) base: String,
    /// As those begin that are the same for all stores.
    pub(super) root: String,
    /// Which of the pages it is.
    pub(super) at: &'static str,
    pub(super) version: &'static str,
    /// What is shown, if that need be told.
    pub(super) label: String,
    /// Whether there are many stores.
    pub(super) many: bool,
    /// Whether there are pages of a store.
    pub(super) pages: bool,
    /// Whether anything can be done here.
    pub(super) acts: bool,
    /// Whether one can log out.
    pub(super) locked: bool,
}

impl Frame {
    /// Where links to the overview lead.
    pub(super) fn home(&self) -> &str {
        or_slash(&self.base)
    }

    /// Where those to all stores lead.
    pub(super) fn top(&self) -> &str {
        or_slash(&self.root)
    }

    fn new(way: &Way, at: &'static str) -> Self {
        let label = match &way.shows {
            Shows::One(schema) if *schema != "queue" => (*schema).to_owned(),
            Shows::Member(name) => name.clone(),
            Shows::One(_) | Shows::All => String::new(),
        };
        let (many, pages) = (!matches!(way.shows, Shows::One(_)), !matches!(way.shows, Shows::All));
        let (acts, locked) = (!way.door.options.read_only, way.door.keyhole.is_locked());
        Self { base: way.base(), root: way.root.clone(), at, version: &VERSION, label, many, pages, acts, locked }
    }
}

fn or_slash(base: &str) -> &str {
    if base.is_empty() { "/" } else { base }
}

impl<S: Sync> FromRequestParts<S> for Frame {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let way = parts.extensions.get::<Way>().ok_or_else(|| Problem::missing("there is no way to here"))?;
        let is_at = |at: &str| parts.uri.path() == at || parts.uri.path().strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
        let at = LINKS.iter().map(|(at, _)| *at).find(|at| is_at(at)).unwrap_or_default();
        Ok(Self::new(way, at))
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
/// Whoever was not let in is not told the schema.
pub(super) fn failed(way: &Way, problem: &Problem) -> Response {
    let whole = Frame::new(way, "");
    let label = if whole.many { whole.label } else { String::new() };
    let frame = Frame { label, acts: false, locked: false, ..whole };
    let written = Failed { frame, status: problem.status.as_u16(), text: &problem.text }.render();
    match written {
        Ok(html) => (problem.status, Html(html)).into_response(),
        Err(_) => problem.status.into_response(),
    }
}

//! The part of an address that a route names.

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};

use super::problem::{Answer, Problem};

/// The last part that is named: where the dashboard is nested there may be parts of others', which stand before it.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync> FromRequestParts<S> for Path<String> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let found = RawPathParams::from_request_parts(parts, state).await.ok();
        let last = found.as_ref().and_then(|found| found.iter().last()).map(|(_, part)| part.to_owned());
        last.map(Self).ok_or_else(|| Problem::missing("there is nothing here"))
    }
}

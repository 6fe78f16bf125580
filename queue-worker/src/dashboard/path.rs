//! Extractor for the path parameter of a dashboard route.

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};

use super::problem::{HandlerResult, Problem};

/// Extractor for the last path parameter. Earlier parameters may belong to the outer router of a nested dashboard.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync> FromRequestParts<S> for Path<String> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        let found = RawPathParams::from_request_parts(parts, state).await.ok();
        let last = found.as_ref().and_then(|found| found.iter().last()).map(|(_, part)| part.to_owned());
        last.map(Self).ok_or_else(|| Problem::not_found("not found"))
    }
}

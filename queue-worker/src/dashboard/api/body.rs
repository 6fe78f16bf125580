//! What is asked in a query or said in a body, refused as any other mistake.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::dashboard::{app::Shared, problem::Problem};

/// The query of the address.
pub(in crate::dashboard) struct Asked<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        Ok(Self(Query::<T>::try_from_uri(&parts.uri)?.0))
    }
}

/// The body.
pub(in crate::dashboard) struct Said<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Said<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        Ok(Self(Json::<T>::from_request(request, app).await?.0))
    }
}

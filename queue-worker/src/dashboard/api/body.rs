//! Extractors for query parameters, JSON bodies and the operator's name. Invalid input is rejected with an error response in the same
//! format as the errors of the routes.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::request::Parts,
};
use queue_core::operate::Note;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use utoipa::ToSchema;

use crate::dashboard::{app::AppState, options::Actor, problem::Problem};

/// Extractor for the query parameters of the URL.
pub(in crate::dashboard) struct QueryParams<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        Ok(Self(Query::<T>::try_from_uri(&parts.uri)?.0))
    }
}

/// Name of the operator, as recorded in the audit log. The name comes from the [`Actor`] set by a middleware. Without an [`Actor`], the
/// name is `dashboard`, or `dashboard, with the token` if the dashboard requires a token.
pub(in crate::dashboard) struct Operator(String);

impl FromRequestParts<AppState> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        let nameless = if app.dashboard.token_auth.is_required() { "dashboard, with the token" } else { "dashboard" };
        Ok(Self(parts.extensions.get::<Actor>().map_or_else(|| nameless.to_owned(), |actor| actor.0.clone())))
    }
}

impl Operator {
    /// Creates the audit log entry for an operation by this operator.
    pub(super) fn audit_entry(&self, act: &str, what: impl Into<String>) -> Note {
        Note { actor: self.0.clone(), act: act.to_owned(), what: what.into() }
    }
}

/// Response to an operation.
#[derive(Serialize, ToSchema)]
pub(super) struct OperationResponse {
    /// One sentence that describes the effect of the operation.
    pub(super) text: String,
}

impl OperationResponse {
    pub(super) fn new(text: impl Into<String>) -> Json<Self> {
        Json(Self { text: text.into() })
    }
}

/// Extractor for the JSON body of a request.
pub(in crate::dashboard) struct JsonBody<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        let Json(body) = Json::<Value>::from_request(request, app).await?;
        // Serde would also accept an array of the field values in declaration order.
        if !body.is_object() {
            return Err(Problem::bad_request("the body must be a JSON object"));
        }
        serde_json::from_value(body).map(Self).map_err(|error| Problem::bad_request(format!("invalid body: {error}")))
    }
}

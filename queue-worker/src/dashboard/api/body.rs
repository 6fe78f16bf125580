//! What is asked in a query or said in a body, refused as any other mistake.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::request::Parts,
};
use queue_core::operate::Note;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use utoipa::ToSchema;

use crate::dashboard::{app::Shared, options::Actor, problem::Problem};

/// The query of the address.
pub(in crate::dashboard) struct Asked<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        Ok(Self(Query::<T>::try_from_uri(&parts.uri)?.0))
    }
}

/// Who asks, as far as that is known: by a layer in front, or as one of those who have the token.
pub(in crate::dashboard) struct Who(String);

impl FromRequestParts<Shared> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        let nameless = if app.door.keyhole.is_locked() { "dashboard, with the token" } else { "dashboard" };
        Ok(Self(parts.extensions.get::<Actor>().map_or_else(|| nameless.to_owned(), |actor| actor.0.clone())))
    }
}

impl Who {
    /// What is noted of an act.
    pub(super) fn note(&self, act: &str, what: impl Into<String>) -> Note {
        Note { actor: self.0.clone(), act: act.to_owned(), what: what.into() }
    }
}

/// What is answered to an act.
#[derive(Serialize, ToSchema)]
pub(super) struct Told {
    /// What was done, in a sentence.
    pub(super) text: String,
}

impl Told {
    pub(super) fn new(text: impl Into<String>) -> Json<Self> {
        Json(Self { text: text.into() })
    }
}

/// The body.
pub(in crate::dashboard) struct Said<T>(pub(in crate::dashboard) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Said<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let Json(body) = Json::<Value>::from_request(request, app).await?;
        // A list would be taken for the fields in their order.
        if !body.is_object() {
            return Err(Problem::wrong("a body is an object"));
        }
        serde_json::from_value(body).map(Self).map_err(|error| Problem::wrong(format!("this is not what is asked for here: {error}")))
    }
}

//! What is answered when something cannot be done: a status, and a sentence. Never a payload, never a DETAIL of the database.

use std::time::Duration;

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use queue_core::Error;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{inert, program::commands};

/// A status and what is wrong.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// In so many seconds it is worth another try, if that is known.
    pub(super) again: Option<u64>,
}

/// What is wrong.
#[derive(Serialize, ToSchema)]
pub(super) struct Wrong {
    /// In a sentence.
    error: String,
}

/// The result of a handler.
pub(super) type Answer<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: inert::line(&commands(&text.into())), again: None }
    }

    /// For so long there is no use in trying again.
    pub(super) fn too_often(left: Duration, text: impl Into<String>) -> Self {
        Self { again: Some(left.as_secs().saturating_add(1)), ..Self::new(StatusCode::TOO_MANY_REQUESTS, text) }
    }

    pub(super) fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn forbidden(text: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn conflict(text: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub(super) fn busy(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

impl Problem {
    /// Says in the head of an answer when it is worth another try.
    pub(super) fn say_when(&self, response: &mut Response) {
        if let Some(seconds) = self.again {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
    }
}

/// As JSON; for whoever wants a page, the guard makes one of it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Wrong { error: self.text.clone() })).into_response();
        self.say_when(&mut response);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code =
            if let Error::Database(sqlx::Error::Database(said)) = &error { said.code().map(std::borrow::Cow::into_owned) } else { None };
        let status = match (&error, code.as_deref()) {
            (Error::NotFound { .. } | Error::NoSchedule { .. }, _) => StatusCode::NOT_FOUND,
            (Error::WrongState { .. } | Error::Locked { .. } | Error::KeyTaken { .. }, _) => StatusCode::CONFLICT,
            (Error::InvalidName { .. } | Error::OutOfRange { .. } | Error::Schedule { .. } | Error::Signal { .. }, _) => {
                StatusCode::BAD_REQUEST
            }
            (_, Some("57014" | "55P03")) => return Self::busy("the database took too long for this; nothing was changed"),
            (_, Some("22021" | "22P05")) => return Self::wrong("this holds what no text in the database can hold"),
            (_, Some("22023")) => StatusCode::BAD_REQUEST,
            (_, Some("42501")) => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::wrong(rejection.body_text())
    }
}

/// What was said is not repeated: it may be anything.
impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        match rejection {
            JsonRejection::JsonDataError(error) => Self::wrong(error.body_text()),
            JsonRejection::MissingJsonContentType(_) => Self::forbidden("an act is said in JSON"),
            other => Self::new(other.status(), "the body is no JSON document of what is asked for here"),
        }
    }
}

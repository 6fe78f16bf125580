//! Error responses with an HTTP status and a message. The message never contains a payload or the DETAIL of a database error.

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

use crate::{escape, program::commands};

/// Error response with an HTTP status and a message.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// Seconds until a retry may succeed, if known.
    pub(super) retry_after: Option<u64>,
}

/// JSON body of an error response.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorResponse {
    /// One sentence that describes what failed.
    error: String,
}

/// Result of a request handler, with a [`Problem`] as its error.
pub(super) type HandlerResult<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: escape::line(&commands(&text.into())), retry_after: None }
    }

    /// Creates a 429 response for a client that remains blocked for the duration `left`.
    pub(super) fn too_many_requests(left: Duration, text: impl Into<String>) -> Self {
        Self { retry_after: Some(left.as_secs().saturating_add(1)), ..Self::new(StatusCode::TOO_MANY_REQUESTS, text) }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn forbidden(text: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn conflict(text: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub(super) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

impl Problem {
    /// Sets the `Retry-After` header if [`retry_after`](Self::retry_after) is set.
    pub(super) fn set_retry_after(&self, response: &mut Response) {
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
    }
}

/// Renders the error as JSON. The guard middleware replaces this response with an HTML page if the request was for a page.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorResponse { error: self.text.clone() })).into_response();
        self.set_retry_after(&mut response);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = if let Error::Database(sqlx::Error::Database(source)) = &error {
            source.code().map(std::borrow::Cow::into_owned)
        } else {
            None
        };
        let status = match (&error, code.as_deref()) {
            (Error::NotFound { .. } | Error::NoSchedule { .. }, _) => StatusCode::NOT_FOUND,
            (Error::WrongState { .. } | Error::Locked { .. } | Error::KeyTaken { .. }, _) => StatusCode::CONFLICT,
            (Error::InvalidName { .. } | Error::OutOfRange { .. } | Error::Schedule { .. } | Error::Signal { .. }, _) => {
                StatusCode::BAD_REQUEST
            }
            (_, Some("57014" | "55P03")) => return Self::unavailable("the database timed out; nothing was changed"),
            (_, Some("22021" | "22P05")) => return Self::bad_request("the text contains a character that the database cannot store"),
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
        Self::bad_request(rejection.body_text())
    }
}

/// Creates an error response. If the body is not valid JSON, the message contains no part of the body, because it may be confidential.
impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        match rejection {
            JsonRejection::JsonDataError(error) => Self::bad_request(error.body_text()),
            JsonRejection::MissingJsonContentType(_) => Self::forbidden("expected `Content-Type: application/json`"),
            other => Self::new(other.status(), "the body is not a valid JSON document"),
        }
    }
}

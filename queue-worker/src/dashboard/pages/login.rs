//! Login form. The browser sends the token once, in a request body and never in a URL. Later requests authenticate with a cookie.

use askama::Template;
use axum::{
    Extension, Form,
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::frame::{Frame, render};
use crate::dashboard::{
    problem::{HandlerResult, Problem},
    request_context::RequestContext,
    throttle::ClientAddress,
    token::COOKIE,
};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    is_wrong: bool,
}

/// Data of the login form. `Debug` is not implemented, because it would reveal the token.
#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
}

pub(super) async fn page(frame: Frame) -> HandlerResult<Html<String>> {
    render(&LoginPage { frame, is_wrong: false })
}

pub(super) async fn log_in(
    Extension(RequestContext { dashboard, .. }): Extension<RequestContext>,
    frame: Frame,
    headers: HeaderMap,
    extensions: Extensions,
    form: Result<Form<LoginForm>, axum::extract::rejection::FormRejection>,
) -> HandlerResult<Response> {
    let Ok(Form(LoginForm { token })) = form else { return Err(Problem::bad_request("invalid form")) };
    if !dashboard.token_auth.verify(&token, ClientAddress::of(&extensions))? {
        return Ok((StatusCode::UNAUTHORIZED, render(&LoginPage { frame, is_wrong: true })?).into_response());
    }
    let cookie = cookie(&dashboard.token_auth.cookie(), &frame, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(frame.top())).into_response())
}

pub(super) async fn log_out(frame: Frame, headers: HeaderMap) -> HandlerResult<Response> {
    let mut gone = cookie("", &frame, &headers)?.as_bytes().to_vec();
    gone.extend_from_slice(b"; Max-Age=0");
    let gone = HeaderValue::from_bytes(&gone).map_err(|_| Problem::bad_request("this path is not valid in a cookie"))?;
    Ok(([(header::SET_COOKIE, gone)], Redirect::to(&format!("{}/login", frame.root))).into_response())
}

/// Builds a login cookie with the given value. The cookie is `HttpOnly` and `SameSite=Strict`, and also `Secure` if the form was sent over
/// TLS. The cookie is limited to the dashboard's path, unless the path contains a `;`.
fn cookie(value: &str, frame: &Frame, headers: &HeaderMap) -> HandlerResult<HeaderValue> {
    let is_tls = headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    let path = if frame.root.contains(';') { "/" } else { frame.top() };
    let cookie = format!("{COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).map_err(|_| Problem::bad_request("this path is not valid in a cookie"))
}

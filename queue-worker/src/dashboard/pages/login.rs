//! The form for the token. It is said in a body, never in an address, and never again: a cookie stands for it.

use askama::Template;
use axum::{
    Extension, Form,
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::frame::{Frame, page as write};
use crate::dashboard::{
    problem::{Answer, Problem},
    throttle::Place,
    token::COOKIE,
    way::Way,
};

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    frame: Frame,
    is_wrong: bool,
}

/// Without `Debug`: it is the token.
#[derive(Deserialize)]
pub(super) struct Entered {
    token: String,
}

pub(super) async fn page(frame: Frame) -> Answer<Html<String>> {
    write(&Login { frame, is_wrong: false })
}

pub(super) async fn log_in(
    Extension(Way { door, .. }): Extension<Way>,
    frame: Frame,
    headers: HeaderMap,
    extensions: Extensions,
    form: Result<Form<Entered>, axum::extract::rejection::FormRejection>,
) -> Answer<Response> {
    let Ok(Form(Entered { token })) = form else { return Err(Problem::wrong("this is not the form")) };
    if !door.keyhole.is(&token, Place::of(&extensions))? {
        return Ok((StatusCode::UNAUTHORIZED, write(&Login { frame, is_wrong: true })?).into_response());
    }
    let cookie = cookie(&door.keyhole.cookie(), &frame, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(frame.top())).into_response())
}

pub(super) async fn log_out(frame: Frame, headers: HeaderMap) -> Answer<Response> {
    let mut gone = cookie("", &frame, &headers)?.as_bytes().to_vec();
    gone.extend_from_slice(b"; Max-Age=0");
    let gone = HeaderValue::from_bytes(&gone).map_err(|_| Problem::wrong("this place has no name for a cookie"))?;
    Ok(([(header::SET_COOKIE, gone)], Redirect::to(&format!("{}/login", frame.root))).into_response())
}

/// For this place only, for no script, for no other site; over TLS alone, if the form came over it.
fn cookie(value: &str, frame: &Frame, headers: &HeaderMap) -> Answer<HeaderValue> {
    let is_tls = headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    let path = if frame.root.contains(';') { "/" } else { frame.top() };
    let cookie = format!("{COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).map_err(|_| Problem::wrong("this place has no name for a cookie"))
}

//! Through this goes every request: for which name it asks, from where it comes, who it is, and what the answer forbids the browser.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use axum::{
    extract::{OriginalUri, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};

use super::{
    pages::failed_page,
    problem::{Answer, Problem},
    throttle::Place,
    way::{BELOW, Door, Way},
};

/// No request takes longer. Streams have begun by then.
const LONGEST: Duration = Duration::from_mins(1);

/// The names that always lead here and nowhere else.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// What browsers are forbidden: scripts, styles and pictures from elsewhere or written into a page, frames, forms that lead away, guesses at types.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // To its own pages alone: by `no-referrer` a browser would not say from where the form with the token comes.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The layer around everything.
pub(super) async fn guard(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let is_safe = is_safe(&base_of(&request));
    let root = if is_safe { base_of(&request) } else { String::new() };
    let (is_api, is_fragment) = (is_api(request.uri().path()), request.headers().contains_key("hx-request"));
    let way = Way { root, shows: door.shows.clone(), door };
    request.extensions_mut().insert(way.clone());
    let checked = if is_safe { check(&way.door, &request) } else { Err(Problem::missing("there is nothing here")) };
    let mut response = match checked {
        Ok(()) => run(request, next).await,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED && !is_api && request.method() == Method::GET => {
            Redirect::to(&format!("{}/login", way.root)).into_response()
        }
        Err(problem) => problem.into_response(),
    };
    let problem = response.extensions_mut().remove::<Problem>().filter(|_| !is_api && !is_fragment);
    if let Some(problem) = problem {
        let way = response.extensions_mut().remove::<Way>().unwrap_or(way);
        response = failed_page(&way, &problem);
        problem.say_when(&mut response);
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Whether a program is answered. Each of many stores has an API as well, below its own place.
fn is_api(path: &str) -> bool {
    let inside = path.strip_prefix(BELOW).and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(path);
    inside == "/api" || inside.starts_with("/api/")
}

/// To its end, even if nobody waits for the answer any more: a transaction is not left half-way.
async fn run(request: Request, next: Next) -> Response {
    let answered = tokio::spawn(async move { tokio::time::timeout(LONGEST, next.run(request)).await });
    match answered.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Problem::busy("this took too long").into_response(),
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "this failed; the log says why").into_response(),
    }
}

/// What the request was for, without what is routed here.
fn base_of(request: &Request) -> String {
    let whole = request.extensions().get::<OriginalUri>().map_or_else(|| request.uri().path(), |uri| uri.0.path());
    let inside = request.uri().path();
    // Nested, `/` stands for the place itself.
    let base = whole.strip_suffix(inside).or_else(|| (inside == "/").then_some(whole)).unwrap_or_default();
    base.trim_end_matches('/').to_owned()
}

/// A browser takes what begins with two slashes, or with one and a backslash, for another host, and forgets tabs and ends of lines before it looks.
fn is_safe(base: &str) -> bool {
    (base.is_empty() || base.starts_with('/'))
        && !base.contains("//")
        && !base.contains('\\')
        && !base.contains(|c: char| c.is_ascii_control())
}

fn check(door: &Door, request: &Request) -> Answer<()> {
    let headers = request.headers();
    let host = check_host(door, headers, request.uri())?;
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::POST if path == "/login" || path == "/logout" => check_origin(headers, &host, true)?,
        Method::POST => {
            check_origin(headers, &host, false)?;
            if !is_json(headers) {
                return Err(Problem::forbidden("an act is said in JSON, with `Content-Type: application/json`"));
            }
        }
        _ => return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "what is looked at is a GET, what is done a POST")),
    }
    let is_open = path == "/login" || path.starts_with("/assets/");
    if is_open || door.keyhole.opens(headers, Place::of(request.extensions()))? {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNAUTHORIZED, "a token is wanted: log in, or say `Authorization: Bearer`"))
}

/// The host that is asked for, if it is one of ours: what has another name has been led here by a page of somebody else's. HTTP/2 says it as the
/// authority, and need not have a header for it.
fn check_host(door: &Door, headers: &HeaderMap, uri: &Uri) -> Answer<String> {
    let mut said = headers.get_all(header::HOST).iter();
    let host = match (said.next().map(HeaderValue::to_str), said.next(), uri.authority()) {
        (Some(Ok(host)), None, None) => host.to_ascii_lowercase(),
        (Some(Ok(host)), None, Some(authority)) if authority.as_str().eq_ignore_ascii_case(host) => host.to_ascii_lowercase(),
        (None, None, Some(authority)) => authority.as_str().to_ascii_lowercase(),
        _ => String::new(),
    };
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(&*host, |(name, _)| name);
    if OWN_NAMES.contains(&name) || door.options.hosts.iter().any(|own| own == name) {
        return Ok(host);
    }
    let unknown =
        format!("`{name}` is no name of this dashboard; add it with `--dashboard-host` (QUEUE_DASHBOARD_HOST), or `Options::host`");
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, unknown))
}

/// From a page of another origin nothing is taken. A browser says where a POST comes from; what is no browser need not, except in a form.
fn check_origin(headers: &HeaderMap, host: &str, is_form: bool) -> Answer<()> {
    let (site, origin) = (headers.get("sec-fetch-site"), headers.get(header::ORIGIN));
    match (site.map(HeaderValue::as_bytes), origin.map(HeaderValue::to_str)) {
        // The browser has compared them by the address that it shows: a proxy may have changed the host.
        (Some(b"same-origin"), _) => Ok(()),
        (Some(site), _) => Err(Problem::forbidden(format!(
            "the browser says that this comes from another site (`Sec-Fetch-Site: {}`)",
            site.escape_ascii()
        ))),
        (None, None) if is_form => Err(Problem::forbidden(
            "a form says where it comes from, and this has neither `Sec-Fetch-Site` nor `Origin`; log in with a browser, or say `Authorization: Bearer`",
        )),
        (None, None) => Ok(()),
        (None, Some(Ok(origin))) if is_of(origin, host) => Ok(()),
        (None, Some(origin)) => Err(Problem::forbidden(format!(
            "this comes from the page `{}`, and was sent to the host `{host}`, which is another site; behind a proxy let it pass the host on with its \
             port (nginx: `proxy_set_header Host $http_host;`)",
            origin.unwrap_or("?")
        ))),
    }
}

fn is_of(origin: &str, host: &str) -> bool {
    [("https://", ":443"), ("http://", ":80")].iter().any(|(scheme, port)| {
        let bare = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
        origin.strip_prefix(scheme).is_some_and(|of| bare(of) == bare(host))
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

//! Middleware in front of all routes. Checks the host name, the origin and the token of a request, and adds security headers to the
//! response.

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
    problem::{HandlerResult, Problem},
    request_context::{DashboardState, RequestContext, STORES_PREFIX},
    throttle::ClientAddress,
};

/// Maximum time until a response begins. The duration of a response stream is not limited.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Host names that are always accepted.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Security headers. The headers forbid foreign content, inline scripts and styles, framing, foreign form targets and MIME type sniffing.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer`, the browser would send the login form with `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Checks a request, runs its handler, and adds the security headers to the response.
pub(super) async fn guard_request(State(dashboard): State<Arc<DashboardState>>, mut request: Request, next: Next) -> Response {
    let is_safe = is_safe(&base_path(&request));
    let root = if is_safe { base_path(&request) } else { String::new() };
    let (is_api, is_fragment) = (is_api(request.uri().path()), request.headers().contains_key("hx-request"));
    let context = RequestContext { root, scope: dashboard.scope.clone(), dashboard };
    request.extensions_mut().insert(context.clone());
    let checked = if is_safe { check(&context.dashboard, &request) } else { Err(Problem::not_found("not found")) };
    let mut response = match checked {
        Ok(()) => run(request, next).await,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED && !is_api && request.method() == Method::GET => {
            Redirect::to(&format!("{}/login", context.root)).into_response()
        }
        Err(problem) => problem.into_response(),
    };
    let problem = response.extensions_mut().remove::<Problem>().filter(|_| !is_api && !is_fragment);
    if let Some(problem) = problem {
        let context = response.extensions_mut().remove::<RequestContext>().unwrap_or(context);
        response = failed_page(&context, &problem);
        problem.set_retry_after(&mut response);
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Returns whether the path belongs to the JSON API of the dashboard or of one of its stores.
fn is_api(path: &str) -> bool {
    let inside = path.strip_prefix(STORES_PREFIX).and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(path);
    inside == "/api" || inside.starts_with("/api/")
}

/// Runs the request for up to [`REQUEST_TIMEOUT`]. The request continues if the client disconnects, so that no transaction is abandoned.
async fn run(request: Request, next: Next) -> Response {
    let answered = tokio::spawn(async move { tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await });
    match answered.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Problem::unavailable("the request timed out").into_response(),
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error; see the server log").into_response(),
    }
}

/// Returns the path at which the router is nested: the original path without the suffix that the router matches.
fn base_path(request: &Request) -> String {
    let whole = request.extensions().get::<OriginalUri>().map_or_else(|| request.uri().path(), |uri| uri.0.path());
    let inside = request.uri().path();
    // A request for the nesting path itself has the path `/` inside the router.
    let base = whole.strip_suffix(inside).or_else(|| (inside == "/").then_some(whole)).unwrap_or_default();
    base.trim_end_matches('/').to_owned()
}

/// Returns whether `base` is safe as a link prefix. Browsers remove tabs and line breaks from a link. They resolve a link that then
/// starts with `//` or `/\` to another host.
fn is_safe(base: &str) -> bool {
    (base.is_empty() || base.starts_with('/'))
        && !base.contains("//")
        && !base.contains('\\')
        && !base.contains(|c: char| c.is_ascii_control())
}

fn check(dashboard: &DashboardState, request: &Request) -> HandlerResult<()> {
    let headers = request.headers();
    let host = check_host(dashboard, headers, request.uri())?;
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::POST if path == "/login" || path == "/logout" => check_origin(headers, &host, true)?,
        Method::POST => {
            check_origin(headers, &host, false)?;
            if !is_json(headers) {
                return Err(Problem::forbidden("expected `Content-Type: application/json`"));
            }
        }
        _ => return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "use GET to read and POST to change something")),
    }
    let is_open = path == "/login" || path.starts_with("/assets/");
    if is_open || dashboard.token_auth.authenticates(headers, ClientAddress::of(request.extensions()))? {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNAUTHORIZED, "authentication required: log in, or send `Authorization: Bearer TOKEN`"))
}

/// Returns the requested host if its name is accepted. A request with another name may be a DNS rebinding attack. In HTTP/2, the
/// authority of the URI contains the host, and the `Host` header is optional.
fn check_host(dashboard: &DashboardState, headers: &HeaderMap, uri: &Uri) -> HandlerResult<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next(), uri.authority()) {
        (Some(Ok(host)), None, None) => host.to_ascii_lowercase(),
        (Some(Ok(host)), None, Some(authority)) if authority.as_str().eq_ignore_ascii_case(host) => host.to_ascii_lowercase(),
        (None, None, Some(authority)) => authority.as_str().to_ascii_lowercase(),
        _ => String::new(),
    };
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(&*host, |(name, _)| name);
    if LOOPBACK_NAMES.contains(&name) || dashboard.options.hosts.iter().any(|own| own == name) {
        return Ok(host);
    }
    let unknown = format!("host `{name}` is not allowed; add it with `--dashboard-host` (QUEUE_DASHBOARD_HOST), or `Options::host`");
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, unknown))
}

/// Rejects requests from pages of another origin. Browsers send the `Origin` header with every POST request. Other clients may omit the
/// header, except when they submit a form.
fn check_origin(headers: &HeaderMap, host: &str, is_form: bool) -> HandlerResult<()> {
    let (site, origin) = (headers.get("sec-fetch-site"), headers.get(header::ORIGIN));
    match (site.map(HeaderValue::as_bytes), origin.map(HeaderValue::to_str)) {
        // The browser has already compared the page's origin with the requested address. The `Host` header is not compared, because it
        // may differ from that address behind a proxy.
        (Some(b"same-origin"), _) => Ok(()),
        (Some(site), _) => Err(Problem::forbidden(format!("cross-site request rejected (`Sec-Fetch-Site: {}`)", site.escape_ascii()))),
        (None, None) if is_form => Err(Problem::forbidden(
            "the form was sent without `Sec-Fetch-Site` and `Origin`; log in with a browser, or send `Authorization: Bearer TOKEN`",
        )),
        (None, None) => Ok(()),
        (None, Some(Ok(origin))) if is_same_origin(origin, host) => Ok(()),
        (None, Some(origin)) => Err(Problem::forbidden(format!(
            "cross-site request rejected: origin `{}` does not match host `{host}`; behind a proxy, pass on the requested host with its \
             port (nginx: `proxy_set_header Host $http_host;`)",
            origin.unwrap_or("?")
        ))),
    }
}

fn is_same_origin(origin: &str, host: &str) -> bool {
    [("https://", ":443"), ("http://", ":80")].iter().any(|(scheme, port)| {
        let bare = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
        origin.strip_prefix(scheme).is_some_and(|of| bare(of) == bare(host))
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

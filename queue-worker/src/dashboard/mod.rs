//! Web pages and a JSON API to inspect and operate one or more stores. The dashboard runs inside your web server, or as a standalone
//! server.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use queue_core::{Store, stores::Roster};
//! use queue_worker::dashboard::{self, Options};
//!
//! let admin = dashboard::service(pool, Store::default(), Options::default().host("admin.example.com"))?;
//! let app: axum::Router = axum::Router::new().nest_service("/queue", admin); // behind your own authentication
//! # let _ = app; Ok(()) }
//! ```
//!
//! The dashboard uses at most three connections of the pool at a time. Every statement has a bounded result size and runs for at most five
//! seconds. Pages load nothing from other sites. Payloads never appear in URLs or logs.

mod options;
mod throttle;
mod token;
mod trends;
mod problem;
mod live_hub;
mod operations;
mod request_context;
mod app;
mod store_counts;
mod stores;
mod display;
mod assets;
mod api;
mod pages;
mod path;
mod guard;
mod serve;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    routing::{RouterIntoService, get},
};
use queue_core::{Store, stores::Roster};
use sqlx::PgPool;

#[cfg(feature = "cli")]
pub(crate) use self::serve::listen_beside;
use self::{
    app::App,
    problem::Problem,
    request_context::{DashboardState, PageScope},
    stores::Stores,
};
pub use self::{
    options::{Actor, Options},
    serve::{Listening, listen},
};
use crate::error::Error;

/// Maximum request body size in bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// Returns a service with the pages and the JSON API of one store. Your own [`Router`] can mount the service.
///
/// Use `nest_service` below a path, or `fallback_service` at the root. Requests must be authenticated by your own middleware or by
/// [`Options::token`].
///
/// The return type is not a [`Router`], because axum's `nest` would respond with 404 to the nesting path with a trailing slash.
///
/// # Errors
/// Returns [`Error::Config`] if the token or a host name is invalid.
pub fn service(pool: PgPool, store: Store, options: Options) -> Result<RouterIntoService<Body>, Error> {
    options.check()?;
    Ok(routed(pool, store, options).into_service())
}

/// Returns a service with the pages and the JSON API of all stores of a roster. See [`service`] for a single store.
///
/// The home page shows the job counts of all stores. Each store has its own dashboard below `/stores/NAME`. The list of stores follows
/// changes to the roster. A store that does not respond is listed with its error. [`Options::read_from`] has no effect, because each store
/// is read from its own pool.
///
/// All stores of one database share three connections. A store without requests uses no resources.
///
/// ```no_run
/// # fn example(roster: queue_core::stores::Roster) -> Result<(), Box<dyn std::error::Error>> {
/// use queue_worker::dashboard::{self, Options};
///
/// let admin = dashboard::service_over(&roster, Options::default().host("admin.example.com"))?;
/// let app: axum::Router = axum::Router::new().nest_service("/queues", admin); // `/queues/stores/acme/jobs` are the jobs of `acme`
/// # let _ = app; Ok(()) }
/// ```
///
/// # Errors
/// Returns [`Error::Config`] if the token or a host name is invalid.
pub fn service_over(roster: &Roster, options: Options) -> Result<RouterIntoService<Body>, Error> {
    options.check()?;
    Ok(routed_over(roster, options).into_service())
}

/// Builds the router for one store. The caller must have checked the options.
fn routed(pool: PgPool, store: Store, options: Options) -> Router {
    let dashboard = DashboardState::new(options, PageScope::One(store.schema()));
    let app = Arc::new(App::new(pool, store, dashboard.clone()));
    guarded(pages::routes().merge(api::routes()).with_state(app), dashboard)
}

/// Builds the router for the stores of a roster. The caller must have checked the options.
fn routed_over(roster: &Roster, options: Options) -> Router {
    let dashboard = DashboardState::new(options, PageScope::All);
    let of_one = bounded(pages::routes().merge(api::routes()));
    let routes = stores::routes().merge(pages::of_stores()).merge(api::of_stores());
    guarded(routes.with_state(Arc::new(Stores::new(roster, dashboard.clone(), of_one))), dashboard)
}

/// Adds the login and asset routes, and wraps all routes in the guard middleware.
fn guarded(routes: Router, dashboard: Arc<DashboardState>) -> Router {
    let all = routes.merge(pages::login()).route("/assets/{name}", get(assets::asset));
    bounded(all).layer(from_fn_with_state(dashboard, guard::guard_request))
}

/// Adds the 404 fallback and the body size limit to the routes.
fn bounded<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes.fallback(async || Problem::not_found("not found")).layer(DefaultBodyLimit::max(LONGEST_BODY))
}

//! The dashboard: pages and a JSON API to look at a store, or at many, and to act on it, for a web server of yours or one of its own.
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
//! It takes at most three connections of the pool at a time. No statement is unbounded, and none takes longer than five seconds. Nothing is loaded
//! from elsewhere, nothing of a payload is in an address or in the log.

mod options;
mod throttle;
mod token;
mod problem;
mod live;
mod acts;
mod way;
mod app;
mod counted;
mod stores;
mod show;
mod assets;
mod api;
mod pages;
mod part;
mod door;
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
    stores::Stores,
    way::{Door, Shows},
};
pub use self::{
    options::{Actor, Options},
    serve::{Listening, listen},
};
use crate::error::Error;

/// No body is longer: what is said is a few words.
const LONGEST_BODY: usize = 64 * 1024;

/// Pages and JSON API, for a router of yours: below a path by `nest_service`, at its root by `fallback_service`. Authentication is yours, or
/// [`Options::token`].
///
/// No [`Router`], as `nest` would take that, and axum then answers the path with a slash at its end with 404.
///
/// # Errors
/// [`Error::Config`] for a token that is empty or too short.
pub fn service(pool: PgPool, store: Store, options: Options) -> Result<RouterIntoService<Body>, Error> {
    options.check()?;
    Ok(routed(pool, store, options).into_service())
}

/// As [`service`], over the stores of a roster: the first page has the figures of all, and each has its own dashboard below `/stores/NAME`. It follows
/// the roster: a store that is added is there, and one that is removed is not any more. A store that does not answer is shown as such beside the
/// others. [`Options::read_from`] is of no use here: each store is read from where it is.
///
/// Stores of one database share three connections of their pools. One that nobody looks at costs nothing.
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
/// [`Error::Config`] for a token that is empty or too short.
pub fn service_over(roster: &Roster, options: Options) -> Result<RouterIntoService<Body>, Error> {
    options.check()?;
    Ok(routed_over(roster, options).into_service())
}

/// With options that were checked.
fn routed(pool: PgPool, store: Store, options: Options) -> Router {
    let door = Door::new(options, Shows::One(store.schema()));
    let app = Arc::new(App::new(pool, store, door.clone()));
    guarded(pages::routes().merge(api::routes()).with_state(app), door)
}

/// With options that were checked.
fn routed_over(roster: &Roster, options: Options) -> Router {
    let door = Door::new(options, Shows::All);
    let of_one = bounded(pages::routes().merge(api::routes()));
    let routes = stores::routes().merge(pages::of_stores()).merge(api::of_stores());
    guarded(routes.with_state(Arc::new(Stores::new(roster, door.clone(), of_one))), door)
}

/// Nobody comes to the routes but through the door.
fn guarded(routes: Router, door: Arc<Door>) -> Router {
    let all = routes.merge(pages::login()).route("/assets/{name}", get(assets::asset));
    bounded(all).layer(from_fn_with_state(door, door::guard))
}

/// To what is there, and to what may be said.
fn bounded<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes.fallback(async || Problem::missing("there is nothing here")).layer(DefaultBodyLimit::max(LONGEST_BODY))
}

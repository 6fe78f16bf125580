//! The dashboard: pages and a JSON API to look at a store and to act on it, for a web server of yours or one of its own.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use queue_core::Store;
//! use queue_worker::dashboard::{self, Options};
//!
//! let admin = dashboard::router(pool, Store::default(), Options::default().host("admin.example.com"))?;
//! let app: axum::Router = axum::Router::new().nest("/queue", admin); // behind your own authentication
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
mod app;
mod show;
mod assets;
mod api;
mod pages;
mod door;
mod serve;

use std::sync::Arc;

use axum::{Router, extract::DefaultBodyLimit, middleware::from_fn_with_state, routing::get};
use queue_core::Store;
use sqlx::PgPool;

#[cfg(feature = "cli")]
pub(crate) use self::serve::listen_beside;
use self::{app::App, problem::Problem};
pub use self::{
    options::{Actor, Options},
    serve::{Listening, listen},
};
use crate::error::Error;

/// No body is longer: what is said is a few words.
const LONGEST_BODY: usize = 64 * 1024;

/// Pages and JSON API, to be nested anywhere in a router of yours, or served as they are. Authentication is yours, or [`Options::token`].
///
/// # Errors
/// [`Error::Config`] for a token that is empty or too short.
pub fn router(pool: PgPool, store: Store, options: Options) -> Result<Router, Error> {
    options.check()?;
    Ok(routed(pool, store, options))
}

/// With options that were checked.
fn routed(pool: PgPool, store: Store, options: Options) -> Router {
    let app = Arc::new(App::new(pool, store, options));
    let routes = Router::new().merge(pages::routes()).merge(api::routes()).route("/assets/{name}", get(assets::asset));
    routes
        .fallback(async || Problem::missing("there is nothing here"))
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(app.clone(), door::guard))
        .with_state(app)
}

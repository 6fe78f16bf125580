//! Code blocks of `docs/DASHBOARD.md`.

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
};
use queue_core::{Store, stores::Roster};
use queue_worker::dashboard::{self, Options};
use sqlx::PgPool;

async fn authenticate(request: Request, next: Next) -> Response {
    next.run(request).await
}

fn one_store(pool: PgPool) -> Result<Router, queue_worker::Error> {
    let your_authentication = from_fn(authenticate);
    let admin = dashboard::service(pool, Store::default(), Options::default().host("admin.example.com"))?;
    let app = Router::new().nest_service("/queue", admin).layer(your_authentication);
    Ok(app)
}

fn many_stores(roster: Roster) -> Result<Router, queue_worker::Error> {
    let your_authentication = from_fn(authenticate);
    let admin = dashboard::service_over(&roster, Options::default().host("admin.example.com"))?;
    let app = Router::new().nest_service("/queue", admin).layer(your_authentication);
    Ok(app)
}

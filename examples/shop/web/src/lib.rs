//! Routes of the shop's web server. The server stores an order and its job in one transaction, and reports the state of an order.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use queue_core::Job as _;
use serde::Deserialize;
use serde_json::{Value, json};
use shop_domain::FulfilOrder;
use sqlx::PgPool;

/// Creates the table `orders`.
///
/// # Errors
/// Returns the error of the database.
pub async fn create_tables(pool: &PgPool) -> sqlx::Result<()> {
    let table = "create table if not exists orders (id bigint generated always as identity primary key, email text not null, receipt text)";
    sqlx::raw_sql(table).execute(pool).await.map(drop)
}

/// Returns the routes of the server.
pub fn routes(pool: PgPool) -> Router {
    Router::new().route("/orders", post(place_order)).route("/orders/{id}", get(show_order)).with_state(pool)
}

/// Body of a request that places an order.
#[derive(Deserialize)]
struct NewOrder {
    email: String,
}

async fn place_order(State(pool): State<PgPool>, Json(order): Json<NewOrder>) -> Result<Response, Failed> {
    let mut tx = pool.begin().await?;
    let id: i64 = sqlx::query_scalar("insert into orders (email) values ($1) returning id").bind(order.email).fetch_one(&mut *tx).await?;
    let job = FulfilOrder { order: id }.enqueue(&mut tx).await?;
    tx.commit().await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "order": id, "job": job.id().to_string() }))).into_response())
}

async fn show_order(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<Json<Value>, Failed> {
    let receipt: Option<String> = sqlx::query_scalar("select receipt from orders where id = $1").bind(id).fetch_one(&pool).await?;
    Ok(Json(json!({ "order": id, "receipt": receipt })))
}

/// Error of a request, answered with status 500.
struct Failed(Box<dyn std::error::Error>);

impl<E: Into<Box<dyn std::error::Error>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

//! Web server of the shop: `DATABASE_URL=.. cargo run -p shop-web`. The worker creates the tables of the queue.

use sqlx::PgPool;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    shop_web::create_tables(&pool).await?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, shop_web::routes(pool)).await?;
    Ok(())
}

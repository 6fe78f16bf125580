//! Worker without job types, as built by a user who forgets to name the crate that defines the types.

use queue_worker::Worker;
use sqlx::PgPool;

#[tokio::main]
async fn main() {
    let nowhere = PgPool::connect_lazy("postgres://localhost:1/nowhere").expect("the address can be read");
    if let Err(error) = Worker::new(nowhere).run(std::future::pending()).await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

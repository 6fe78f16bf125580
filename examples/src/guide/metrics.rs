//! Code block of `docs/METRICS.md`.

use queue_worker::{Worker, shutdown_signal};

async fn work(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    let meter = opentelemetry::global::meter("queue-worker"); // from the provider that your program has set
    Worker::new(pool).meter(meter).run(shutdown_signal()).await
}

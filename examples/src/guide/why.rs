//! Code block of `docs/WHY.md`.

use queue_core::{JobId, Queue, Store};
use sqlx::PgPool;

async fn explain(pool: PgPool, store: Store, id: JobId) -> Result<(), queue_core::Error> {
    let why = Queue::new(&pool).store(store).job(id).why().await?; // or job.why(&pool) with a handle
    println!("{}", why.first().message);
    Ok(())
}

//! Enqueues a job for the worker `mailer`, as in `docs/GETTING_STARTED.md`.

#[path = "mailer/mailer.rs"]
#[allow(unreachable_pub, reason = "the library crate of the package in the guide")]
mod mailer;

use mailer::SendEmail;
use queue_core::{Job, Store};
use queue_worker::Database;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // the database of the worker
    database.migrate(Store::default()).await?;
    let mut tx = database.pool().begin().await?;
    let job = SendEmail { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
    tx.commit().await?;
    println!("job {}", job.id());
    Ok(())
}

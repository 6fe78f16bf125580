//! `queue_core` re-exports its driver `sqlx`. Jobs can be enqueued on connections and transactions of the re-exported version.

use queue_core::{Error, Job as _, job, sqlx};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

async fn lent(tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, connection: &mut sqlx::PgConnection) -> Result<(), Error> {
    SendEmail.enqueue(&mut *tx).await?;
    SendEmail.enqueue(tx).await?;
    SendEmail.enqueue(connection).await?;
    Ok(())
}

fn main() {
    let _ = lent;
}

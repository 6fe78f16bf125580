//! A reference to a `&mut Transaction` is rejected. The error describes the accepted connections, including their sqlx version.

use queue_core::{
    Job as _, job,
    sqlx::{PgConnection, Postgres, Transaction},
};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

async fn twice(tx: &mut Transaction<'_, Postgres>) {
    let _ = SendEmail.enqueue(&mut tx).await;
}

async fn once(tx: &mut Transaction<'_, Postgres>, connection: &mut PgConnection) {
    let _ = SendEmail.enqueue(&mut *tx).await;
    let _ = SendEmail.enqueue(&mut *connection).await;
}

fn main() {}

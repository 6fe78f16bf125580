//! Code blocks of the project's README and of the README of `queue-core`.

use queue_core::{Context, Job as _, JobResult, handler, job};
use serde::{Deserialize, Serialize};

struct Mailer;

impl Mailer {
    async fn send(&self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
}

#[rustfmt::skip]
mod shop {
    use super::*;

    #[job(send_only, queue = "mail")] // in the crate `domain`; the web server links this crate
    #[derive(Serialize, Deserialize)]
    pub struct SendEmail { pub to: String }
    #[handler(state(Mailer))] // in the crate of the worker
    async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
        Ok(cx.state::<Mailer>().send(&job.to).await?)
    }
}

/// Function that contains a whole block of the README. The block ends with a statement, which cannot stand outside a function.
async fn enqueue(mut tx: sqlx::Transaction<'_, sqlx::Postgres>) -> Result<(), queue_core::Error> {
    #[job(send_only, max_attempts = 5, timeout = "30s")]
    #[derive(Serialize, Deserialize)]
    struct SendEmail {
        to: String,
    }

    SendEmail { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
    Ok(())
}

//! A job type whose effect records when its handler began, before anything else could delay it.

use std::time::Duration;

use chrono::Utc;
use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// A job that records the start time by this machine's clock (the server's) in the table `effect`, and then sleeps.
#[job(send_only, max_attempts = 20, backoff = fixed("10ms"))]
#[derive(Serialize, Deserialize)]
pub struct Marked {
    /// Sleep in ms.
    pub ms: u64,
}

impl Handler for Marked {
    async fn run(self, cx: &Context) -> JobResult {
        let began = Utc::now();
        sqlx::query("insert into effect (job, attempt, pid, at) values ($1, $2, $3, $4)")
            .bind(cx.id())
            .bind(i32::try_from(cx.attempt())?)
            .bind(std::process::id().cast_signed())
            .bind(began)
            .execute(cx.pool())
            .await?;
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        Ok(())
    }
}

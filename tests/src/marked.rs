//! A job type whose effect says when its handler began, before anything else could keep it waiting.

use std::time::Duration;

use chrono::Utc;
use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// A job that notes the time by this machine's clock, which is the server's, writes it into the table `effect`, and goes on for so long.
#[job(send_only, max_attempts = 20, backoff = fixed("10ms"))]
#[derive(Serialize, Deserialize)]
pub struct Marked {
    /// For how many ms it goes on.
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

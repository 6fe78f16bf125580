//! Job type whose handler records its start time as its first action.

use std::time::Duration;

use chrono::Utc;
use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// Job that records its start time in the table `effect`, and then sleeps. The time comes from this machine's clock, which the server
/// shares.
#[job(send_only, max_attempts = 20, backoff = fixed("10ms"))]
#[derive(Serialize, Deserialize)]
pub struct Marked {
    /// Duration of the sleep in ms.
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

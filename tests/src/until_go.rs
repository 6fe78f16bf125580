//! Job type whose jobs run until the test releases them, so their duration does not depend on the machine's speed.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// Job that writes a row to the table `effect`, and waits until the table `go` exists.
#[job(name = "until_go", max_attempts = 3, timeout = "10m")]
#[derive(Serialize, Deserialize)]
pub struct UntilGo {}

impl Handler for UntilGo {
    async fn run(self, cx: &Context) -> JobResult {
        sqlx::query("insert into effect (job, attempt, pid) values ($1, $2, $3)")
            .bind(cx.id())
            .bind(i32::try_from(cx.attempt())?)
            .bind(std::process::id().cast_signed())
            .execute(cx.pool())
            .await?;
        while !sqlx::query_scalar::<_, bool>("select to_regclass('go') is not null").fetch_one(cx.pool()).await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

//! Job with several steps, each with an effect and a checkpoint. The job can be configured to wait forever after a step.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// Job with several steps. Each step writes a row to the table `effect`. The first attempt waits forever after the step `hold`.
#[job(send_only, max_attempts = 3, backoff = fixed("1ms"), output = u32)]
#[derive(Serialize, Deserialize)]
pub struct Steps {
    /// Number of steps in the job.
    pub steps: u32,
    /// Step after which the first attempt waits, or `None` to never wait.
    pub hold: Option<u32>,
}

impl Handler for Steps {
    /// Runs the remaining steps. Returns the number of steps that this attempt ran.
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let done: u32 = cx.last_checkpoint().await?.unwrap_or_default();
        cx.stage("steps");
        for step in done..self.steps {
            let effect = "insert into effect (job, attempt, pid) values ($1, $2, 0)";
            sqlx::query(effect).bind(cx.id()).bind(step.cast_signed()).execute(cx.pool()).await?;
            cx.progress(f64::from(step + 1) / f64::from(self.steps));
            cx.event("step");
            cx.checkpoint(&(step + 1)).await?;
            if self.hold == Some(step) && cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
        }
        Ok(self.steps - done)
    }
}

//! A job in steps, each with an effect and a checkpoint, that stops in the middle when it is told to.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// A job of so many steps, each a row in the table `effect`; `hold` is one after which the first attempt waits for ever.
#[job(send_only, max_attempts = 3, backoff = fixed("1ms"), output = u32)]
#[derive(Serialize, Deserialize)]
pub struct Steps {
    /// How many.
    pub steps: u32,
    /// After which to wait.
    pub hold: Option<u32>,
}

impl Handler for Steps {
    /// Returns how many steps this attempt did.
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

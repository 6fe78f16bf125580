//! Durable job types. Each stage of `Stages` writes one effect inside and one effect outside of a step's transaction. `Laps` restarts
//! repeatedly.

use std::time::Duration;

use queue_core::{Handler, JobResult, durable::Durable, job};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

/// Durable job with `stages` stages. Each stage has two steps, each of which writes a row to the table `effect`. The first row is
/// committed with the journal entry of its step. The second row is committed before the journal entry of its step, and has an `attempt`
/// that is higher by 1000.
#[job(send_only, durable, max_attempts = 3, backoff = fixed("1ms"), output = i32)]
#[derive(Serialize, Deserialize)]
pub struct Stages {
    /// Number of stages in the job.
    pub stages: i32,
    /// Duration of a stage in ms.
    pub ms: u64,
}

async fn effect(on: &mut PgConnection, job: queue_core::JobId, number: i32) -> sqlx::Result<i32> {
    sqlx::query("insert into effect (job, attempt, pid) values ($1, $2, 0)").bind(job).bind(number).execute(on).await?;
    Ok(number)
}

impl Handler for Stages {
    async fn run(self, cx: &Durable) -> JobResult<i32> {
        let mut sum = 0;
        for stage in 0..self.stages {
            sum += cx.step_tx(("within", stage), async |tx| effect(tx, cx.id(), stage).await).await?;
            let beside = async {
                let mut on = cx.pool().acquire().await?;
                effect(&mut on, cx.id(), 1000 + stage).await
            };
            cx.step(("beside", stage), beside).await?;
            tokio::time::sleep(Duration::from_millis(self.ms)).await;
        }
        Ok(sum)
    }
}

/// Durable job that restarts until the last lap. Each lap writes a row with its number to the table `effect`, and commits the row with
/// the journal entry.
#[job(send_only, durable, max_attempts = 3, backoff = fixed("1ms"), output = i32)]
#[derive(Serialize, Deserialize)]
pub struct Laps {
    /// Number of the current lap.
    pub lap: i32,
    /// Number of the last lap.
    pub last: i32,
    /// Duration of a lap in ms.
    pub ms: u64,
}

impl Handler for Laps {
    async fn run(self, cx: &Durable) -> JobResult<i32> {
        let lap = cx.step_tx("lap", async |tx| effect(tx, cx.id(), self.lap).await).await?;
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        if lap < self.last {
            cx.restart(Self { lap: lap + 1, ..self }).await;
        }
        Ok(lap)
    }
}

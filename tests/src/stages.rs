//! A durable job of many steps, each with an effect: in the step's own transaction, and beside it; and one that begins anew again and again.

use std::time::Duration;

use queue_core::{Durable, Handler, JobResult, job};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

/// So many stages. Each is a row in the table `effect` that is committed with its journal, and one that is not, whose `attempt` is higher by 1000.
#[job(send_only, durable, max_attempts = 3, backoff = fixed("1ms"), output = i32)]
#[derive(Serialize, Deserialize)]
pub struct Stages {
    /// How many.
    pub stages: i32,
    /// How long each takes, in ms.
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

/// Laps up to the last, each of which begins the job anew. Each is a row in the table `effect` with its number, committed with its journal.
#[job(send_only, durable, max_attempts = 3, backoff = fixed("1ms"), output = i32)]
#[derive(Serialize, Deserialize)]
pub struct Laps {
    /// Which it is.
    pub lap: i32,
    /// The last.
    pub last: i32,
    /// How long each takes, in ms.
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

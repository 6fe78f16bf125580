//! The transaction of a job ends with `complete` or `fail`, not with `commit` or `rollback`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct Ship;

impl Handler for Ship {
    async fn run(self, cx: &Context) -> JobResult {
        let tx = cx.begin().await?;
        tx.commit().await?;
        let tx = cx.begin().await?;
        tx.rollback().await?;
        Ok(())
    }
}

fn main() {}

//! Kills worker processes while they are running jobs.

use std::time::Duration;

use crate::{TestDb, WorkerProcess, eventually};

/// Starts three workers one after the other and kills each. The first two are killed at a random moment after the result of the query
/// `progress` has grown by more than `by`. The third is killed once the query `finished` returns `expected`. If the third kill were
/// random too, a job hit by all three kills would become a dead letter.
///
/// # Panics
/// Panics if the workers make no progress.
pub async fn kill_three(db: &TestDb, binary: &str, (progress, by): (&str, i64), (finished, expected): (&str, i64)) {
    for kill in 0..3 {
        let before = db.count(progress).await;
        let worker = WorkerProcess::start(binary, &db.url, &[("CONCURRENCY", "10")]);
        if kill < 2 {
            eventually("it goes forward", async || db.count(progress).await > before + by).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..40))).await;
        } else {
            db.until_count(finished, expected).await;
        }
        db.kill(worker).await;
    }
}

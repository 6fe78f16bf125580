//! Code blocks of `docs/BATCHES.md`.

/// Simulates a service for push notifications.
struct Service;

impl Service {
    /// Returns for each device whether the service knows the device.
    async fn push(&self, devices: Vec<&str>) -> std::io::Result<Vec<bool>> {
        Ok(vec![true; devices.len()])
    }
}

#[rustfmt::skip]
mod handler_of_a_type {
    use super::Service;

    use queue_core::{
        Failure, JobResult,
        batch::{BatchContext, BatchHandler, JobBatch},
        job,
    };
    use serde::{Deserialize, Serialize};

    #[job(batch = 500, batch_wait = "200ms", timeout = "30s")]
    #[derive(Serialize, Deserialize)]
    struct Push { device: String }

    impl BatchHandler for Push {
        async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
            let devices = batch.iter().map(|job| job.payload().device.as_str()).collect();
            let known = cx.state::<Service>().push(devices).await?; // an error: all jobs are retried
            for (job, known) in batch.iter_mut().zip(known) {
                if !known {
                    job.fail(Failure::terminal("no such device")); // this job becomes a dead letter
                }
            }
            Ok(()) // the other jobs complete
        }
    }
}

mod function {
    use super::Service;
    use serde::{Deserialize, Serialize};

    #[queue_core::job(name = "guide_push", batch = 500, send_only)]
    #[derive(Serialize, Deserialize)]
    struct Push {
        device: String,
    }

    use queue_core::{
        JobResult,
        batch::{BatchContext, JobBatch},
        handler,
    };

    #[handler(state(Service))] // the type has `#[job(batch = 500, send_only)]`
    async fn push(batch: &mut JobBatch<Push>, cx: &BatchContext) -> JobResult {
        let devices = batch.iter().map(|job| job.payload().device.as_str()).collect();
        cx.state::<Service>().push(devices).await?;
        Ok(())
    }
}

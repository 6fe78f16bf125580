//! Code blocks of `docs/LIMITS.md`.

#[rustfmt::skip]
mod of_a_type {
    use queue_core::job;
    use serde::{Deserialize, Serialize};

    #[job(
        limit(concurrency = 10, rate = "30/1m"),                              // this type, in every queue
        limit(name = "stripe", concurrency = 3, burst = 5, rate = "30/1m"),   // all types that name it
        limit(name = "account", key = self.account, concurrency = 3),         // three of each account
    )]
    #[derive(Serialize, Deserialize)]
    struct Transfer { account: i64 }

    impl queue_core::Handler for Transfer {
        async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
            super::refused()
        }
    }
}

fn of_a_queue(pool: sqlx::PgPool) -> queue_worker::Worker {
    use queue_core::options::Limit;
    use queue_worker::Worker;

    let worker = Worker::new(pool).limit("render", Limit::queue().concurrency(10));
    worker
}

fn refused() -> queue_core::JobResult {
    use std::time::Duration;

    use queue_core::Failure;

    return Err(Failure::slow_down(Duration::from_secs(30), "429"));
}

//! Worker process that runs test jobs, configured by `DATABASE_URL`, `TTL_MS`, `CONCURRENCY`, `GRACE_MS`, `HEALTH` and `PACE`. With
//! `QUEUE_LOG=unset`, no tracing subscriber is installed.

use std::{env, error::Error, str::FromStr, time::Duration};

use queue_worker::{Config, Database, Worker, shutdown_signal};
use tests::{Batched, Do, Laps, Marked, Ordered, Own, Stages, Steps, UntilGo, Within};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(work());
    // Does not wait for handlers that never await, because their grace period has already ended. The CLI does the same.
    runtime.shutdown_background();
    result
}

async fn work() -> Result<(), Box<dyn Error>> {
    let filter = env::var("QUEUE_LOG").unwrap_or_else(|_| "error".to_owned());
    if filter != "unset" {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    }
    let database = Database::connect(&env::var("DATABASE_URL")?).await?;
    let mut config = Config::default();
    config.pace = setting("PACE", 1);
    let worker = Worker::new(database.pool().clone())
        .config(config)
        .register::<Do>()
        .register::<Marked>()
        .register::<Within>()
        .register::<Own>()
        .register::<Ordered>()
        .register::<Steps>()
        .register::<Stages>()
        .register::<Laps>()
        .register::<UntilGo>()
        .register_batch::<Batched>()
        .lease_ttl(Duration::from_millis(setting("TTL_MS", 30_000)))
        .grace(Duration::from_millis(setting("GRACE_MS", 2000)))
        .concurrency(setting("CONCURRENCY", 10));
    let worker = match env::var("HEALTH") {
        Ok(address) => worker.health(address.parse()?),
        Err(_) => worker,
    };
    worker.run(shutdown_signal()).await?;
    Ok(())
}

fn setting<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

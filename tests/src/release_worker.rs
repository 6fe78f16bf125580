//! A worker of one release as a process of its own: `RELEASE` says which, `DATABASE_URL`, `TTL_MS` and `CONCURRENCY` how it works.

use std::{env, error::Error, time::Duration};

use queue_worker::{Database, Worker, shutdown_signal};
use tests::release::{first, second, third};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(env::var("QUEUE_LOG").unwrap_or_else(|_| "error".to_owned()))
        .init();
    let database = Database::connect(&env::var("DATABASE_URL")?).await?;
    let worker = Worker::new(database.pool().clone());
    let worker = match env::var("RELEASE")?.as_str() {
        "1" => worker.register::<first::Mail>(),
        "2" => worker.register::<second::Mail>(),
        _ => worker.register::<third::Mail>(),
    };
    let ttl = env::var("TTL_MS").map_or(Ok(5000), |text| text.parse())?;
    worker.lease_ttl(Duration::from_millis(ttl)).concurrency(4).run(shutdown_signal()).await?;
    Ok(())
}

//! Worker process of one release. `RELEASE` selects the release. `DATABASE_URL`, `TTL_MS` and `CONCURRENCY` configure the worker.
//! `KEYS` lists the keys that decrypt payloads, starting with the current key: `2026=<64 digits>,2025=<64 digits>`.

use std::{env, error::Error, time::Duration};

use queue_core::{Keyring, Secret, use_keyring};
use queue_worker::{Database, Worker, shutdown_signal};
use tests::release::{first, sealed, second, third};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(env::var("QUEUE_LOG").unwrap_or_else(|_| "error".to_owned()))
        .init();
    if let Ok(keys) = env::var("KEYS") {
        let mut keys = keys.split(',').filter_map(|key| key.split_once('='));
        let (current, secret) = keys.next().ok_or("KEYS has no key")?;
        let mut keyring = Keyring::new(current, Secret::parse(secret)?);
        for (older, secret) in keys {
            keyring = keyring.older(older, Secret::parse(secret)?);
        }
        use_keyring("release", keyring)?;
    }
    let database = Database::connect(&env::var("DATABASE_URL")?).await?;
    let worker = Worker::new(database.pool().clone());
    let worker = match env::var("RELEASE")?.as_str() {
        "1" => worker.register::<first::Mail>(),
        "2" => worker.register::<second::Mail>(),
        "sealed" => worker.register::<first::Mail>().register::<sealed::Charge>(),
        _ => worker.register::<third::Mail>(),
    };
    let ttl = env::var("TTL_MS").map_or(Ok(5000), |text| text.parse())?;
    worker.lease_ttl(Duration::from_millis(ttl)).concurrency(4).run(shutdown_signal()).await?;
    Ok(())
}
